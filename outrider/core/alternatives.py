"""What would be accepted in the place of a reservation that is refused.

Each alternative changes one or two terms of the request, and is asked about as a request of its own: what is
not accepted is not named, nor what would not be any more after a delay, if only because its image could not
be there in time. The search is bounded, so it may name fewer nodes, or a shorter time, than the most that
would be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan

MOST_ALTERNATIVES = 5
MOST_TRIES = 6
"""So many requests are asked about for each kind of alternative: each takes the time of a decision."""
LEAST_SHARE = 4
"""What is offered has at least such a part (1 / LEAST_SHARE) of the duration that was asked for."""
MINUTE_S = 60


class AlternativeKind(Enum):
    """In what an alternative differs from the request."""

    LATER = "later"
    FEWER_NODES = "fewer-nodes"
    SHORTER = "shorter"
    FEWER_NODES_LATER = "fewer-nodes-later"
    SHORTER_WITH_FEWER = "shorter-with-fewer-nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """Other terms, and the plan with which they would be accepted now."""

    kind: AlternativeKind
    workspace: Workspace
    plan: ReservationPlan


Ask = Callable[[Workspace, bool], ReservationPlan | Rejected]
"""What a workspace would be answered now, with nothing changed; and whether to tell the earliest start, which
takes much longer than a plain no."""


def alternatives(
    workspace: Workspace,
    rejected: Rejected,
    ask: Ask,
    now_s: int,
    delay_s: int = 0,
    lengths: Sequence[int] | None = None,
) -> tuple[Alternative, ...]:
    """What would be accepted instead, in the order of the kinds, without two of the same terms.

    Each would still be in time if it were asked for `delay_s` later. `lengths` says for how long there is
    room for one instance from the request's start on, for two, and so on, if that is known: what has no room
    is not asked about.
    """

    def ask_for_later(asked: Workspace, tells_earliest: bool) -> ReservationPlan | Rejected:
        answer = ask(asked, tells_earliest)
        if isinstance(answer, ReservationPlan) and not _can_wait(answer, now_s + delay_s):
            return Rejected(refusal=rejected.refusal)
        return answer

    found: list[Alternative] = []
    known: set[tuple[int | None, int, int]] = set()
    for each in _all(workspace, rejected, ask_for_later, delay_s, lengths):
        terms = (each.plan.start_s, each.workspace.instances, each.workspace.duration_s)
        if terms not in known and len(found) < MOST_ALTERNATIVES:
            known.add(terms)
            found.append(each)
    return tuple(found)


def at(workspace: Workspace, start_s: int) -> Workspace:
    """The same from exactly this instant on."""
    return replace(workspace, start_s=start_s, finish_by_s=None, is_immediate=False, ready_within_s=None)


def _can_wait(plan: ReservationPlan, until_s: int) -> bool:
    """Whether neither its start nor the latest start of one of its transfers is over by then."""
    latest = () if plan.insertion is None else plan.insertion.latest
    return min((plan.start_s, *latest)) >= until_s


def _all(
    workspace: Workspace, rejected: Rejected, ask: Ask, delay_s: int, lengths: Sequence[int] | None
) -> Iterator[Alternative]:
    later_s = rejected.earliest_start_s
    if later_s is not None:
        yield from _at_or_after(AlternativeKind.LATER, workspace, later_s, delay_s, ask)
    fewer = _fewer_nodes(workspace, rejected, ask)
    if fewer is not None:
        yield fewer
    shorter = _shorter(AlternativeKind.SHORTER, workspace, ask, lengths)
    if shorter is not None:
        yield shorter
    half = (workspace.instances + 1) // 2
    if half == workspace.instances:
        return
    smaller = replace(workspace, instances=half)
    if fewer is None:
        answer = ask(smaller, True)
        sooner_s = answer.earliest_start_s if isinstance(answer, Rejected) else None
        if sooner_s is not None and (later_s is None or sooner_s < later_s):
            yield from _at_or_after(AlternativeKind.FEWER_NODES_LATER, smaller, sooner_s, delay_s, ask)
        if shorter is None:
            both = _shorter(AlternativeKind.SHORTER_WITH_FEWER, smaller, ask, lengths)
            if both is not None:
                yield both


def _at_or_after(
    kind: AlternativeKind, workspace: Workspace, start_s: int, delay_s: int, ask: Ask
) -> Iterator[Alternative]:
    """From an earliest start on, or so much later, when that is late for its image."""
    for begin_s in dict.fromkeys((start_s, start_s + delay_s)):
        found = next(_asked(kind, at(workspace, begin_s), ask), None)
        if found is not None:
            yield found
            return


def _asked(kind: AlternativeKind, workspace: Workspace, ask: Ask) -> Iterator[Alternative]:
    answer = ask(workspace, False)
    if isinstance(answer, ReservationPlan):
        yield Alternative(kind=kind, workspace=workspace, plan=answer)


def _fewer_nodes(workspace: Workspace, rejected: Rejected, ask: Ask) -> Alternative | None:
    """As many nodes as a bounded search finds; first as many as the refusal says there is room for."""
    room = rejected.refusal.room or 0
    first = room if 0 < room < workspace.instances else None

    def with_nodes(count: int) -> Workspace:
        return replace(workspace, instances=count)

    return _largest(AlternativeKind.FEWER_NODES, with_nodes, 1, workspace.instances - 1, first, ask)


def _shorter(
    kind: AlternativeKind, workspace: Workspace, ask: Ask, lengths: Sequence[int] | None
) -> Alternative | None:
    """The longest time that a bounded search finds, in whole minutes if it is minutes at all; first as long
    as enough nodes are free."""
    unit_s = MINUTE_S if workspace.duration_s >= LEAST_SHARE * MINUTE_S else 1
    most = (workspace.duration_s - 1) // unit_s
    least = max(1, -(-workspace.duration_s // (LEAST_SHARE * unit_s)))
    first: int | None = None
    if lengths is not None:
        count = workspace.instances
        first = min(most, (lengths[count - 1] if count <= len(lengths) else 0) // unit_s)
        if first < least:
            return None

    def lasting(count: int) -> Workspace:
        return replace(workspace, duration_s=count * unit_s)

    return _largest(kind, lasting, least, most, first, ask)


def _largest(
    kind: AlternativeKind,
    made: Callable[[int], Workspace],
    least: int,
    most: int,
    first: int | None,
    ask: Ask,
) -> Alternative | None:
    """The alternative with the largest number that is found to be accepted, by halving."""
    found: Alternative | None = None
    for _ in range(MOST_TRIES):
        if least > most:
            break
        number = first if first is not None and least <= first <= most else (least + most + 1) // 2
        workspace = made(number)
        answer = ask(workspace, False)
        if isinstance(answer, ReservationPlan):
            found = Alternative(kind=kind, workspace=workspace, plan=answer)
            # It has been counted: there is no room for more.
            least = most + 1 if number == first else number + 1
        else:
            most = number - 1
        first = None
    if found is None and least <= most:
        found = next(_asked(kind, made(least), ask), None)
    return found
