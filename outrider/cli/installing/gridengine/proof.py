"""Tries hooks on one queue instance of their own, before any other queue has them.

What is wrong with a hook's line in Grid Engine shows when the first job starts, and then disables queue after
queue: a variable that is not known there, a path that is not on the node, a program that ends otherwise
than by 0, 99 or 100. The proof's queue is on one node, takes no job but the proof's, and goes again.
"""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cachemgr.base.clock import Clock
from outrider.cli.errors import InputError, OutputError
from outrider.cli.installing.common.running import ProgramRunner
from outrider.cli.installing.gridengine.carrying import Qconf
from outrider.cli.installing.gridengine.plan import COMPLEX, HOOKS, KEYS, SHEPHERD, SHEPHERD_KEY
from outrider.cli.installing.gridengine.site import GridSite, value, with_values
from outrider.rms.gridengine.mending import tree

if TYPE_CHECKING:
    from xml.etree import ElementTree

QUEUE = ENVIRONMENT = "outrider-proof"
WITHIN_S = 90
SESSIONS = 10
HEARD_S = 5
ENDED_S = 20
PAUSE_S = 0.5


class ProofFailed(OutputError):
    """The hooks do not work on the node where they were tried; no other queue has them."""


def prove(
    site: GridSite,
    node: str,
    user: str,
    runner: ProgramRunner,
    clock: Clock,
    *,
    hooks: Mapping[str, str] = HOOKS,
) -> None:
    """Has a user's job run through the hooks on one node. Raises ProofFailed with the reason."""
    qconf = Qconf(runner)
    with _queue(site, node, hooks, qconf, runner, clock):
        options = ["-q", QUEUE, "-l", f"{COMPLEX}=TRUE", "-pe", ENVIRONMENT, "1", "-N", QUEUE]
        command = ["qsub", "-terse", "-b", "y", "-o", "/dev/null", "-j", "y", *options, "/bin/true"]
        done = runner.run(["runuser", "-u", user, "--", *command])
        if not done.is_good:
            raise ProofFailed(f"no job can be submitted as {user}: {done.reason}")
        job = done.output.split()[-1]
        try:
            _watch(job, node, runner, clock)
        finally:
            _end(job, runner, clock)


def prove_sessions(
    site: GridSite,
    node: str,
    user: str,
    runner: ProgramRunner,
    *,
    clock: Clock,
    hooks: Mapping[str, str] = HOOKS,
) -> None:
    """Has ten interactive jobs run through the hooks on one node, one of them interrupted."""
    qconf = Qconf(runner)
    with _queue(site, node, hooks, qconf, runner, clock, slots=SESSIONS):
        options = ["-q", QUEUE, "-l", f"{COMPLEX}=TRUE", "-N", QUEUE, "-now", "n"]
        begin = ["runuser", "-u", user, "--"]
        session = [*begin, "timeout", "--kill-after=2", str(WITHIN_S), "qrsh", *options, "/bin/true"]
        broken = [*begin, "timeout", "--signal=INT", "--kill-after=2", "5", "qrsh", *options, "sleep", "60"]
        with ThreadPoolExecutor(SESSIONS) as pool:
            cut = pool.submit(runner.run, broken, WITHIN_S)
            begun = [pool.submit(runner.run, session, WITHIN_S + ENDED_S) for _ in range(SESSIONS - 1)]
            cut.result()
            while not all(each.done() for each in begun):
                _check_queue(node, runner)
                clock.sleep(PAUSE_S)
        _check_queue(node, runner)
        failed = [each.result().reason for each in begun if not each.result().is_good]
        _end_all(runner, clock)
        if failed:
            raise ProofFailed(
                f"{len(failed)} of {SESSIONS - 1} interactive jobs of {user} failed on {node}: {failed[0]}"
            )


def is_shielded(site: GridSite) -> bool:
    """Whether Grid Engine has been told of what keeps it from ending hooks of interactive jobs."""
    return value(site.configuration, SHEPHERD_KEY) == SHEPHERD


def heard_s(site: GridSite) -> int:
    """After how long every execd knows of a change: its next report, and some more."""
    parts = value(site.configuration, "load_report_time").split(":")
    found_s = 0
    for each in parts:
        found_s = found_s * 60 + (int(each) if each.isdigit() else 0)
    return found_s + HEARD_S


def user_for(site: GridSite, named: str | None) -> str:
    """Who submits the proof's job. Raises InputError if nobody can be guessed."""
    least = value(site.configuration, "min_uid")
    at_least = int(least) if least.isdigit() else 0
    if named is None and at_least > 0:
        raise InputError(
            f"Grid Engine takes no jobs of root's (min_uid {at_least}): name a user with --prove-as"
        )
    try:
        pwd.getpwnam(named or "root")
    except KeyError as error:
        raise InputError(f"there is no user {named}: name another with --prove-as") from error
    return named or "root"


@contextlib.contextmanager
def _queue(
    site: GridSite,
    node: str,
    hooks: Mapping[str, str],
    qconf: Qconf,
    runner: ProgramRunner,
    clock: Clock,
    *,
    slots: int = 1,
) -> Iterator[None]:
    _away(qconf, runner, clock)
    environment = {
        "pe_name": ENVIRONMENT, "slots": "1", "user_lists": "NONE", "xuser_lists": "NONE",
        "start_proc_args": hooks.get("pe-start", "NONE"), "stop_proc_args": "NONE", "allocation_rule": "1",
        "control_slaves": "FALSE", "job_is_first_task": "TRUE", "urgency_slots": "min",
        "accounting_summary": "FALSE", "qsort_args": "NONE",
    }  # fmt: skip
    values: dict[str, str | None] = {
        "qname": QUEUE, "hostlist": node, "slots": str(slots), "qtype": "BATCH INTERACTIVE",
        "pe_list": ENVIRONMENT, "subordinate_list": "NONE",
        "complex_values": f"{COMPLEX}=TRUE", "load_thresholds": "NONE", "rerun": "FALSE",
        **{key: hooks.get(part, "NONE") for part, key in KEYS.items()},
    }  # fmt: skip
    try:
        qconf.give("-Ap", with_values("", dict(environment)))
        qconf.give("-Aq", with_values(site.work, values))
        yield
    finally:
        _away(qconf, runner, clock)


def _away(qconf: Qconf, runner: ProgramRunner, clock: Clock) -> None:
    """Also what an earlier proof has left that was killed. A queue goes when its last job has ended."""
    until_s = clock.monotonic_s() + ENDED_S
    while qconf.shown("-sq", QUEUE):
        done = runner.run(["qconf", "-dq", QUEUE])
        if not done.is_good and clock.monotonic_s() > until_s:
            raise OutputError(f"the queue of the proof, {QUEUE}, cannot be deleted: {done.reason}")
        clock.sleep(PAUSE_S if not done.is_good else 0)
    if qconf.shown("-sp", ENVIRONMENT):
        qconf.do("-dp", ENVIRONMENT)


def _watch(job: str, node: str, runner: ProgramRunner, clock: Clock) -> None:
    until_s = clock.monotonic_s() + WITHIN_S
    while True:
        _check_queue(node, runner)
        state = _job_state(job, runner)
        if state is None:
            return
        if "E" in state:
            shown = runner.run(["qstat", "-j", job]).output.splitlines()
            why = [line.partition(":")[2].strip() for line in shown if line.startswith("error reason")]
            reasons = " ".join(why)
            raise ProofFailed(f"the hooks end a job on {node} that has nothing to do with us: {reasons}")
        if clock.monotonic_s() > until_s:
            raise ProofFailed(
                f"the proof's job {job} did not end on {node} within {WITHIN_S} s: "
                "see whether sge_execd runs there"
            )
        clock.sleep(PAUSE_S)


def _check_queue(node: str, runner: ProgramRunner) -> None:
    told = runner.run(["qstat", "-f", "-explain", "E", "-q", QUEUE])
    if "E" in _state(runner):
        lines = " ".join(line.strip() for line in told.output.splitlines() if "ERROR" in line.upper())
        raise ProofFailed(f"the hooks disable the queue on {node}: {lines or told.output}")


def _end_all(runner: ProgramRunner, clock: Clock) -> None:
    """What an interrupted session has left."""
    shown = _xml(runner, ["qstat", "-u", "*", "-q", QUEUE, "-xml"])
    for each in shown.iter("job_list"):
        if each.findtext("JB_name") == QUEUE:
            _end(each.findtext("JB_job_number") or "", runner, clock)


def _end(job: str, runner: ProgramRunner, clock: Clock) -> None:
    until_s = clock.monotonic_s() + ENDED_S
    while _job_state(job, runner) is not None:
        is_late = clock.monotonic_s() > until_s
        runner.run(["qdel", *(["-f"] if is_late else []), job])
        if is_late:
            return
        clock.sleep(PAUSE_S)


def _state(runner: ProgramRunner) -> str:
    shown = _xml(runner, ["qstat", "-f", "-q", QUEUE, "-xml"])
    return "".join(each.findtext("state") or "" for each in shown.iter("Queue-List"))


def _job_state(job: str, runner: ProgramRunner) -> str | None:
    """Nothing, once it is gone."""
    shown = _xml(runner, ["qstat", "-u", "*", "-xml"])
    for each in shown.iter("job_list"):
        if each.findtext("JB_job_number") == job:
            return each.findtext("state") or ""
    return None


def _xml(runner: ProgramRunner, argv: Sequence[str]) -> ElementTree.Element:
    done = runner.run(argv)
    if not done.is_good:
        raise OutputError(f"{argv[0]} gives no answer: {done.reason}")
    return tree(done.output)
