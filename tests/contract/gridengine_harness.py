"""Grid Engine's harness: a real qmaster and real execution hosts, in a faster time.

One cluster serves all tests of a process, since starting one takes longer than most tests;
between two of them it is emptied. What Grid Engine cannot keep is said in `CANNOT`.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import pytest

from cachemgr.base.clock import SystemClock
from outrider.core.model import Resources
from outrider.rms.base import BatchSystem, JobState, RmsReservation, Submission
from outrider.rms.commands import PATH, Account, Output, Runner
from outrider.rms.gridengine import (
    GridEngine,
    GridEngineCommands,
    GridEngineSettings,
    context,
    mending,
    parsing,
    submitting,
)
from outrider.rms.gridengine.drmaa_runner import DrmaaRunner, start_process
from tests.contract.gridengine_cluster import (
    DURATION_OFFSET_S,
    NODES,
    PEOPLE,
    SLOTS,
    VARIABLES,
    Cluster,
    ClusterError,
    missing,
)
from tests.contract.harness import ONE_LOOK_S, Lags, Person

FACTOR = 20
LIBRARY = "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0"
WHY_NO_SESSION: list[str] = []
SETTINGS = GridEngineSettings(
    account="outrider",
    reservation_queue="ar.q",
    parts_queue="parts.q",
    environments=((SLOTS, "two"), (1, "one")),
    checkpoint="save",
    duration_offset_s=DURATION_OFFSET_S,
)
# The clauses that no use of Grid Engine's own means can keep, each with its reason.
CANNOT = {
    "test_reservation_is_prolonged_while_its_job_runs": (
        "an advance reservation cannot be altered, and its job's limit was set when it started: "
        "reserve refuses and everything stays as it was"
    ),
}


class HostRunner:
    """Runs commands on the cluster's head, as the service's account or as a user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        user = "outrider" if account is None else account.user
        status, output, error = self._cluster.attempt(argv, user=user, timeout_s=timeout_s)
        return Output(status, output.encode(), error)


class Patient:
    """A runner that deletes no job that is just being started.

    A shepherd that is told to kill before the job's first process has a group of its own kills nothing. Its
    node repeats that with each load report, but a shepherd obeys none that comes within ten seconds of the
    one before. On a site reports are further apart (40 s, unless it says otherwise); here they are not, since
    shepherds are not hurried, and the job would stay for good.
    """

    def __init__(self, cluster: Cluster, runner: Runner) -> None:
        self._cluster, self._runner = cluster, runner

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        if argv[0] == "qdel":
            self._cluster.wait_for("a first process", lambda: self._has_begun(argv[-1]))
        return self._runner(argv, environment=environment, timeout_s=timeout_s, text=text, account=account)

    def _has_begun(self, job: str) -> bool:
        """Or is not on a node."""
        traces = self._cluster.disk.glob(f"spool/execd/*/active_jobs/{job}.*/trace")
        return all(b"starting son(job" in trace.read_bytes().rpartition(b"execvlp(")[0] for trace in traces)


def gridengine_of(cluster: Cluster, runner: Runner | None = None) -> GridEngine:
    """The adapter over a cluster's commands."""
    patient = Patient(cluster, runner or HostRunner(cluster))
    commands = GridEngineCommands(patient, variables={})
    return GridEngine(SETTINGS, commands, clock=cluster, account_of=account_of)


def drmaa_of(cluster: Cluster) -> DrmaaRunner:
    """A runner whose sessions are on the cluster's head."""

    def start(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return start_process([*cluster.entering(), *argv], {**environment, **VARIABLES, "PATH": PATH})

    return DrmaaRunner(
        HostRunner(cluster), LIBRARY, clock=SystemClock(), told=WHY_NO_SESSION.append, start=start
    )


def account_of(user: str, uid: int) -> Account:
    """One of the cluster's people, whom the machine itself does not know."""
    return Account(user=user, uid=uid, gid=uid)


class GridEngineHarness:
    """A cluster in which nothing runs and nothing is reserved."""

    def __init__(self, cluster: Cluster, runner: Runner | None = None) -> None:
        self._cluster = cluster
        self._has_failed = self._was_waiting = False
        self.runner = HostRunner(cluster)
        self.system: BatchSystem = gridengine_of(cluster, runner)
        self.nodes = NODES
        self.whole_node = Resources.of(cpus=SLOTS)
        self.less_of_a_node = Resources.of(cpus=1)
        self.people = (Person(user="alice", uid=PEOPLE["alice"]), Person(user="bob", uid=PEOPLE["bob"]))
        self.unstarted_at_end = JobState.ENDED
        self.reruns_after_failure = True
        self.machine = ""
        # In the faster time a machine that is busy elsewhere for a second is late by twenty.
        self.lags = Lags(change_s=200, end_s=600, save_s=600, requeue_s=600, lead_s=60, quiet_s=15)

    def now_s(self) -> int:
        return self._cluster.now_s()

    def pass_time(self, seconds: int) -> None:
        if self._has_failed and not self._was_waiting:
            # A job that lost its node waits for a moment only: a look comes before it is started again.
            self._was_waiting = self._as("root", ["qstat", "-s", "p", "-u", "*"]) != ""
            self._cluster.stand_still(seconds)
        else:
            self._cluster.pass_time(seconds)

    def pass_until_next_look(self) -> None:
        self.pass_time(ONE_LOOK_S)

    def command(self, run_s: int) -> tuple[str, ...]:
        return ("sleep", str(run_s / FACTOR))

    def submit_as_user(self, submission: Submission, *, eligible: tuple[str, ...] = ()) -> str:
        bound = ["-q", ",".join(f"all.q@{node}" for node in eligible)] if eligible else []
        argv = submitting.arguments(submission, SETTINGS, submission.limit_s, [])
        return self._as(submission.user, [*argv[:1], *bound, *argv[1:]]).strip()

    def starting_nothing(self) -> AbstractContextManager[None]:
        """Jobs start only when a test lets time pass."""
        return nullcontext()

    def hold_as_user(self, job: str) -> None:
        self._as("alice", ["qhold", "-h", "u", job])

    def shown_to_user(self, job: str) -> str:
        return self._as("alice", ["qstat", "-j", job])

    def ticket_on_nodes(self, job: str) -> str:
        found = parsing.details(self._as("outrider", ["qstat", "-xml", "-j", job]))
        return context.decoded(found[job].context.get(context.TICKET, ""))

    def reserve_as_administrator(self, wanted: RmsReservation) -> None:
        queues = ",".join(f"ar.q@{node}" for node in wanted.nodes)
        span = ["-a", parsing.utc_text(wanted.start_s), "-e", parsing.utc_text(wanted.end_s)]
        what = ["-q", queues, "-l", "outrider_reservation=TRUE", "-pe", "two", str(SLOTS * len(wanted.nodes))]
        self._as("root", ["qrsub", "-N", wanted.name, *span, *what, "-u", ",".join(wanted.users)])

    def delete_as_administrator(self, reservation: str) -> None:
        printed = mending.tree(self._as("root", ["qrstat", "-xml", "-u", "*"]))
        for each in printed.iterfind("ar_summary"):
            if each.findtext("name") == reservation:
                self._as("root", ["qrdel", each.findtext("id") or ""])

    def fail(self, node: str) -> None:
        self._has_failed = True
        # On a busy machine a node was perhaps not heard of in time: that would have been the one loss that a
        # qmaster answers.
        self._cluster.restart_qmaster()
        self._cluster.crash(node)

    def drain(self, node: str) -> None:
        self._cluster.touched.add(node)
        self._as("root", ["qmod", "-d", f"*@{node}"])

    def repair(self, node: str) -> None:
        self._has_failed = self._was_waiting = False
        self._as("root", ["qmod", "-e", f"*@{node}"], check=False)
        if "sge_execd" not in self._cluster.run(["ps", "ax"], host=node):
            self._cluster.start_execd(node)

    def empty(self) -> None:
        """Takes away what a test has left; with -f also what a dead node would have to confirm."""
        if self._cluster.has_lost_nodes:
            # A qmaster gives jobs back that lost their node once in its life, whatever node is lost later.
            self._cluster.restart_qmaster()
        for node in sorted(self._cluster.touched):
            self.repair(node)
        self._cluster.touched.clear()
        if self._as("root", ["qstat", "-u", "*"]):
            self._as("root", ["qdel", "-u", "*"], check=False)
            with suppress(ClusterError):
                self._cluster.wait_for(
                    "the jobs' ends", lambda: not self._as("root", ["qstat", "-u", "*"]), 3
                )
            self._as("root", ["qdel", "-f", "-u", "*"], check=False)
        # After the jobs: one that still has a job of its own stays forever, once that was forced away.
        for number in parsing.advance_numbers(self._as("root", ["qrstat", "-xml", "-u", "*"])):
            self._as("root", ["qrdel", number], check=False)
        self._as("root", ["qmod", "-c", "*"], check=False)
        # What tells whose they are has gone with the reservations.
        self._as("root", ["qmod", "-e", "*"], check=False)
        self._cluster.wait_for("an empty cluster", self._is_empty)

    def _is_empty(self) -> bool:
        shown = self._as("root", ["qstat", "-u", "*"]) + self._as("root", ["qrstat", "-u", "*"])
        return not shown and self._cluster.is_whole()

    def _as(self, user: str, argv: Sequence[str], *, check: bool = True) -> str:
        return self._cluster.run(argv, user=user, check=check)


@functools.cache
def the_cluster() -> Cluster:
    """The cluster of this process, which ends with it."""
    cluster = Cluster(FACTOR).__enter__()
    atexit.register(cluster.down)
    return cluster


def cannot_run() -> None:
    """Skips where Grid Engine is not installed; there is no such place in CI."""
    absent = missing()
    if absent:
        if os.environ.get("CI"):
            pytest.fail(
                f"Grid Engine's contract needs {absent}: apt install gridengine-master gridengine-exec"
            )
        pytest.skip(f"there is no {absent}")


@functools.cache
def the_drmaa() -> DrmaaRunner:
    """The sessions of this process, which end with it, before the cluster does."""
    runner = drmaa_of(the_cluster())
    atexit.register(runner.close)
    return runner


def end_cluster() -> None:
    """Nothing needs it for now: its hurried daemons take a twentieth of a processor to do nothing."""
    if the_drmaa.cache_info().currsize:
        the_drmaa().close()
        the_drmaa.cache_clear()
    if the_cluster.cache_info().currsize:
        the_cluster().down()
        the_cluster.cache_clear()


@contextmanager
def gridengine_drmaa() -> Iterator[GridEngineHarness]:
    """Submission and control by DRMAA, the rest by commands. Skips where the library is not."""
    cannot_run()
    if not the_drmaa().has_session({}):
        absent = "; ".join(WHY_NO_SESSION) or "DRMAA had no session a moment ago"
        if os.environ.get("CI"):
            pytest.fail(absent)
        pytest.skip(absent)
    if the_cluster().has_lost_nodes:
        # The qmaster is about to be restarted, and sessions do not outlive that.
        the_drmaa().close()
    harness = GridEngineHarness(the_cluster(), the_drmaa())
    harness.empty()
    yield harness


@contextmanager
def gridengine() -> Iterator[GridEngineHarness]:
    cannot_run()
    harness = GridEngineHarness(the_cluster())
    harness.empty()
    yield harness


HARNESSES = {"gridengine": gridengine, "gridengine-drmaa": gridengine_drmaa}
