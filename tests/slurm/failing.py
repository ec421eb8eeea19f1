"""What breaks on a site, and how it is looked at while it does."""

from __future__ import annotations

import json
import os

import pytest

from testbed.site import CACHEMGR, NODE_DAEMON, SERVICE, Image, OutriderSite
from testbed.slurm import HEAD, IMAGES, IMAGES_FOLDER, IMAGES_PORT, SERVER
from tests.slurm.jobs import seen

MB = 1_000_000
TOLD_S = 90
"""The line at a job changes every 20 s at most."""
SERVED = ["/usr/bin/python3", "-I", "-S", SERVER, IMAGES_FOLDER, str(IMAGES_PORT)]


long = pytest.mark.skipif(
    os.environ.get("OUTRIDER_SLURM_LONG") != "1", reason="the short run has its like: OUTRIDER_SLURM_LONG=1"
)


def stop_images(site: OutriderSite) -> None:
    site.cluster.kill(IMAGES, "images")


def start_images(site: OutriderSite) -> None:
    site.cluster.start(IMAGES, SERVED, name="images")


def kill_service(site: OutriderSite) -> None:
    site.cluster.kill(HEAD, SERVICE)


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
        lambda: words in site.outrider("show", job, check=False).stdout,
        timeout_s,
        lambda: f"{seen(site, job)}\n{site.outrider('show', job, check=False).stdout}\n{site.logs()}",
    )


def wait_released(site: OutriderSite, job: str) -> None:
    """Until a job may start as far as Outrider goes: it has its ticket, and other reasons to wait."""
    site.cluster.wait_for(
        f"job {job} to be released",
        lambda: "outrider-ticket=1." in seen(site, job).comment and seen(site, job).reason != "BeginTime",
        logs=lambda: f"{seen(site, job)}\n{site.logs()}",
    )


def wait_saved(site: OutriderSite, *images: Image) -> None:
    """Until slurmctld has written down the jobs that name these: what it has not it forgets when killed."""
    state = "/var/lib/slurm/slurmctld/job_state"

    def is_written(image: Image) -> bool:
        return site.cluster.run(HEAD, ["grep", "-q", image.digest, state], check=False).returncode == 0

    site.cluster.wait_for("jobs on slurmctld's disk", lambda: all(map(is_written, images)), logs=site.logs)


def arriving_bytes(site: OutriderSite, node: str, image: Image) -> int:
    """How much of an image lies on a node that does not have all of it."""
    found = asked(site, node, "ls")["arriving"]
    assert isinstance(found, list)
    return max((int(each["arrived_bytes"]) for each in found if each["digest"] == image.digest), default=0)


def wait_arriving(site: OutriderSite, image: Image) -> str:
    """Until bytes of an image are on some node; which."""
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


def asked(site: OutriderSite, node: str, *words: str) -> dict[str, object]:
    """What a node's daemon answers root."""
    done = site.cluster.run(node, [CACHEMGR, *words, "--json"])
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer
