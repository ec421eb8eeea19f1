"""Decisions in the form in which they are answered: what was planned, or what would work instead."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

from outrider.core.model import Resources, Transfer, Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.refusal import Refusal
from outrider.metadata.notation.hostlists import fold
from outrider.metadata.notation.times import format_instant
from outrider.service.answers.decision import Decision
from outrider.service.answers.events import OpenWindow
from outrider.service.answers.images import ImageView
from outrider.service.answers.transfers import PlannedTransfer
from outrider.service.desk.state.documents import Document, Record
from outrider.service.desk.state.node_list import is_part
from outrider.service.desk.state.site import Live, Site


def image_view(document: Document, *, is_shown: bool = True) -> ImageView:
    """An image; of a private one others see the size alone."""
    is_shown = is_shown or not document.is_private
    return ImageView(
        uri=document.uri if is_shown else None,
        digest=document.digest if is_shown else None,
        size_bytes=document.size_bytes,
        is_private=document.is_private,
    )


def decision(
    site: Site, document: Document, workspace: Workspace, admission: ReservationPlan | Rejected, zone: tzinfo
) -> Decision:
    """What was decided about a workspace, booked under its name if it was."""
    if isinstance(admission, Rejected):
        return _refused(document, workspace, admission, zone)
    return _accepted(site, document, workspace, admission)


def all_slots(site: Site, nodes: Iterable[str], resources: Resources | None = None) -> dict[str, Any]:
    """The parallel environment and the slots of it with which a job has all of these nodes, or these
    resources of each if that is a part."""
    if not site.settings.environments:
        return {}
    timeline = site.book.timeline
    numbers = [timeline.number_of[name] for name in nodes if name in timeline.number_of]
    slots = [timeline.nodes[number].capacity["cpus"] for number in numbers]
    if resources is not None and is_part(resources):
        slots = [resources["cpus"]] * len(numbers)
    environment = dict(site.settings.environments).get(max(slots, default=0), "")
    return {"environment": environment, "slots": sum(slots)} if environment and sum(slots) > 1 else {}


def extended(site: Site, live: Live, end_s: int, spare: frozenset[str] = frozenset()) -> Decision:
    """A reservation that has begun gets another end, or does without nodes."""
    nodes = [name for name in live.nodes if name not in spare]
    return Decision(
        result="accepted",
        name=live.name,
        workspace=live.document.workspace,
        start_s=live.reservation.start_s,
        end_s=end_s,
        nodes=fold(nodes),
        node_count=len(nodes),
        image=image_view(live.document),
        reason="it gives nodes back" if spare else "its end is moved",
        **all_slots(site, nodes, live.reservation.workspace.resources),
    )


def grown(site: Site, live: Live, more: AbstractSet[str]) -> Decision:
    """A reservation that has begun gets nodes that have its image already."""
    decision = extended(site, live, live.reservation.end_s)
    nodes = sorted({*live.nodes, *more})
    return replace(
        decision,
        nodes=fold(nodes),
        node_count=len(nodes),
        nodes_with_image=fold(sorted(more)) if live.document.digest else "",
        reason=f"it gets {fold(sorted(more))}, where its image is already",
        **all_slots(site, nodes, live.reservation.workspace.resources),
    )


def _accepted(site: Site, document: Document, workspace: Workspace, plan: ReservationPlan) -> Decision:
    names = site.book.timeline.nodes
    transfers = planned_transfers(site, plan)
    held = sorted({names[node].name for node, _ in plan.joined} | {names[node].name for node in plan.revived})
    coming = {life.transfer: life.ready_s for _, life in plan.joined if life.transfer is not None}
    joined_s = list(coming.values())
    expected_s = _expected_ends(site, coming)
    ready_s = max([*(each.ready_s for each in transfers), *expected_s, site.now_s])
    latest_s = max([*(each.latest_begin_s + each.duration_s for each in transfers), *joined_s, site.now_s])
    return Decision(
        result="accepted",
        name=workspace.name,
        workspace=document.workspace,
        start_s=plan.start_s,
        end_s=plan.end_s,
        nodes=fold(names[chosen.node].name for chosen in plan.fits),
        node_count=len(plan.fits),
        image=image_view(document),
        transfers=transfers,
        nodes_with_image=fold(held),
        saved_bytes=plan.saved_bytes,
        ready_s=ready_s,
        latest_ready_s=latest_s,
        slack_s=plan.start_s - ready_s,
        window=window_of(document),
        secret="" if document.open is None else document.open.secret,
        **all_slots(site, [names[chosen.node].name for chosen in plan.fits], plan.workspace.resources),
    )


def window_of(document: Document, kept: Record | None = None) -> OpenWindow | None:
    """When the event of an open reservation may come, or has come."""
    terms = document.open
    if terms is None:
        return None
    return OpenWindow(
        from_s=terms.from_s,
        until_s=terms.until_s,
        within_s=terms.within_s,
        duration_s=terms.duration_s,
        begins=tuple(str(each) for each in terms.begins),
        ends=tuple(str(each) for each in terms.ends),
        triggered_s=None if kept is None else kept.triggered_s,
        event="" if kept is None else kept.event,
    )


def reason_of(refusal: Refusal, zone: tzinfo = UTC) -> str:
    """Why something is refused, with its times as they are in that zone."""
    return refusal.reason(lambda at_s: format_instant(at_s, zone=zone))


def _refused(document: Document, workspace: Workspace, rejected: Rejected, zone: tzinfo) -> Decision:
    refusal, earliest_s = rejected.refusal, rejected.earliest_start_s
    return Decision(
        result="refused",
        name="",
        workspace=document.workspace,
        start_s=workspace.start_s,
        end_s=None if workspace.start_s is None else workspace.start_s + workspace.duration_s,
        nodes="",
        node_count=workspace.instances,
        image=image_view(document),
        cause=refusal.cause.value,
        reason=reason_of(refusal, zone),
        earliest_start_s=earliest_s,
        remedies=refusal.remedies(
            instances=workspace.instances,
            can_finish_later=workspace.finish_by_s is not None and earliest_s is not None,
        ),
    )


def planned_transfers(site: Site, plan: ReservationPlan) -> tuple[PlannedTransfer, ...]:
    """The transfers of a plan, each after the one before it."""
    insertion = plan.insertion
    if insertion is None:
        return ()
    pairs = list(zip(insertion.transfers, insertion.latest, strict=True))
    begins = site.book.link.begins(pairs, site.now_s)
    return tuple(
        planned(transfer, begin_s, latest_s)
        for (transfer, latest_s), begin_s in zip(pairs, begins, strict=True)
    )


def _expected_ends(site: Site, coming: dict[int, int]) -> list[int]:
    """When transfers that others wait for, too, are expected to end; by when they must is given."""
    if not coming:
        return []
    link = site.book.link
    found: list[int] = []
    for number, by_s in coming.items():
        moving = site.moving.get(number)
        (transfer,) = link.waiting([number]) or (None,)
        if moving is not None:
            found.append(min(by_s, max(site.now_s, moving.begun_s + moving.transfer.duration_s)))
        elif transfer is not None:
            (begin_s,) = link.begins([(transfer, link.latest_start(number))], site.now_s)
            found.append(begin_s + transfer.duration_s)
        else:
            found.append(by_s)
    return found


def planned(transfer: Transfer, begin_s: int, latest_s: int) -> PlannedTransfer:
    return PlannedTransfer(
        number=transfer.number,
        nodes=fold(transfer.nodes),
        size_bytes=transfer.image.size_bytes,
        duration_s=transfer.duration_s,
        begin_s=begin_s,
        latest_begin_s=latest_s,
        deadline_s=0 if transfer.deadline_s is None else transfer.deadline_s,
    )
