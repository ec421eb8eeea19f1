"""A real Slurm's harness: a private cluster for all tests, swept clean before each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.core.model import Resources
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import BatchSystem, JobState, RmsReservation, Submission
from outrider.rms.commands import Account, Output, run_process
from outrider.rms.slurm import SlurmCommands, SlurmHolders
from tests.contract.harness import Lags, Person
from tests.contract.slurm_cluster import CPUS, MEMORY_MIB, PATH, Cluster, cluster, missing

PEOPLE = (Person(user="games", uid=5), Person(user="daemon", uid=1))
"""Every Linux has these; they own nothing here."""
SWEPT_S = 60
# What the submit filter does with a comment, in short: it says nothing of when a job may start.
FILTER = r"""
local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return string.format('\\u%04x', c:byte()) end) .. '"'
end
function slurm_job_submit(job, partitions, uid)
  local text = (job.comment or ""):match("^outrider:(.*)$")
  if text then
    job.admin_comment = 'outrider: waits to be planned {"outrider":1,"metadata":' .. quoted(text) .. '}'
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
slurm.log_info("initialized")
return slurm.SUCCESS
"""


class LogOfTest:
    """A log that can be shown when a test fails."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(f"{event} {fields}")


class SlurmHarness:
    """Four nodes of a private Slurm."""

    def __init__(self, slurm: Cluster) -> None:
        self._slurm = slurm
        self._clock = SystemClock()
        self.log = LogOfTest()
        commands = SlurmCommands(self._run, configuration=str(slurm.configuration), path=PATH)
        self.system: BatchSystem = SlurmHolders(
            commands, clock=self._clock, log=self.log, account_of=self._account
        )
        self.nodes = slurm.nodes
        self.whole_node = Resources.of(cpus=CPUS, memory_mib=MEMORY_MIB)
        self.less_of_a_node = Resources.of(cpus=CPUS // 2, memory_mib=MEMORY_MIB // 2)
        self.people = PEOPLE
        self.unstarted_at_end = JobState.HELD
        self.reruns_after_failure = True
        self.machine = ""
        # Slurm sweeps every 30 s. What is asked for is seen within a second, on a busy machine later.
        self.lags = Lags(
            change_s=15,
            end_s=45,
            save_s=15,
            requeue_s=35,
            lead_s=3,
            delete_s=35,
            quiet_s=0,
            pace=6,
            patience_s=None if os.environ.get("OUTRIDER_TEST_LONG") else 15,
        )

    def now_s(self) -> int:
        return self._clock.now_s()

    def pass_time(self, seconds: int) -> None:
        self._clock.sleep(seconds)

    def pass_until_next_look(self) -> None:
        self._clock.sleep(0.4)

    def command(self, run_s: int) -> tuple[str, ...]:
        return ("sleep", str(run_s))

    def submit_as_user(self, submission: Submission, *, eligible: tuple[str, ...] = ()) -> str:
        amounts = submission.resources
        argv = ["sbatch", "--parsable", "--output=/dev/null", f"--nodes={submission.nodes_wanted}",
                "--ntasks-per-node=1", f"--cpus-per-task={amounts['cpus']}",
                f"--mem={amounts['memory_mib']}"]  # fmt: skip
        if submission.limit_s is not None:
            argv.append(f"--time={-(-submission.limit_s // 60)}")
        if submission.metadata is not None:
            argv.append(f"--comment=outrider:{submission.metadata}")
        if submission.reservation is not None:
            argv.append(f"--reservation={submission.reservation}")
        if eligible:
            others = sorted(set(self.nodes) - set(eligible))
            argv.append(f"--exclude={fold(others)}")
        script = f"#!/bin/sh\nexec {' '.join(submission.argv)}\n"
        return self._slurm.run(*argv, uid=submission.uid, text=script).strip()

    @contextmanager
    def starting_nothing(self) -> Iterator[None]:
        """The partition takes jobs and starts none: a busy machine would hold them too late."""
        self._slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
        try:
            yield
        finally:
            self._slurm.run("scontrol", "update", "PartitionName=main", "State=UP")

    def hold_as_user(self, job: str) -> None:
        uid = self._slurm.run("squeue", "-h", "-j", job, "-o", "%U")
        self._slurm.run("scontrol", "hold", job, uid=int(uid))

    def shown_to_user(self, job: str) -> str:
        return self._slurm.run("scontrol", "show", "job", job, uid=PEOPLE[1].uid)

    def ticket_on_nodes(self, job: str) -> str:
        """A prolog is given the job's comment."""
        rows = json.loads(self._slurm.run("squeue", "--json"))["jobs"]
        (comment,) = [str(row["comment"]) for row in rows if row["job_id"] == int(job)]
        last = comment.rpartition(" ")[2]
        return last.removeprefix("outrider-ticket=") if last.startswith("outrider-ticket=") else ""

    def reserve_as_administrator(self, wanted: RmsReservation) -> None:
        self._slurm.run(
            "scontrol", "create", "reservation", f"ReservationName={wanted.name}",
            f"StartTime=uts{wanted.start_s}", f"EndTime=uts{wanted.end_s}", f"Nodes={fold(wanted.nodes)}",
            f"Users={','.join(wanted.users)}",
        )  # fmt: skip

    def delete_as_administrator(self, reservation: str) -> None:
        """Slurm deletes none that a job refers to, be it one that waits: it has to come to its end."""
        try:
            self._slurm.run("scontrol", "delete", f"ReservationName={reservation}")
        except subprocess.CalledProcessError:
            self._end_reservation(reservation)

    def fail(self, node: str) -> None:
        """Its daemon is killed; that Slurm would notice only at the next ping is not waited for."""
        self._slurm.kill_node(node)
        self._slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=crashed")

    def drain(self, node: str) -> None:
        self._slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=drained")

    def repair(self, node: str) -> None:
        if not self._slurm.pids_of_node(node):
            self._slurm.start_node(node)
        self._slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def sweep(self) -> None:
        """No jobs, no reservations, all nodes up."""
        by_s = self._clock.monotonic_s() + SWEPT_S
        while True:
            jobs = self._slurm.run("squeue", "-h", "-a", "-o", "%F").split()
            for job in sorted(set(jobs)):
                self._slurm.run("scancel", job)
            names = [line.split()[0].partition("=")[2]
                     for line in self._slurm.run("scontrol", "-o", "show", "reservation").splitlines()
                     if line.startswith("ReservationName=")]  # fmt: skip
            for name in names:
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._slurm.run("scontrol", "delete", f"ReservationName={name}")
            states = self._slurm.run("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
            odd = [line.split()[0] for line in states if line and not line.endswith(" idle")]
            if not jobs and not names and not odd:
                return
            if not jobs:
                for node in odd:
                    with contextlib.suppress(subprocess.CalledProcessError):
                        self.repair(node)
            if self._clock.monotonic_s() > by_s:
                pytest.fail(f"not swept within {SWEPT_S} s: {jobs} {names} {states}\n{self._slurm.logs()}")
            self._clock.sleep(0.1)

    def _end_reservation(self, reservation: str) -> None:
        """On drained nodes, lest the jobs that wait for it start in what is left of it."""
        for node in self.nodes:
            self.drain(node)
        name = f"ReservationName={reservation}"
        self._slurm.run("scontrol", "update", name, "StartTime=now", "EndTime=now+1")
        by_s = self._clock.monotonic_s() + SWEPT_S
        while reservation in self._slurm.run("scontrol", "-o", "show", "reservation"):
            if self._clock.monotonic_s() > by_s:
                pytest.fail(f"reservation {reservation} does not end\n{self._slurm.logs()}")
            self._clock.sleep(0.2)
        for node in self.nodes:
            self.repair(node)

    def _run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        """A command of Slurm's, in the system that the cluster is of."""
        prefix = self._slurm.entering(None if account is None else account.uid)
        return run_process(
            [*prefix, *argv],
            environment=environment,
            timeout_s=timeout_s,
            text=text,
            account=None if prefix else account,
        )

    def _account(self, user: str, uid: int) -> Account:
        home = self._slurm.folder / f"home-{user}"
        if not home.is_dir():
            home.mkdir()
            os.chown(home, uid, uid)
        return Account(user=user, uid=uid, gid=uid, home=str(home))


@contextmanager
def private_slurm(root: str = "") -> Iterator[Cluster]:
    """The cluster of a test run. Skips where there is no Slurm, but fails where the environment has CI."""
    lacking = missing() if not root or Path(root, "usr/sbin/slurmctld").exists() else [f"Slurm in {root}"]
    if lacking or os.geteuid() != 0:
        words = f"no {', '.join(lacking)} here" if lacking else "only root can begin a private Slurm"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    with cluster(more="JobSubmitPlugins=lua\n", files={"job_submit.lua": FILTER}, root=root) as made:
        yield made
