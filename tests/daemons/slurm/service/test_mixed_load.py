"""Reservations of all kinds and best effort in turn on a real Slurm, whose daemons and ours are killed."""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from testbed.clustersite import ServedImage
from testbed.site import OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons import mixed_load
from tests.daemons.mixed_faults import faults, job_faults
from tests.daemons.mixed_load import (
    JobWish,
    Promise,
    Record,
    Story,
    drawn,
    pace_of,
    play,
    stretched,
)
from tests.daemons.slurm.service.conftest import (
    JOBS,
    LINES,
    LINK_BYTES_PER_S,
    NODES,
    RATE_BITS_PER_S,
    TIMINGS,
    check_clean,
)
from tests.daemons.slurm.service.failing import MARK, STATE, kill_service, start_slurmctld
from tests.daemons.slurm.service.jobs import in_slurm
from tests.daemons.slurm.service.test_jobs_in_turn import queues
from tests.needs import need_slurm

COMPLETIONS = "/var/log/slurm/completions"
RECORDED = ("JobCompType=jobcomp/filetxt", f"JobCompLoc={COMPLETIONS}")
SCHEDULE = {"queues": ["main"], "backfilling": "easy"}
KINDS = ("fixed", "open", "recurring", "deadline", "preemptible", "immediate")
SETTLE_S = 30
# It forgets what has happened since it has written its state: hardly anything within this.
KILLED_WHEN_SAVED = """
sbatch --parsable --hold --job-name="$1" --comment="$2" >/dev/null <<END
#!/bin/sh
END
while ! grep -q "$2" "$3/job_state"; do sleep 0.01; done
kill -KILL "$(cat /run/slurm/slurmctld.pid)"
"""
# What slurmctld writes of a job that it gave nodes which do not know of it: it sends that back itself.
UNLAUNCHED = "NODE_FAIL"
# Nothing from the head reaches a node until slurmctld has given the job its nodes, and is dead.
LAUNCH_IS_LOST = f"""
nodes=$(getent hosts {" ".join(f"n{number}" for number in range(1, NODES + 1))} | cut -d' ' -f1)
for node in $nodes; do ip route add blackhole "$node/32"; done
while ! grep -q -E "(Allocate|Started) JobId=$4 " /var/log/slurm/slurmctld.log; do sleep 0.01; done
{KILLED_WHEN_SAVED}
for node in $nodes; do ip route del blackhole "$node/32"; done
"""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """Four nodes, whose jobs Outrider starts, with prices and a quota, and an account of what has ended."""
    need_slurm()
    failed_before = request.session.testsfailed
    with turns_site(os.environ.get("OUTRIDER_SLURM_VERSION") or None) as made:
        yield made
        if request.session.testsfailed == failed_before:
            check_clean(made)


@contextmanager
def turns_site(version: str | None) -> Iterator[OutriderSite]:
    """The site, installed."""
    with site_cluster(
        NODES, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=(*LINES, *RECORDED)
    ) as cluster:
        cluster.write(HEAD, mixed_load.POLICIES_FILE, mixed_load.POLICIES)
        made = OutriderSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={
                "timings": TIMINGS,
                "jobs": {**JOBS, "schedule": SCHEDULE},
                "policies": mixed_load.POLICIES_FILE,
            },
        )
        made.install()
        queues(made, "take-over")
        yield made


class SlurmLoad:
    """The load as Slurm is asked for it."""

    def __init__(self, site: OutriderSite) -> None:
        self.site = site

    def submit(self, wish: JobWish, image: ServedImage) -> str:
        lines = f"{image.lines}\n#OUTRIDER preemptible: requeue\n" if wish.is_preemptible else ""
        script = f"#!/bin/sh\n{lines}{mixed_load.job_script(wish, self.site.home())}"
        return self.site.submit(script, "-t1", "-n1", f"-c{wish.cpus}", "--output=/dev/null")

    def submit_inside(self, promise: Promise) -> str:
        script = f"#!/bin/sh\n{mixed_load.inside_script(promise, self.site.home())}"
        options = ("-t1", "-n1", f"--reservation={promise.name}", "--output=/dev/null")
        return self.site.submit(script, *options, user=promise.user)

    def reserved(self) -> set[str]:
        return set(in_slurm(self.site))

    def waiting(self) -> list[str]:
        return self.site.cluster.run(HEAD, ["squeue", "--all", "-h", "-o%A"]).stdout.split()

    def cancel(self, job: str) -> None:
        self.site.cluster.run(HEAD, ["scancel", job])

    def strike(self, what: str) -> None:
        if what in ("kill service", "kill both"):
            kill_service(self.site)
        if what in ("kill both", "restart controller"):
            self._kill_slurmctld()
        if what in ("start both", "restart controller"):
            start_slurmctld(self.site)
        if what in ("start service", "start both"):
            self.site.start_service()

    def records(self, jobs: Sequence[str]) -> dict[str, Record]:
        """What slurmctld wrote when jobs ended, each time."""
        lines = self.site.cluster.read(HEAD, COMPLETIONS).splitlines()
        found = [re.search(r"JobId=(\d+) .*JobState=(\w+)", line) for line in lines]
        states = Counter((match[1], match[2]) for match in found if match)
        return {
            job: Record(
                completed=states[job, "COMPLETED"],
                requeued=sum(
                    count
                    for (key, state), count in states.items()
                    if key == job and state not in ("COMPLETED", UNLAUNCHED)
                ),
                unlaunched=states[job, UNLAUNCHED],
            )
            for job in jobs
        }

    def _kill_slurmctld(self) -> None:
        words = [MARK, secrets.token_hex(8), STATE]
        self.site.cluster.run(HEAD, ["/bin/sh", "-c", KILLED_WHEN_SAVED, "sh", *words])
        self.site.cluster.kill_slurmctld()


def check_load(site: OutriderSite, *, seed: int, jobs: int, leases: int, span_s: float) -> None:
    batch, image = SlurmLoad(site), mixed_load.install(site)
    site.cluster.wait_idle(SETTLE_S)
    pace = pace_of(batch, image)
    wishes = drawn(seed, jobs=jobs, leases=leases, kinds=KINDS, span_s=span_s)

    story = play(batch, image, stretched(wishes, pace), pace)

    found = faults(batch, story, wishes)
    assert not found, "\n".join([*found, f"pace {pace:.1f}, {story.refused}", site.logs()])
    assert {each.kind for each in story.promises} == set(KINDS), story.refused


@pytest.mark.repeats("tests/simulation/live/test_live_leases.py::test_promises_of_all_kinds_are_kept")
def test_promises_are_kept_and_every_job_ends_once(site: OutriderSite) -> None:
    check_load(site, seed=1, jobs=18, leases=len(KINDS), span_s=45)


@pytest.mark.long
def test_hundreds_of_jobs_and_dozens_of_reservations(site: OutriderSite) -> None:
    check_load(site, seed=2, jobs=200, leases=50, span_s=600)


@pytest.mark.long
def test_job_whose_launch_is_lost_with_the_controller_has_not_been_preempted(site: OutriderSite) -> None:
    batch, image = SlurmLoad(site), mixed_load.install(site)
    site.cluster.wait_idle(SETTLE_S)
    wish = JobWish(at_s=0, number=0, cpus=1, work_s=2, is_preemptible=False)
    job = batch.submit(wish, image)
    words = [MARK, secrets.token_hex(8), STATE, job]
    site.cluster.run(HEAD, ["/bin/sh", "-c", LAUNCH_IS_LOST, "sh", *words])
    killed_s = mixed_load.CLOCK.now_s()
    site.cluster.kill_slurmctld()

    start_slurmctld(site)

    site.cluster.wait_for(f"job {job} to be over", lambda: not batch.waiting(), logs=site.logs)
    assert batch.records([job])[job] == Record(completed=1, requeued=0, unlaunched=1)
    story = Story(jobs={0: job}, outages=[(killed_s, mixed_load.CLOCK.now_s())])
    assert job_faults(batch, story, [wish]) == []
