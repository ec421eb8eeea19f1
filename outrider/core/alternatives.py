"""What would be accepted in the place of a reservation that is refused.

Each alternative changes one or two terms of the request, and is asked about as a request of its own: what is
not accepted is not named, nor what would not be any more after a delay, if only because its image could not
be there in time. The search is bounded, so it may name fewer nodes, or a shorter time, than the most that
would be accepted. It asks one question at a time, and whoever answers may do something else in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
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


Answer = ReservationPlan | Rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a workspace would be answered now, with nothing changed; and whether to tell the earliest start,
    which takes much longer."""

    workspace: Workspace
    tells_earliest: bool = False


Search = Generator[Question, Answer, tuple[Alternative, ...]]
"""A search that is told the answer to each of its questions before it asks the next."""


def alternatives(
    workspace: Workspace, rejected: Rejected, delay_s: int = 0, lengths: Sequence[int] | None = None
) -> Search:
    """What would be accepted instead, in the order of the kinds, without two of the same terms.

    Each is to be in time still if it is asked for `delay_s` later (see `can_wait`). `lengths` says for how
    long there is room for one instance from the request's start on, for two, and so on, if that is known:
    what has no room is not asked about.
    """
    found: list[Alternative] = []
    known: set[tuple[int | None, int, int]] = set()
    for each in (yield from _all(workspace, rejected, delay_s, lengths)):
        terms = (each.plan.start_s, each.workspace.instances, each.workspace.duration_s)
        if terms not in known and len(found) < MOST_ALTERNATIVES:
            known.add(terms)
            found.append(each)
    return tuple(found)


def at(workspace: Workspace, start_s: int) -> Workspace:
    """The same from exactly this instant on."""
    return replace(workspace, start_s=start_s, finish_by_s=None, is_immediate=False, ready_within_s=None)


def can_wait(plan: ReservationPlan, until_s: int) -> bool:
    """Whether neither its start nor the latest start of one of its transfers is over by then."""
    latest = () if plan.insertion is None else plan.insertion.latest
    return min((plan.start_s, *latest)) >= until_s


_Found = Generator[Question, Answer, Alternative | None]


def _all(
    workspace: Workspace, rejected: Rejected, delay_s: int, lengths: Sequence[int] | None
) -> Generator[Question, Answer, list[Alternative]]:
    later_s, later = rejected.earliest_start_s, None
    if later_s is not None:
        later = yield from _at_or_after(AlternativeKind.LATER, workspace, later_s, delay_s)
    fewer = yield from _fewer_nodes(workspace, rejected)
    shorter = yield from _shorter(AlternativeKind.SHORTER, workspace, lengths)
    found = [later, fewer, shorter]
    half = (workspace.instances + 1) // 2
    if half < workspace.instances and fewer is None:
        smaller = replace(workspace, instances=half)
        answer = yield Question(workspace=smaller, tells_earliest=True)
        sooner_s = answer.earliest_start_s if isinstance(answer, Rejected) else None
        if sooner_s is not None and (later_s is None or sooner_s < later_s):
            kind = AlternativeKind.FEWER_NODES_LATER
            found.append((yield from _at_or_after(kind, smaller, sooner_s, delay_s)))
        if shorter is None:
            found.append((yield from _shorter(AlternativeKind.SHORTER_WITH_FEWER, smaller, lengths)))
    return [each for each in found if each is not None]


def _at_or_after(kind: AlternativeKind, workspace: Workspace, start_s: int, delay_s: int) -> _Found:
    """From an earliest start on, or so much later, when that is late for its image."""
    for begin_s in dict.fromkeys((start_s, start_s + delay_s)):
        found = yield from _asked(kind, at(workspace, begin_s))
        if found is not None:
            return found
    return None


def _asked(kind: AlternativeKind, workspace: Workspace) -> _Found:
    answer = yield Question(workspace=workspace)
    if isinstance(answer, ReservationPlan):
        return Alternative(kind=kind, workspace=workspace, plan=answer)
    return None


def _fewer_nodes(workspace: Workspace, rejected: Rejected) -> _Found:
    """As many nodes as a bounded search finds; first as many as the refusal says there is room for."""
    room = rejected.refusal.room or 0
    first = room if 0 < room < workspace.instances else None

    def with_nodes(count: int) -> Workspace:
        return replace(workspace, instances=count)

    return _largest(AlternativeKind.FEWER_NODES, with_nodes, 1, workspace.instances - 1, first)


def _shorter(kind: AlternativeKind, workspace: Workspace, lengths: Sequence[int] | None) -> _Found:
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

    return (yield from _largest(kind, lasting, least, most, first))


def _largest(
    kind: AlternativeKind, made: Callable[[int], Workspace], least: int, most: int, first: int | None
) -> _Found:
    """The alternative with the largest number that is found to be accepted, by halving."""
    found: Alternative | None = None
    for _ in range(MOST_TRIES):
        if least > most:
            break
        number = first if first is not None and least <= first <= most else (least + most + 1) // 2
        tried = yield from _asked(kind, made(number))
        if tried is not None:
            found = tried
            # It has been counted: there is no room for more.
            least = most + 1 if number == first else number + 1
        else:
            most = number - 1
        first = None
    if found is None and least <= most:
        found = yield from _asked(kind, made(least))
    return found
