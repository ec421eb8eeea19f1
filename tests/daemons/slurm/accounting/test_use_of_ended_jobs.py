"""What jobs that are over had, as the service is told it, is what a real sacct charges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cachemgr.base.clock import SystemClock
from outrider.rms.base import Refused, Unavailable
from outrider.rms.commands import Account, Output
from outrider.rms.slurm import SlurmCommands, SlurmHolders
from tests.daemons.slurm.accounting.conftest import SOON_S
from tests.daemons.slurm.filter.slurm_site import Site


class Silent:
    def warning(self, event: str, **fields: object) -> None:
        raise AssertionError(f"{event} {fields}")


def holders(slurm: Site, *, has_forgotten: bool = False) -> SlurmHolders:
    """The service's side; with a slurmctld that has forgotten all jobs, if so."""

    def run(
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        if has_forgotten and argv[0] == "squeue":
            return Output(1, b"", "slurm_load_jobs error: Invalid job id specified")
        answer = slurm.run(*argv, uid=0)
        return Output(answer.code, answer.printed.encode(), answer.said)

    return SlurmHolders(
        SlurmCommands(run),
        clock=SystemClock(),
        log=Silent(),
        account_of=lambda user, uid: Account(user=user, uid=uid, gid=uid),
    )


def charged(slurm: Site, jobs: Sequence[str]) -> dict[str, int]:
    """By job, the CPU-seconds that sacct has of it, once it knows that all are over."""
    argv = ("sacct", "-nPX", "-a", "-S", "2020-01-01", "-o", "JobIDRaw,End,CPUTimeRAW")
    by_s = slurm.clock.monotonic_s() + SOON_S
    while True:
        rows = [line.split("|") for line in slurm.run(*argv, uid=0).printed.splitlines()]
        found = {job: int(seconds) for job, end, seconds in rows if job in jobs and end != "Unknown"}
        if len(found) == len(jobs):
            return found
        assert slurm.clock.monotonic_s() < by_s, f"{rows}\n{slurm.logs()}"
        slurm.clock.sleep(0.2)


def test_what_ended_jobs_had_is_what_the_accounting_charges(slurm: Site) -> None:
    ended = slurm.submit("#!/bin/sh\nsleep 2\n", "-t1", "-n2").job
    failed = slurm.submit("#!/bin/sh\nsleep 3; exit 3\n", "-t1", "-n1").job
    never = slurm.submit("#!/bin/sh\n", "--hold").job
    killed = slurm.submit("#!/bin/sh\nsleep 600\n", "-t20", "-n1").job
    slurm.until("RUNNING", "squeue", "-h", f"-j{killed}", "-o%T")
    with pytest.raises(Unavailable):
        holders(slurm).use_of(killed)
    slurm.clock.sleep(2)
    slurm.run("scancel", killed, never, uid=0)
    jobs = (ended, failed, killed)
    wanted = charged(slurm, jobs)
    told = {each: holders(slurm).use_of(each) for each in jobs}
    not_begun = holders(slurm).use_of(never)
    later = {each: holders(slurm, has_forgotten=True).use_of(each) for each in jobs}

    assert {each: use.cpus * (use.end_s - use.start_s) for each, use in told.items()} == wanted
    assert {each: use.cpus * (use.end_s - use.start_s) for each, use in later.items()} == wanted
    assert all(seconds >= 2 for seconds in wanted.values()), wanted
    # What has never begun is not in the accounting.
    assert not_begun.end_s == not_begun.start_s
    assert told[ended] == later[ended]
    with pytest.raises(Refused, match="nor in the site's accounting"):
        holders(slurm).use_of("999999")
