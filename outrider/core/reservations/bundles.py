"""Several reservations that are accepted all together or not at all.

Two kinds of lease are bundles: one that recurs, whose occurrences have their own starts and images; and one
of unlike instances, whose roles (sizes and images of their own) begin at the same instant. Each part is a
reservation of its own in the book, placed by Algorithm 1 beside the parts before it. A bundle moves nobody
and takes nobody's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.core.model import Reservation, Workspace
from outrider.core.nodes.earliest_slots import next_edge
from outrider.core.reservations.admission import Policy, Rejected, Review, assess, last_start
from outrider.core.reservations.book import Book
from outrider.core.reservations.trial import Trial

MOST_STARTS_TRIED = 1000
"""At how many instants roles are tried that may begin later than asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleAnswer:
    """All reservations, or the refusal of the first part that is not accepted, and which part that is."""

    reservations: tuple[Reservation, ...] = ()
    rejected: Rejected | None = None
    part: str = ""


def occurrences(workspace: Workspace, every_s: int, times: int) -> tuple[Workspace, ...]:
    """A reservation that recurs, as its occurrences: `name`, `name#2`, `name#3`, …"""
    if workspace.start_s is None or every_s < 1 or times < 1:
        raise ValueError(
            f"workspace {workspace.name}: {times} times every {every_s} s; give a start, and 1 or more"
        )
    found: list[Workspace] = []
    for number in range(times):
        later_s = number * every_s
        finish_by_s = None if workspace.finish_by_s is None else workspace.finish_by_s + later_s
        name = workspace.name if not number else f"{workspace.name}#{number + 1}"
        found.append(
            replace(workspace, name=name, start_s=workspace.start_s + later_s, finish_by_s=finish_by_s)
        )
    return tuple(found)


def admit_each(
    book: Book,
    workspaces: Sequence[Workspace],
    now_s: int,
    *,
    policy: Policy | None = None,
    review: Review | None = None,
    is_plan: bool = False,
) -> BundleAnswer:
    """Accept all of these, each at its own start, or none."""
    trial = Trial(book, now_s)
    placed: list[Reservation] = []
    for workspace in workspaces:
        answer = assess(book, workspace, now_s, policy=policy, tells_earliest=False, review=review)
        if isinstance(answer, Rejected):
            trial.undo()
            return BundleAnswer(rejected=answer, part=workspace.name)
        placed.append(trial.place(answer))
    if is_plan:
        trial.undo()
    return BundleAnswer(reservations=tuple(placed))


def admit_roles(
    book: Book,
    roles: Sequence[Workspace],
    now_s: int,
    *,
    policy: Policy | None = None,
    review: Review | None = None,
    is_plan: bool = False,
) -> BundleAnswer:
    """Accept all of these from the same instant on, or none.

    They have the same first start and deadline. What may begin later is tried at the instants at which
    slots or the link change, the largest role first.
    """
    first = roles[0]
    assert first.start_s is not None
    if any((each.start_s, each.finish_by_s) != (first.start_s, first.finish_by_s) for each in roles):
        raise ValueError(f"the roles of {first.name} do not have one start: give them the same times")
    last_s = min((last_start(book, each) for each in roles if _floats(each)), default=first.start_s)
    layout = book.timeline.layout
    largest = sorted(roles, key=lambda each: (-layout.pack(each.resources), each.name))
    start_s, refused = first.start_s, BundleAnswer()
    for _ in range(MOST_STARTS_TRIED):
        fixed = [_at(each, start_s) for each in largest]
        answer = admit_each(book, fixed, now_s, policy=policy, review=review, is_plan=is_plan)
        if answer.rejected is None:
            return answer
        refused = refused if refused.rejected is not None else answer
        following = _next_start(book, roles, start_s, now_s)
        if answer.rejected.refusal.message or following is None or following > last_s:
            break
        start_s = following
    return refused


def _at(workspace: Workspace, start_s: int) -> Workspace:
    return replace(workspace, start_s=start_s, finish_by_s=None, is_immediate=False, ready_within_s=None)


def _floats(workspace: Workspace) -> bool:
    return workspace.finish_by_s is not None or workspace.is_immediate


def _next_start(book: Book, roles: Sequence[Workspace], start_s: int, now_s: int) -> int | None:
    """The next instant at which all may have a place."""
    found = [next_edge(book.timeline, book.timeline.everyone, start_s, each.duration_s) for each in roles]
    images = {each.image.key: each.image for each in roles if each.image is not None}
    needed_s = sum(book.deadline_duration_s(image) for image in images.values())
    ready_s = book.link.earliest_deadline(needed_s, now_s, start_s) if images else start_s
    later = [at_s for at_s in (*found, ready_s) if at_s is not None and at_s > start_s]
    return min(later, default=None)
