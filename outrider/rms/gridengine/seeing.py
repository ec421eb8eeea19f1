"""One look at Grid Engine: what several commands print, put together. No command is run here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cachemgr.machines.batch.steps.marks import HAS, HOLDER_NAME
from outrider.core.model import Resources
from outrider.rms.base import NOTHING, JobState, NodeState, RmsJob, RmsNode, RmsReservation
from outrider.rms.gridengine import context
from outrider.rms.gridengine.parsing import Advance, Detail, GridTask, QueueInstance, duration_s
from outrider.rms.gridengine.settings import GridEngineSettings

GUARD = "outrider_guard_"
"""How the names of reservations begin that keep others off the nodes of one, in the work queue."""
CLOSED = "outrider_closed_"
"""How the names of those begin that tell which hosts the service has closed to other jobs."""
LIMIT = "OUTRIDER_LIMIT"
"""The limit of a job that is bound to a shorter reservation, whose end is its limit there."""
ON_HOSTS = ("hostname", "h")
QUEUE_PATTERN = re.compile(r"[A-Za-z0-9_.@*?|!&()\[\]-]+(,[A-Za-z0-9_.@*?|!&()\[\]-]+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """What of a job's requests is its user's own: queues and requests, without what we added."""

    queues: tuple[str, ...]
    requests: tuple[tuple[str, str], ...]
    limit_s: int | None


def nodes(
    instances: Iterable[QueueInstance],
    settings: GridEngineSettings,
    closed: Collection[str] = (),
) -> tuple[RmsNode, ...]:
    """The hosts of the work queue; what is closed for a moment is not drained."""
    names = (settings.work_queue, *settings.reserved_queues)
    states: dict[str, str] = {}
    slots: dict[str, int] = {}
    memory: dict[str, int] = {}
    for each in instances:
        if each.queue in names:
            is_ours = each.queue == settings.work_queue and each.host in closed
            state = each.state.replace("d", "") if is_ours else each.state
            states[each.host] = states.get(each.host, "") + state
        if each.queue == settings.work_queue:
            slots[each.host], memory[each.host] = each.slots, each.memory_bytes
    return tuple(
        RmsNode(
            name=host,
            capacity=Resources.of(cpus=slots[host]),
            state=_node_state(states[host]),
            memory_bytes=memory[host],
        )
        for host in sorted(slots)
    )


def _node_state(letters: str) -> NodeState:
    if "u" in letters:
        return NodeState.DOWN
    return NodeState.DRAINED if set(letters) & set("dDE") else NodeState.UP


def reservation(found: Advance, settings: GridEngineSettings) -> RmsReservation:
    """An advance reservation as it was asked for."""
    is_ours = found.owner == settings.account
    start_s = found.start_s
    padding_s = settings.duration_offset_s if is_ours else 0
    parts = [number for name, number in found.slots if name.partition("@")[0] == settings.parts_queue]
    return RmsReservation(
        name=found.name or f"ar-{found.number}",
        nodes=tuple(name.partition("@")[2] for name, _ in found.slots),
        start_s=start_s,
        end_s=max(start_s + 1, found.end_s - padding_s),
        users=found.users,
        is_ours=is_ours,
        size=Resources.of(cpus=max(parts)) if parts else NOTHING,
        key=str(found.number),
    )


def own_wishes(job: Detail, settings: GridEngineSettings) -> Waiting:
    """What a job's user asked for, while we lead or bind it elsewhere."""
    kept = context.decoded(job.context.get(context.QUEUES, ""))
    queues = job.queues
    if kept:
        queues = tuple(kept.split(",")) if QUEUE_PATTERN.fullmatch(kept) else ("*",)
    if queues == ("*",):
        queues = ()
    requests = tuple((name, text) for name, text in job.requests if name != settings.reservation_complex)
    limits = [duration_s(text) for name, text in requests if name == "h_rt"]
    limit = job.context.get(LIMIT, "")
    if not limits and limit.isascii() and limit.isdecimal() and len(limit) < 12:
        limits = [int(limit)]
    return Waiting(queues=queues, requests=requests, limit_s=limits[0] if limits else None)


def restricts(wishes: Waiting) -> bool:
    """Whether a job may not run everywhere, as far as its own requests say."""
    return bool(wishes.queues) or any(name in ON_HOSTS for name, _ in wishes.requests)


def jobs(
    found: Mapping[str, Detail],
    rows: Iterable[GridTask],
    held: set[str],
    reservations: Mapping[int, str],
    eligible: Mapping[str, tuple[str, ...]],
    settings: GridEngineSettings,
    hosts: Sequence[RmsNode] = (),
) -> tuple[RmsJob, ...]:
    """The jobs of a look, an array's waiting tasks as one. `hosts`: those of the work queue."""
    seen: dict[str, RmsJob] = {}
    for row in rows:
        detail = found.get(row.number)
        if detail is None:
            continue
        job = _job(detail, row, row.number in held, reservations, settings)
        machine = context.saved_machine(detail)
        # Its machine is there and nowhere else.
        wished = eligible.get(row.number, ())
        job = replace(job, eligible=wished if machine is None else (machine.node,))
        if job.can_save:
            job = _with_places(job, detail, hosts, wished)
        before = seen.get(job.key)
        if before is not None:
            kept = before if before.state is JobState.PENDING else job
            has_failed = before.has_failed or job.has_failed
            job = replace(kept, tasks=before.tasks + job.tasks, has_failed=has_failed)
        seen[job.key] = job
    _in_holders(seen, found, eligible, hosts)
    return tuple(sorted(seen.values(), key=lambda job: (job.submitted_s, job.key)))


def _in_holders(
    seen: dict[str, RmsJob],
    found: Mapping[str, Detail],
    eligible: Mapping[str, tuple[str, ...]],
    hosts: Sequence[RmsNode],
) -> None:
    """A job whose machine runs in a holder job is shown as running where that does, with what it has; the
    holder is there for its image alone. Which jobs are holders is in their jobs' contexts."""
    for key, detail in found.items():
        job = seen.get(key)
        named = [detail.context.get(word, "") for word in (context.NEXT_HOLDER, context.HOLDER)]
        if job is None or not any(named):
            continue
        holders = [each for name in named if (each := holder_of(detail, name, seen, found)) is not None]
        for each in holders:
            seen[each.key] = replace(each, stands_for=key, payer=job.account)
        has = next((each for each in holders if found[each.key].name == HOLDER_NAME.format(HAS, key)), None)
        if has is None or has.state is not JobState.RUNNING or job.nodes:
            continue
        left = context.holds(found[has.key])
        limit_s = None if left is None or not left[1] else left[1]
        seen[has.key] = replace(seen[has.key], resources=Resources(()))
        wished = eligible.get(key, ())
        moved = replace(
            job, state=JobState.RUNNING, nodes=has.nodes, start_s=has.start_s, limit_s=limit_s,
            resources=has.resources, is_held_by_us=False, eligible=wished, queue=has.queue,
        )  # fmt: skip
        seen[key] = _with_places(moved, detail, hosts, wished)


def holder_of(
    job: Detail, key: str, seen: Mapping[str, RmsJob], found: Mapping[str, Detail]
) -> RmsJob | None:
    """The holder job of that number, if it is one of this job's and its user's."""
    holder, detail = seen.get(key), found.get(key)
    if holder is None or detail is None or detail.uid != job.uid:
        return None
    meant = context.holds(detail)
    return holder if meant is not None and meant[0] == job.number else None


def _job(
    detail: Detail,
    row: GridTask,
    is_held: bool,
    reservations: Mapping[int, str],
    settings: GridEngineSettings,
) -> RmsJob:
    state = _state(row, is_held and context.SAVED in detail.context)
    is_ours = is_held or ("h" in row.state and context.HELD in detail.context)
    hosts = tuple(sorted({name.partition("@")[2] for name in row.queues}))
    is_placed = bool(hosts)
    slots_a_node = {name: slots for slots, name in settings.environments}.get(detail.environment or "")
    wanted = len(hosts) or -(-detail.slots // (slots_a_node or detail.slots))
    raw = detail.context.get(context.METADATA)
    return RmsJob(
        key=f"{row.number}.{row.task}" if is_placed and row.task else row.number,
        user=detail.user,
        uid=detail.uid,
        state=state,
        nodes_wanted=wanted,
        resources=Resources.of(cpus=slots_a_node or -(-detail.slots // wanted)),
        limit_s=own_wishes(detail, settings).limit_s,
        submitted_s=detail.submitted_s,
        nodes=hosts,
        start_s=max(row.start_s or 0, detail.submitted_s) if is_placed else None,
        metadata=None if raw is None else context.decoded(raw),
        reservation=reservations.get(detail.reservation),
        account=detail.account,
        is_held_by_us=is_ours and state is JobState.HELD,
        has_failed="E" in row.state,
        tag=context.decoded(detail.context.get(context.TAG, "")),
        can_requeue=detail.may_rerun and not row.task,
        can_save=context.runs_in_machine(detail) and not row.task,
        machine_bytes=context.machine_bytes(detail),
        tasks=1 if is_placed else count(row.task),
        queue=_queue(detail, row, settings),
        option=context.option(detail),
    )


def _with_places(job: RmsJob, detail: Detail, hosts: Sequence[RmsNode], wished: tuple[str, ...]) -> RmsJob:
    """With where its machine is while it waits, and where else it could go on. In a reservation it stays."""
    machine, names = context.saved_machine(detail), frozenset(host.name for host in hosts)
    # Its user could have written another name.
    saved_on = machine.nodes if machine is not None and not job.nodes and machine.node in names else ()
    here = job.nodes or saved_on
    allowed = (frozenset(wished) or names) - set(here)
    others = [
        host.name for host in hosts if host.name in allowed and host.capacity["cpus"] >= job.resources["cpus"]
    ]
    is_bound = bool(detail.reservation)
    return replace(job, saved_on=saved_on, elsewhere=tuple(others) if here and not is_bound else ())


def _queue(detail: Detail, row: GridTask, settings: GridEngineSettings) -> str:
    """The queue where a job runs; of one that waits, what its user asks for, or where all others run."""
    if row.queues:
        return row.queues[0].partition("@")[0]
    wished = own_wishes(detail, settings).queues
    return wished[0].partition("@")[0] if wished else settings.work_queue


def _state(row: GridTask, is_saved: bool) -> JobState:
    if row.queues:
        return JobState.STARTING if "t" in row.state else JobState.RUNNING
    if is_saved:
        return JobState.SUSPENDED
    return JobState.HELD if set(row.state) & set("hE") else JobState.PENDING


def count(ranges: str) -> int:
    """How many tasks `1-9:2,12` names; one, if nothing is named."""
    total = 0
    for each in filter(None, ranges.split(",")):
        span, _, step = each.partition(":")
        first, _, last = span.partition("-")
        total += (int(last or first) - int(first)) // max(1, int(step or 1)) + 1
    return max(1, total)
