"""Jobs as `squeue --json` prints them, of 22.05 and of later versions, and what of them matters.

Names, comments and paths are the users' own text: nothing but the metadata is taken from them.
A job that cannot be understood is left out with a finding, so that one job never hides the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from cachemgr.machines.batch.steps.marks import HAS, HOLDER_NAME
from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobState
from outrider.rms.slurm.fields import BadField, amounts, needed, number, text, words
from outrider.rms.slurm.records import NOTHING, JobRecord, NodeWish, hint_in, record_carried, record_in

HELD_BEGIN_S = 180 * 86_400
"""A job of ours that may begin so long after the look is held by us."""
MOST_FINDINGS = 100
OVER = frozenset(
    {
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
        "OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED",
    }
)  # fmt: skip
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
ON_NODES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
BLOCKED = frozenset({"Dependency", "DependencyNeverSatisfied"})
_KEY = re.compile(r":(\d{1,10})")
ENDS_FIRST = ("afterany", "afterok", "afternotok", "aftercorr")
MOST_DEPENDENCY = 4096
_GPU = re.compile(r"(?:^|,)gres[:/]gpu(?::[A-Za-z][^:,=]*)?(?:[:=](\d{1,9}))?(?=,|$)")
_TASK_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """A job that has not ended, with what is needed to change it."""

    key: str
    state: JobState
    user: str
    uid: int
    account: str
    nodes_wanted: int
    most_nodes: int
    resources: Resources
    limit_s: int | None
    submitted_s: int
    nodes: tuple[str, ...]
    start_s: int | None
    reservation: str
    comment: str
    record: JobRecord
    hint: str
    """Metadata that the submit filter has noticed in its script; only of jobs that are not managed."""
    is_managed: bool
    is_held_by_us: bool
    wish: NodeWish
    """What its user asked for, also while we lead it elsewhere."""
    eligible_s: int
    partitions: tuple[str, ...]
    features: str
    array: str = ""
    """The array of which it is one task, or all that wait."""
    tasks: int = 1
    is_blocked: bool = False
    """Whether it waits for other jobs, as far as Slurm says."""
    waits_for: frozenset[str] = frozenset()
    """Jobs that have to end before: of a job that is held Slurm does not look whether they have."""
    is_batch: bool = False
    """Whether it has a script, as what can be requeued has."""
    has_run: bool = False
    """Whether it was sent back to the queue."""
    name: str = ""
    stands_for: str = ""
    """Of a holder job the job whose record names it."""
    payer: str = ""
    """Then that one's account."""

    def let_go(self, eligible_s: int, *, is_held: bool) -> SlurmJob:
        """As it is once it was released; with `is_held` its user, or an administrator, still holds it."""
        state = JobState.HELD if is_held else JobState.PENDING
        return replace(self, state=state, is_held_by_us=False, eligible_s=eligible_s)


def jobs_of_rows(
    rows: Iterable[object],
    now_s: int,
    read: Callable[[Mapping[str, object], int], SlurmJob | None] | None = None,
) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
    """The jobs that have not ended, of what was printed for each, and what could not be understood.

    `read` takes the place of `job_in`.
    """
    read = read or job_in
    found, findings = [], []
    for row in rows:
        if not isinstance(row, dict):
            findings.append("a job that is not an object is left out")
            continue
        try:
            job = read(row, now_s)
        except (BadField, TextError, ValueError) as error:
            findings.append(f"job {str(row.get('job_id'))[:20]} is left out: {error}")
            continue
        if job is not None:
            found.append(job)
    jobs = sorted(_gathered(found), key=lambda job: (job.submitted_s, job.key))
    return tuple(jobs), tuple(findings[:MOST_FINDINGS])


def _gathered(jobs: Iterable[SlurmJob]) -> Iterator[SlurmJob]:
    """An array's tasks that wait are one job, also when Slurm has parted some of them from the others:
    it does so while it tries to start them, and what it is told of the array holds for them, too."""
    arrays: dict[str, SlurmJob] = {}
    tasks: list[SlurmJob] = []
    for job in jobs:
        if job.array and job.state in (JobState.HELD, JobState.PENDING):
            if job.array == job.key:
                arrays[job.key] = job
            else:
                tasks.append(job)
        else:
            yield job
    for job in tasks:
        whole = arrays.get(job.array)
        if whole is None or whole.reservation != job.reservation:
            yield job
        else:
            arrays[job.array] = replace(whole, tasks=whole.tasks + job.tasks)
    yield from arrays.values()


def in_holders(jobs: tuple[SlurmJob, ...]) -> tuple[SlurmJob, ...]:
    """A job whose machine runs in a holder job is shown as running where that does, with what it has; the
    holder is there for its image alone. Which jobs are holders is in their jobs' records."""
    named = {
        key: job
        for job in jobs
        for key in (job.record.holder, job.record.next_holder)
        if key and key != job.key
    }
    if named:
        jobs = tuple(
            job
            if (of := named.get(job.key)) is None or of.uid != job.uid
            else replace(job, stands_for=of.key, payer=of.account)
            for job in jobs
        )
    holders = {job.key: job for job in jobs if job.name.startswith(HOLDER_NAME.format(HAS, ""))}
    found: dict[str, SlurmJob] = {}
    for job in jobs if holders else ():
        holder = holders.get(job.record.next_holder) or holders.get(job.record.holder)
        if (
            holder is None
            or holder.state is not JobState.RUNNING
            or (holder.uid, holder.name) != (job.uid, HOLDER_NAME.format(HAS, job.key))
            or job.state in (JobState.STARTING, JobState.RUNNING)
        ):
            found.setdefault(job.key, job)
            continue
        found[holder.key] = replace(holder, resources=Resources(()))
        found[job.key] = replace(
            job, state=JobState.RUNNING, nodes=holder.nodes, start_s=holder.start_s, limit_s=holder.limit_s,
            resources=holder.resources, is_held_by_us=False,
        )  # fmt: skip
    return tuple(found[job.key] for job in jobs) if holders else jobs


def job_in(row: Mapping[str, object], now_s: int) -> SlurmJob | None:
    """One job; None if it has ended."""
    states = frozenset(words(row, "job_state"))
    state = _state(states, text(row, "state_reason"))
    if state is None:
        return None
    comment, admin_comment = text(row, "comment"), text(row, "admin_comment")
    record = record_in(admin_comment) or record_carried(comment)
    known = record or NOTHING
    eligible_s, is_stopped = number(row, "eligible_time") or 0, number(row, "priority") == 0
    is_ours = False
    if state is JobState.PENDING:
        is_far = record is not None and eligible_s >= now_s + HELD_BEGIN_S
        is_ours = is_far or (is_stopped and known.is_held)
        if is_stopped and known.is_suspended:
            state, is_ours = JobState.SUSPENDED, False
        elif is_far or is_stopped:
            state = JobState.HELD
    is_on_nodes = state in (JobState.STARTING, JobState.RUNNING)
    nodes = tuple(sorted(expand(text(row, "nodes")))) if is_on_nodes and text(row, "nodes") else ()
    if is_on_nodes and not nodes:
        if "COMPLETING" not in states:
            raise BadField("field nodes is empty, and it runs")
        # Whether it is requeued or over is not said in 22.05 until it has been cleared away.
        state, is_on_nodes = JobState.PENDING, False
    start_s = number(row, "start_time") if is_on_nodes else None
    if is_sent_back(row) and start_s is not None:
        # Slurm shows the present: it would have begun again at each look.
        start_s = needed(row, "submit_time") if known.saved is None else known.saved.run_s
    count = max(1, number(row, "node_count") or 0)
    wanted = len(nodes) or dict(amounts(text(row, "tres_req_str"))).get("node") or count
    limit = number(row, "time_limit")
    return SlurmJob(
        key=str(needed(row, "job_id")),
        state=state,
        user=text(row, "user_name"),
        uid=needed(row, "user_id"),
        account=text(row, "account"),
        nodes_wanted=wanted,
        most_nodes=max(wanted, count, number(row, "max_nodes") or 0),
        resources=_resources(row, wanted, is_on_nodes=is_on_nodes),
        limit_s=None if limit is None else limit * 60,
        submitted_s=needed(row, "submit_time"),
        nodes=nodes,
        start_s=start_s,
        reservation=text(row, "resv_name"),
        comment=comment,
        record=known,
        hint="" if record is not None else hint_in(admin_comment),
        is_managed=record is not None,
        is_held_by_us=is_ours,
        wish=known.wish
        or NodeWish(required=text(row, "required_nodes"), excluded=text(row, "excluded_nodes")),
        eligible_s=eligible_s,
        partitions=tuple(filter(None, text(row, "partition").split(","))),
        features=text(row, "features"),
        array=str(number(row, "array_job_id") or ""),
        tasks=_tasks(text(row, "array_task_string")),
        is_blocked=text(row, "state_reason") in BLOCKED or (state is JobState.HELD and known.begin_s > now_s),
        waits_for=_waits_for(text(row, "dependency")),
        is_batch=row.get("batch_flag") in (True, 1),
        has_run=(number(row, "restart_cnt") or 0) > 0,
        name=text(row, "name"),
    )


def is_sent_back(row: Mapping[str, object]) -> bool:
    """Whether it may be that a job is being cleared away to start once more."""
    return "COMPLETING" in words(row, "job_state") and bool(number(row, "restart_cnt"))


def _waits_for(dependency: str) -> frozenset[str]:
    """The jobs that have to end before: afterok:17(unfulfilled),afterany:18(unfulfilled)."""
    parts = [part for part in dependency[:MOST_DEPENDENCY].split(",") if part.startswith(ENDS_FIRST)]
    return frozenset(key for part in parts for key in _KEY.findall(part))


def _state(states: frozenset[str], reason: str) -> JobState | None:
    """Where a job is; None if it has ended. One that is being cleared away still has its nodes."""
    if "COMPLETING" not in states and states & OVER:
        return None
    if "CONFIGURING" in states or ("RUNNING" in states and reason == "Prolog"):
        return JobState.STARTING
    if states & ON_NODES:
        return JobState.RUNNING
    if states & WAITING:
        return JobState.PENDING
    raise BadField(f"field job_state is {', '.join(sorted(states))[:80]!r}, which is not known")


def _resources(row: Mapping[str, object], nodes: int, *, is_on_nodes: bool) -> Resources:
    """What it takes of each node, rounded up."""
    taken = text(row, "tres_alloc_str") if is_on_nodes else ""
    total = dict(amounts(taken or text(row, "tres_req_str")))
    total.setdefault("cpu", number(row, "cpus") or 0)
    # Of a job that is being cleared away Slurm shows the nodes that are left, and all it had.
    nodes = total.get("node") or nodes
    gpus = total.get("gres/gpu") or _gpus(row, nodes)
    return Resources.from_mapping(
        {
            "cpus": math.ceil(total["cpu"] / nodes),
            # Where memory is not shared out, Slurm shows what was asked for and not what was given.
            "memory_mib": math.ceil(total.get("mem", 0) / (nodes << 20))
            or number(row, "memory_per_node")
            or 0,
            "gpus": math.ceil(gpus / nodes),
        }
    )


def _gpus(row: Mapping[str, object], nodes: int) -> int:
    """All gpus that were asked for, where the site does not count them among what it accounts for."""

    def asked(name: str) -> int:
        return sum(int(each[1] or 1) for each in _GPU.finditer(text(row, name)))

    tasks = max(number(row, "tasks") or 1, 1)
    return asked("tres_per_job") or asked("tres_per_node") * nodes or asked("tres_per_task") * tasks


def _tasks(text: str) -> int:
    """How many tasks of an array wait: `1-3,7%2` are four. Of what Slurm cut short, as far as it goes."""
    count = 0
    for part in text.partition("%")[0].split(","):
        found = _TASK_RANGE.fullmatch(part)
        if found is not None:
            low, high, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            count += max(0, high - low) // max(1, step) + 1
    return max(1, count)
