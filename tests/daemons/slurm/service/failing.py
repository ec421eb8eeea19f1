"""What breaks on a site, and how it is looked at while it does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.site import CONFIGURATION, NODE_DAEMON, PROGRAMS, SERVICE, OutriderSite, ServedImage
from testbed.slurm import HEAD, IMAGES, IMAGES_FOLDER, IMAGES_PORT, SERVER
from tests.daemons.slurm.service.jobs import HELD, seen

MB = 1_000_000
TOLD_S = 90
"""The line at a job changes every 20 s at most."""
STATE, KEPT = "/var/lib/slurm/slurmctld", "/var/lib/slurm/kept"
MARK = "mark"
SECOND = "second"
SERVED = ["/usr/bin/python3", "-I", "-S", SERVER, IMAGES_FOLDER, str(IMAGES_PORT)]


def stop_images(site: OutriderSite) -> None:
    site.cluster.kill(IMAGES, "images")


def start_images(site: OutriderSite) -> None:
    site.cluster.start(IMAGES, SERVED, name="images")


def hold_back(site: OutriderSite, image: ServedImage) -> None:
    """Let an image arrive by half, and go on only when it is let go: something can happen meanwhile."""
    site.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{image.name}.held", "")


def let_go(site: OutriderSite, image: ServedImage) -> None:
    site.cluster.run(IMAGES, ["rm", f"{IMAGES_FOLDER}/{image.name}.held"])


def kill_service(site: OutriderSite) -> None:
    site.cluster.kill(HEAD, SERVICE)


@contextmanager
def second_service(site: OutriderSite) -> Iterator[None]:
    """An outriderd beside the site's own, on the same head and Slurm, with a store of its own."""
    place = f"/etc/outrider/{SECOND}.yaml"
    settings = json.loads(site.cluster.read(HEAD, CONFIGURATION))
    folders = {"state": f"/var/lib/{SECOND}", "socket": f"/run/outrider/{SECOND}.sock"}
    site.cluster.write(HEAD, place, json.dumps({**settings, **folders}))
    argv = [site.cluster.python, "-m", "outrider.service", "--config", place, "--init-if-empty"]
    site.cluster.start(HEAD, argv, name=SECOND, environment={"PYTHONPATH": PROGRAMS})
    try:
        yield
    finally:
        site.cluster.kill(HEAD, SECOND)


def kill_node(site: OutriderSite, node: str) -> None:
    site.cluster.kill(node, NODE_DAEMON)


def told(site: OutriderSite, job: str) -> str:
    """The sentence that squeue shows at a job."""
    return seen(site, job).admin_comment.partition(' {"outrider"')[0]


def wait_told(site: OutriderSite, job: str, words: str, timeout_s: float = TOLD_S) -> str:
    """Until a user sees these words at a job; all that is to be seen."""
    site.cluster.wait_for(
        f"{words!r} at job {job}",
        lambda: words in told(site, job),
        timeout_s,
        lambda: f"{seen(site, job)}\n{site.outrider('show', job, check=False).stdout}\n{site.logs()}",
    )
    return told(site, job)


def wait_shown(site: OutriderSite, job: str, words: str, timeout_s: float = TOLD_S) -> None:
    """Until `outrider show JOB` says so."""
    site.cluster.wait_for(
        f"{words!r} in outrider show {job}",
        lambda: words in site.told("show", job),
        timeout_s,
        lambda: f"{seen(site, job)}\n{site.outrider('show', job, check=False).stdout}\n{site.logs()}",
    )


def wait_released(site: OutriderSite, job: str) -> None:
    """Until a job may start as far as Outrider goes: it has its ticket, and other reasons to wait."""
    site.cluster.wait_for(
        f"job {job} to be released",
        lambda: "outrider-ticket=1." in seen(site, job).comment and seen(site, job).reason not in HELD,
        logs=lambda: f"{seen(site, job)}\n{site.logs()}",
    )


def kill_slurmctld(site: OutriderSite) -> None:
    """Kill it when it has written down all that has happened so far: it forgets what it has not.

    A job that it has forgotten to have ended is still running to it, and keeps its node for minutes.
    """
    wait_saved(site)
    site.cluster.kill_slurmctld()


def start_slurmctld(site: OutriderSite) -> None:
    site.cluster.start_slurmctld()
    site.cluster.run(HEAD, ["scancel", f"--name={MARK}"])


def wait_saved(site: OutriderSite) -> None:
    """Until slurmctld has on its disk what it knows now: it writes all jobs at once, a new one, too."""
    word = secrets.token_hex(8)
    job = site.submit("#!/bin/sh\n", "--hold", f"--job-name={MARK}", f"--comment={word}")
    site.cluster.wait_for("slurmctld to save its state", lambda: _is_saved(site, word), logs=site.logs)
    site.cluster.run(HEAD, ["scancel", job])


def keep_state(site: OutriderSite) -> None:
    """Remember what slurmctld has on its disk, for `put_state_back`."""
    site.cluster.run(HEAD, ["cp", "-a", STATE, KEPT])


def put_state_back(site: OutriderSite) -> None:
    """Let slurmctld, which is dead, have died before it could write down what has happened since."""
    script = 'rm -r "$1" && mv "$2" "$1"'
    site.cluster.run(HEAD, ["/bin/sh", "-c", script, "sh", STATE, KEPT])


def _is_saved(site: OutriderSite, words: str) -> bool:
    return site.cluster.run(HEAD, ["grep", "-q", words, f"{STATE}/job_state"], check=False).returncode == 0


@contextmanager
def call_instead(site: OutriderSite, program: str, arguments: str, script: str) -> Iterator[None]:
    """Within it, one of Slurm's programs on the head is a script once, when its arguments are like these.

    The script finds the program itself as $real.
    """
    place, armed = f"/usr/bin/{program}", "/run/outrider-armed"
    text = (
        f'#!/bin/sh\nreal={place}.real\ncase "$*" in {arguments}) if rm {armed} 2>/dev/null; then\n'
        f'{script}\nfi ;; esac\nexec $real "$@"\n'
    )
    site.cluster.run(HEAD, ["cp", "-aL", place, f"{place}.real"])
    site.cluster.run(HEAD, ["touch", armed])
    site.cluster.write(HEAD, place, text, mode=0o755)
    try:
        yield
    finally:
        site.cluster.run(HEAD, ["mv", "-T", f"{place}.real", place])
        site.cluster.run(HEAD, ["rm", "-f", armed])


def arriving_bytes(site: OutriderSite, node: str, image: ServedImage) -> int:
    """How much of an image lies on a node that does not have all of it."""
    found = site.asked(node, "ls")["arriving"]
    assert isinstance(found, list)
    return max((int(each["arrived_bytes"]) for each in found if each["digest"] == image.digest), default=0)


def wait_arriving(site: OutriderSite, image: ServedImage) -> str:
    """Until bytes of an image that is held back are on some node; which."""
    found: list[str] = []

    def comes() -> bool:
        found[:] = [node for node in site.cluster.nodes if arriving_bytes(site, node, image)]
        return bool(found)

    site.cluster.wait_for(f"{image.name} to arrive", comes, logs=site.logs)
    return found[0]


def fill(site: OutriderSite, node: str) -> str:
    """A job that takes all of a node, until it is cancelled."""
    job = site.submit("#!/bin/sh\nsleep 600\n", "-t10", f"-w{node}", "--exclusive", "-Jfill")
    site.cluster.wait_for(f"{node} to be full", lambda: seen(site, job).state == "RUNNING", logs=site.logs)
    return job
