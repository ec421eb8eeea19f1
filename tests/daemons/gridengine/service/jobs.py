"""Jobs on a real Grid Engine, as a user looks at them."""

from __future__ import annotations

import calendar
import re
import time
from xml.etree import ElementTree

from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from testbed.gridenginesite import GridEngineSite

MB = 1_000_000
PATIENCE_S = 60
TOLD_S = 90
"""The line at a job changes every 20 s at most."""

# Says when it began, and what it finds.
SCRIPT = """#!/bin/sh
echo "began on $(hostname) $OUTRIDER_IMAGE $(head -c3 "$OUTRIDER_IMAGE")"
{more}
"""
OUTPUT = ("-o", "out-$JOB_ID.$TASK_ID", "-j", "y")


def submit(
    site: GridEngineSite, image: ServedImage | None, *options: str, more: str = "", user: str = "ada"
) -> str:
    """A job for an image; its number."""
    named = [] if image is None else ["-ac", f"OUTRIDER=image={image.uri};digest={image.digest}"]
    limit = [] if any("h_rt" in option for option in options) else ["-l", "h_rt=600"]
    return site.submit(SCRIPT.format(more=more), *OUTPUT, *limit, *named, *options, user=user)


def output(site: GridEngineSite, job: str, task: str = "0", user: str = "ada") -> str:
    path = f"{site.home(user)}/out-{job}.{task}"
    return site.cluster.run(HEAD, ["cat", path], check=False).stdout


def shown(site: GridEngineSite, job: str) -> str:
    """What a user sees of a job in qstat."""
    return site.cluster.run(HEAD, ["qstat", "-j", job], user="ada", check=False).stdout


def told(site: GridEngineSite, job: str) -> str:
    """The sentence of ours that a user sees there."""
    found = re.search(r"OUTRIDER_NOTE=([^,\n]*)", shown(site, job))
    return "" if found is None else found[1]


def report(site: GridEngineSite, job: str) -> str:
    asked = site.outrider("show", job, check=False)
    return f"{shown(site, job)}\n{asked.stdout}{asked.stderr}\n{output(site, job)}\n{site.logs()}"


def wait_told(site: GridEngineSite, job: str, words: str, timeout_s: float = TOLD_S) -> str:
    """Until a user sees these words at a job; all that is to be seen."""
    site.cluster.wait_for(
        f"{words!r} at job {job}", lambda: words in told(site, job), timeout_s, lambda: report(site, job)
    )
    return told(site, job)


def wait_shown(site: GridEngineSite, job: str, words: str, timeout_s: float = TOLD_S) -> None:
    """Until `outrider show JOB` says so."""
    site.cluster.wait_for(
        f"{words!r} in outrider show {job}",
        lambda: words in site.told("show", job),
        timeout_s,
        lambda: report(site, job),
    )


def wait_state(site: GridEngineSite, job: str, state: str, timeout_s: float = PATIENCE_S) -> None:
    site.cluster.wait_for(
        f"job {job} to be {state}",
        lambda: site.cluster.job_state(job) == state,
        timeout_s,
        lambda: report(site, job),
    )


def wait_output(
    site: GridEngineSite, job: str, words: str = "began on", timeout_s: float = PATIENCE_S
) -> None:
    """Until the job itself has said so: it runs for certain."""
    site.cluster.wait_for(
        f"{words!r} of job {job}", lambda: words in output(site, job), timeout_s, lambda: report(site, job)
    )


def wait_arriving(site: GridEngineSite, image: ServedImage) -> str:
    """Until bytes of an image are on some node; which."""
    site.cluster.wait_for(f"{image.name} to arrive", lambda: bool(site.arriving(image)), logs=site.logs)
    return site.arriving(image)[0]


def wait_released(site: GridEngineSite, job: str) -> None:
    """Until a job may start as far as Outrider goes, and has other reasons to wait."""
    site.cluster.wait_for(
        f"job {job} to be released",
        lambda: "OUTRIDER_TICKET=1." in shown(site, job) and site.cluster.job_state(job) == "qw",
        logs=lambda: report(site, job),
    )


def ended(site: GridEngineSite, job: str, timeout_s: float = PATIENCE_S) -> dict[str, str]:
    """How the job ended the last time, when it has."""
    wait_state(site, job, "finished", timeout_s)
    return site.cluster.accounts(job)[-1]


def start_s(account: dict[str, str]) -> int:
    """When a job was started, as Grid Engine has written it down."""
    return calendar.timegm(time.strptime(account["start_time"], "%a %b %d %H:%M:%S %Y"))


def cancel(site: GridEngineSite, *jobs: str, user: str = "ada") -> None:
    site.cluster.run(HEAD, ["qdel", *jobs], user=user)


def fill(site: GridEngineSite, node: str) -> str:
    """A job that takes all of a node, until it is cancelled."""
    job = submit(site, None, "-pe", "each4", "4", "-q", f"all.q@{node}", "-N", "fill", more="sleep 600")
    wait_output(site, job)
    return job


def advances(site: GridEngineSite) -> dict[str, str]:
    """Grid Engine's advance reservations: their numbers by name, the service's guards left out."""
    done = site.cluster.run(HEAD, ["qrstat", "-u", "*", "-xml"])
    found = {}
    for each in ElementTree.fromstring(done.stdout):
        name = each.findtext("name") or ""
        if not name.startswith("outrider_guard_"):
            found[name] = each.findtext("id") or ""
    return found


def wait_advance(site: GridEngineSite, name: str, *, is_there: bool = True) -> str:
    """Until an advance reservation is there, or gone; its number."""
    site.cluster.wait_for(
        f"{name} {'in' if is_there else 'gone from'} Grid Engine",
        lambda: (name in advances(site)) is is_there,
        logs=site.logs,
    )
    return advances(site).get(name, "")
