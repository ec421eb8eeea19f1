"""Leases of most kinds and best effort in turn on a real Grid Engine, whose daemons and ours are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import SERVICE, ServedImage
from testbed.commands import CommandFailed
from testbed.gridengine import COMMON
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons import mixed_load
from tests.daemons.gridengine.service.conftest import JOBS, LINK_BYTES_PER_S, NODES, RATE_BITS_PER_S, TIMINGS
from tests.daemons.gridengine.service.jobs import advances
from tests.daemons.gridengine.service.test_jobs_in_turn import queues
from tests.daemons.mixed_faults import faults
from tests.daemons.mixed_load import (
    JobWish,
    Promise,
    Record,
    TooLate,
    drawn,
    pace_of,
    play,
    stretched,
)

SCHEDULE = {"queues": ["all.q"], "backfilling": "easy"}
KINDS = ("fixed", "open", "recurring", "deadline", "preemptible", "immediate")
LIMIT_S, INSIDE_S, LASTS_S = 40, 8, (20, 25)
TRIES, TOO_LATE = 5, "exceeds the end time of the advance reservation"
# Of accounting(5).
JOB_NUMBER, FAILED, EXIT_STATUS = 5, 11, 12


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    """Four nodes, whose jobs Outrider starts, with prices and a quota."""
    lack = missing()
    if lack is not None:
        pytest.skip(lack)
    with turns_site() as made:
        yield made


@contextmanager
def turns_site() -> Iterator[GridEngineSite]:
    """The site, installed."""
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        cluster.write(HEAD, mixed_load.POLICIES_FILE, mixed_load.POLICIES)
        made = GridEngineSite(
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


class GridEngineLoad:
    """The load as Grid Engine is asked for it."""

    def __init__(self, site: GridEngineSite) -> None:
        self.site = site

    def submit(self, wish: JobWish, image: ServedImage) -> str:
        named = f"OUTRIDER=image={image.uri};digest={image.digest};preemptible=requeue"
        options = ["-ac", named] if wish.is_preemptible else []
        if wish.cpus > 1:
            options += ["-pe", f"each{wish.cpus}", str(wish.cpus)]
        return self._submit(mixed_load.job_script(wish, self.site.home()), "-l", f"h_rt={LIMIT_S}", *options)

    def submit_inside(self, promise: Promise) -> str:
        script = mixed_load.inside_script(promise, self.site.home())
        asked = ("-l", "outrider_reservation=TRUE", "-l", f"h_rt={INSIDE_S}", "-pe", "each4", "4")
        for tries_left in reversed(range(TRIES)):
            # The number of one that waits for its event is another one every few seconds.
            number = advances(self.site)[promise.name]
            try:
                return self._submit(script, "-ar", number, *asked, user=promise.user)
            except CommandFailed as error:
                if TOO_LATE in str(error):
                    raise TooLate from error
                if not tries_left:
                    raise
        raise AssertionError("no try is left")

    def reserved(self) -> set[str]:
        return set(advances(self.site))

    def waiting(self) -> list[str]:
        shown = self.site.cluster.run(HEAD, ["qstat", "-u", "*"]).stdout
        return [line.split()[0] for line in shown.splitlines()[2:]]

    def cancel(self, job: str) -> None:
        self.site.cluster.run(HEAD, ["qdel", job], check=False)

    def strike(self, what: str) -> None:
        cluster = self.site.cluster
        if what in ("kill service", "kill both"):
            cluster.kill(HEAD, SERVICE)
        if what in ("kill both", "restart controller"):
            cluster.kill_qmaster()
        if what in ("start both", "restart controller"):
            cluster.start_qmaster()
            cluster.restart_execds()
        if what in ("start service", "start both"):
            self.site.start_service()

    def records(self, jobs: Sequence[str]) -> dict[str, Record]:
        """What the qmaster wrote when jobs ended, each time: a job that was sent back has failed."""
        lines = self.site.cluster.read(HEAD, f"{COMMON}/accounting").splitlines()
        fields = [line.split(":") for line in lines if not line.startswith("#")]
        ends = Counter((each[JOB_NUMBER], (each[FAILED], each[EXIT_STATUS]) == ("0", "0")) for each in fields)
        return {job: Record(completed=ends[job, True], requeued=ends[job, False]) for job in jobs}

    def _submit(self, script: str, *options: str, user: str = "ada") -> str:
        return self.site.submit(f"#!/bin/sh\n{script}", "-o", "/dev/null", "-j", "y", *options, user=user)


def check_load(site: GridEngineSite, *, seed: int, jobs: int, leases: int, span_s: float) -> None:
    batch, image = GridEngineLoad(site), mixed_load.install(site)
    pace = pace_of(batch, image)
    wishes = drawn(seed, jobs=jobs, leases=leases, kinds=KINDS, span_s=span_s, lasts_s=LASTS_S)

    story = play(batch, image, stretched(wishes, pace), pace)

    found = faults(batch, story, wishes)
    assert not found, "\n".join([*found, f"pace {pace:.1f}, {story.refused}", site.logs()])
    assert {each.kind for each in story.promises} == set(KINDS), story.refused


@pytest.mark.long
def test_promises_are_kept_and_every_job_ends_once(site: GridEngineSite) -> None:
    check_load(site, seed=1, jobs=18, leases=len(KINDS), span_s=45)


@pytest.mark.long
def test_hundreds_of_jobs_and_dozens_of_reservations(site: GridEngineSite) -> None:
    check_load(site, seed=2, jobs=200, leases=50, span_s=600)
