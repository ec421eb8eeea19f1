"""What is to be done to jobs in the batch system: effects like those of reservations, by job.

They are values in the store until carried out; but what a killed service wanted of a job is worth
nothing to the next, which looks first and decides anew. That a job is to yield is another matter: those
effects have a subject of their own, and the next service goes on with them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from outrider.core.model import Resources
from outrider.rms.base import NOTHING, BatchSystem, JobUse, Landing, Refused
from outrider.service.ports import Sign
from outrider.store.records import Effect

HOLD = "hold"
RELEASE = "release"
BIND = "bind"
TICKET = "ticket"
RESIZE = "resize"
KINDS = frozenset({HOLD, RELEASE, BIND, TICKET, RESIZE})
SIGNAL = "signal"
REQUEUE = "requeue"
SAVE = "save"
SUSPEND, RESUME, MIGRATE = "suspend", "resume", "migrate"
USE = "use"
NO_TICKET = "none"
"""What a job carries that waits for its ticket."""
_SUBJECT = "job "
_YIELDING = "yield "
_MACHINE = "machine "
_HOLDER = "holder "


@dataclass(frozen=True, kw_only=True, slots=True)
class TicketFields:
    """What a job's ticket says. `job` is - for whatever is of its array."""

    job: str
    uid: int
    digest: str
    expires_s: int


def subject_of(job: str) -> str:
    """Under which name a job's effects wait: no reservation has a blank in its name."""
    return f"{_SUBJECT}{job}"


@dataclass(frozen=True, kw_only=True, slots=True)
class YieldFields:
    """What is to be known of a job's order to yield: which run of it is meant, to what, and how."""

    job: str
    run_s: int
    """Since when the run goes on."""
    reservation: str
    start_s: int
    """The reservation's."""
    signal: str = ""
    requeue_s: int = 0
    """When the job is requeued; 0 before it is signalled."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderFields:
    """A holder job: for which job's machine it is, and who is to pay for that."""

    holder: str
    job: str
    uid: int
    user: str
    account: str
    submitted_s: int


def yielding_of(job: str) -> str:
    """Under which name wait the effects by which a job is made to yield."""
    return f"{_YIELDING}{job}"


def is_of_yielding(subject: str) -> bool:
    return subject.startswith(_YIELDING)


def is_of_machine(subject: str) -> bool:
    """Whether it is about a machine that somebody wants suspended, or to go on, or about its holder."""
    return subject.startswith((_MACHINE, _HOLDER))


def job_of(effect: Effect) -> str | None:
    """The job that an effect is about; None if it is about a reservation."""
    for prefix in (_SUBJECT, _YIELDING, _MACHINE, _HOLDER):
        if effect.subject.startswith(prefix):
            return effect.subject.removeprefix(prefix)
    return None


def is_of_job(subject: str) -> bool:
    return subject.startswith(_SUBJECT)


def hold_effect(job: str, reason: str, now_s: int, *, has_image: bool = True) -> Effect:
    """Let a job wait. One without an image needs no ticket when it is let go."""
    payload: dict[str, object] = {"version": 1, "reason": reason}
    if not has_image:
        payload["image"] = False
    return _effect(HOLD, job, payload, now_s)


def release_effect(job: str, nodes: Sequence[str], ticket: TicketFields | None, now_s: int) -> Effect:
    """Let a job start on these nodes, with a ticket for its image, if it has one; without nodes wherever it
    may."""
    payload = {
        "version": 1,
        "nodes": list(nodes),
        "ticket": None if ticket is None else asdict(ticket),
    }
    return _effect(RELEASE, job, payload, now_s)


def bind_effect(
    job: str, reservation: str, ticket: TicketFields, now_s: int, limit_s: int | None = None
) -> Effect:
    """Let a job run in a reservation of its user's; for so long at most, if that is said."""
    payload = {"version": 1, "reservation": reservation, "ticket": asdict(ticket)}
    if limit_s is not None:
        payload["limit_s"] = limit_s
    return _effect(BIND, job, payload, now_s)


def resize_effect(
    job: str, nodes: int, limit_s: int, now_s: int, *, each: Resources = NOTHING, option: int = 0
) -> Effect:
    """Let a job that waits be held, and want so many nodes for so long, with as much on each."""
    payload: dict[str, object] = {"version": 1, "nodes": nodes, "limit_s": limit_s}
    if each.amounts:
        payload["each"] = dict(each.amounts)
    if option:
        payload["option"] = option
    return _effect(RESIZE, job, payload, now_s)


def ticket_effect(job: str, ticket: TicketFields, now_s: int) -> Effect:
    """Let a job carry its ticket."""
    return _effect(TICKET, job, {"version": 1, "ticket": asdict(ticket)}, now_s)


def signal_effect(fields: YieldFields, now_s: int) -> Effect:
    """Let a job know that it will be requeued."""
    return _yield_effect(SIGNAL, fields, now_s, now_s)


def save_effect(fields: YieldFields, now_s: int) -> Effect:
    """Let a job save its machine and go by itself."""
    return _yield_effect(SAVE, fields, now_s, now_s)


def requeue_effect(fields: YieldFields, now_s: int) -> Effect:
    """Let a job be requeued when its time has come."""
    return _yield_effect(REQUEUE, fields, now_s, max(now_s, fields.requeue_s))


def suspend_effect(
    job: str, run_s: int, reason: str, now_s: int, *, live: Mapping[str, object] | None = None
) -> Effect:
    """Let a job save its machine and wait until somebody wants it to go on. With `live` it goes to another
    node without that, if it can."""
    payload: dict[str, object] = {"version": 1, "run_s": run_s, "reason": reason}
    return _machine_effect(SUSPEND, job, payload | ({"live": dict(live)} if live else {}), now_s)


def resume_effect(job: str, now_s: int) -> Effect:
    """Let it go on."""
    return _machine_effect(RESUME, job, {"version": 1}, now_s)


def migrate_effect(job: str, fields: Mapping[str, object], now_s: int, number: int = 0) -> Effect:
    """Bring its saved machine to another node. `number`: of several such steps of one move."""
    return _machine_effect(MIGRATE, job, {"version": 1, "move": dict(fields)}, now_s, number)


def use_effect(holder: HolderFields, now_s: int) -> Effect:
    """Find out what a holder job had that is over."""
    return Effect(
        identity=f"{USE} holder {holder.holder} {holder.submitted_s}",
        kind=USE,
        subject=f"{_HOLDER}{holder.holder}",
        payload=json.dumps({"version": 1} | asdict(holder), separators=(",", ":")),
        created_s=now_s,
        due_s=now_s,
    )


def holder_fields(effect: Effect) -> HolderFields:
    """Whose it was."""
    payload = json.loads(effect.payload)
    return HolderFields(**{name: payload[name] for name in HolderFields.__slots__})


def is_move(effect: Effect) -> bool:
    """Whether nodes are asked for it, and not only the batch system."""
    return effect.kind == MIGRATE


def moved_by(effect: Effect) -> dict[str, Any]:
    """What is moved, and to where."""
    found: dict[str, Any] = json.loads(effect.payload)["move"]
    # A service of an earlier version wrote one node of each.
    for name in ("source", "target"):
        if name in found:
            found[f"{name}s"] = [found.pop(name)]
    return found


def machine_of(job: str) -> str:
    """Under which name these wait."""
    return f"{_MACHINE}{job}"


def yield_fields(effect: Effect) -> YieldFields:
    """What such an effect says."""
    payload = json.loads(effect.payload)
    return YieldFields(**{name: payload[name] for name in YieldFields.__slots__})


def carry_out_for_job(effect: Effect, job: str, rms: BatchSystem, sign: Sign | None) -> JobUse | None:
    """Do it, or find out what a holder job had. Raises what the batch system raises."""
    if effect.kind == USE:
        return rms.use_of(job)
    _carry_out(effect, job, rms, sign)
    return None


def _carry_out(effect: Effect, job: str, rms: BatchSystem, sign: Sign | None) -> None:
    """A job has its ticket before it may start."""
    if effect.kind in (SIGNAL, SAVE, REQUEUE):
        fields = yield_fields(effect)
        if effect.kind == SIGNAL:
            rms.signal(job, fields.signal, fields.run_s)
        elif effect.kind == SAVE:
            rms.save(job, fields.run_s, fields.reason)
        else:
            rms.requeue(job, fields.run_s, fields.reason)
        return
    payload: dict[str, Any] = json.loads(effect.payload)
    ticket = payload.get("ticket")
    if effect.kind == SUSPEND:
        live = payload.get("live")
        if live and rms.land(Landing(job=job, start_s=payload["run_s"], reason=payload["reason"], **live)):
            return
        rms.save(job, payload["run_s"], payload["reason"], is_kept=True)
        return
    if effect.kind == RESUME:
        rms.resume(job)
        return
    if effect.kind in (HOLD, RESIZE):
        rms.hold(job, payload.get("reason", "its size is being changed"))
        if sign is not None and payload.get("image", True):
            # Whoever lets it go all the same finds no ticket of an earlier release. (A comment without
            # room for these words has none either.)
            with suppress(Refused):
                rms.ticket(job, NO_TICKET)
        if effect.kind == RESIZE:
            each = Resources.from_mapping(payload.get("each", {}))
            rms.resize(job, payload["nodes"], payload["limit_s"], each, payload.get("option", 0))
        return
    if effect.kind not in KINDS:
        raise ValueError(f"effect {effect.identity} is of kind {effect.kind}, which is not known")
    signed = ""
    if sign is not None and ticket is not None:
        signed = sign(ticket["job"], ticket["uid"], ticket["digest"], ticket["expires_s"])
    if effect.kind == BIND:
        rms.bind(job, payload["reservation"], payload.get("limit_s"))
        rms.release(job, ticket=signed)
    elif effect.kind == RELEASE:
        rms.release(job, tuple(payload["nodes"]), signed)
    elif signed:
        rms.ticket(job, signed)


def _effect(kind: str, job: str, payload: dict[str, object], now_s: int) -> Effect:
    return _wanted(kind, f"job {job}", subject_of(job), payload, now_s)


def _yield_effect(kind: str, fields: YieldFields, now_s: int, due_s: int) -> Effect:
    what = f"{fields.job} {fields.run_s} {fields.reservation}"
    return _wanted(kind, what, yielding_of(fields.job), {"version": 1} | asdict(fields), now_s, due_s)


def _machine_effect(kind: str, job: str, payload: dict[str, object], now_s: int, number: int = 0) -> Effect:
    what = f"machine {job}{f' {number}' if number else ''}"
    return _wanted(kind, what, machine_of(job), payload, now_s)


def _wanted(
    kind: str, what: str, subject: str, payload: dict[str, object], now_s: int, due_s: int | None = None
) -> Effect:
    """What is wanted once more, later, or otherwise is an effect of its own; the same at once is the same."""
    text = json.dumps(payload, separators=(",", ":"))
    return Effect(
        identity=f"{kind} {what} {now_s} {zlib.crc32(text.encode()):08x}",
        kind=kind,
        subject=subject,
        payload=text,
        created_s=now_s,
        due_s=now_s if due_s is None else due_s,
    )
