"""What is to be done to the batch system: values in the store until each has been carried out."""

from __future__ import annotations

import json
from typing import Any

from outrider.core.model import Reservation, Resources
from outrider.rms.base import BatchSystem, JobUse, RmsReservation
from outrider.service.desk.batch.job_effects import carry_out_for_job, job_of
from outrider.service.desk.state.node_list import is_part, parts
from outrider.service.desk.state.site import Live
from outrider.service.ports import Sign
from outrider.store.records import Effect

RESERVE = "reserve"
UNRESERVE = "unreserve"
PARK = "park"
PARKED_AHEAD_S = 86_400


def reserve_effect(live: Live, now_s: int, not_before_s: int = 0) -> Effect:
    """Let the batch system have the reservation as it is now. One that waits for its event has its nodes
    already, and starts there `not_before_s`."""
    reservation = live.reservation
    payload = {
        "version": 1,
        "nodes": list(reservation.nodes),
        "start_s": max(reservation.start_s, not_before_s),
        "end_s": reservation.end_s,
        "users": [live.record.owner.user],
        **_size(reservation),
    }
    return _effect(RESERVE, live, payload, now_s)


def park_effect(live: Live, before: Reservation, start_s: int, now_s: int) -> Effect:
    """Let the batch system have it on its old nodes from `start_s` on, when nobody else has anything, until
    what follows says where it is to be: two that change places would each be refused for the other."""
    payload = {
        "version": 1,
        "nodes": list(before.nodes),
        "start_s": start_s,
        "end_s": start_s + before.end_s - before.start_s,
        "users": [live.record.owner.user],
        **_size(before),
    }
    return _effect(PARK, live, payload, now_s)


def _size(reservation: Reservation) -> dict[str, object]:
    """What it has of each node, if that is a part."""
    resources = reservation.workspace.resources
    return {"size": dict(parts(resources).amounts)} if is_part(resources) else {}


def unreserve_effect(live: Live, now_s: int) -> Effect:
    """Let the batch system not have the reservation any more."""
    return _effect(UNRESERVE, live, {"version": 1}, now_s)


def orphan_effect(name: str, now_s: int) -> Effect:
    """Let the batch system drop one of ours that is over or was never promised."""
    return Effect(
        identity=f"orphan {name} {now_s}",
        kind=UNRESERVE,
        subject=name,
        payload='{"version":1}',
        created_s=now_s,
        due_s=now_s,
    )


def carry_out(effect: Effect, rms: BatchSystem, sign: Sign | None = None) -> JobUse | None:
    """Do it; what was found out by it. Raises what the batch system raises. Without `sign` jobs carry no
    tickets."""
    job = job_of(effect)
    if job is not None:
        return carry_out_for_job(effect, job, rms, sign)
    if effect.kind == UNRESERVE:
        rms.unreserve(effect.subject)
        return None
    if effect.kind not in (RESERVE, PARK):
        raise ValueError(f"effect {effect.identity} is of kind {effect.kind}, which is not known")
    payload: dict[str, Any] = json.loads(effect.payload)
    rms.reserve(
        RmsReservation(
            name=effect.subject,
            nodes=tuple(payload["nodes"]),
            start_s=payload["start_s"],
            end_s=payload["end_s"],
            users=tuple(payload["users"]),
            size=Resources.from_mapping(payload.get("size", {})),
        )
    )
    return None


def _effect(kind: str, live: Live, payload: dict[str, object], now_s: int) -> Effect:
    return Effect(
        # Each change of a reservation is an effect of its own, and so is the same once more, later.
        identity=f"{kind} {live.name} {live.record.number} {live.record.version} {now_s}",
        kind=kind,
        subject=live.name,
        payload=json.dumps(payload, separators=(",", ":")),
        created_s=now_s,
        due_s=now_s,
    )
