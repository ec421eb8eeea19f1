"""May this reservation be promised? A plan if it may, or a refusal with a reason and a remedy.

`assess` reads the book and changes nothing, so the answer to "what if" and the real answer
are the same. `admit` is `assess` and, if the answer is yes, `Book.commit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.model import Workspace
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.earliest import plan_after
from outrider.core.reservations.planning import Attempt, plan_at
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.splitting import plan_split

Policy = Callable[[Workspace, int], str]
"""A site's own rule: a sentence if it refuses the workspace at this instant, else nothing."""


Choice = Callable[[ReservationPlan], ReservationPlan]
"""Another plan for the same start if it is better for reasons that the book does not know, or the same."""


Review = Callable[[ReservationPlan], str]
"""A site's own rule about a plan that was found: a sentence if it is not to be carried out, else nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """`earliest_start_s` is a start that would be accepted now; None if none would."""

    refusal: Refusal
    earliest_start_s: int | None = None


def admit(
    book: Book,
    workspace: Workspace,
    now_s: int,
    *,
    policy: Policy | None = None,
    tells_earliest: bool = True,
    choice: Choice | None = None,
    review: Review | None = None,
) -> ReservationPlan | Rejected:
    """Accept the reservation and enter it in the book, or refuse it and change nothing."""
    answer = assess(
        book, workspace, now_s, policy=policy, tells_earliest=tells_earliest, choice=choice, review=review
    )
    if isinstance(answer, ReservationPlan):
        book.commit(answer, now_s)
    return answer


def assess(
    book: Book,
    workspace: Workspace,
    now_s: int,
    *,
    policy: Policy | None = None,
    tells_earliest: bool = True,
    is_renewal: bool = False,
    choice: Choice | None = None,
    review: Review | None = None,
) -> ReservationPlan | Rejected:
    """What `admit` would answer, with nothing changed.

    In a renewal the reservation of that name is to be replaced, and has been taken back. The `choice`
    is only between ways to keep what is accepted anyhow; the `review` may refuse the one that was chosen.
    """
    answer = _assess(book, workspace, now_s, policy, tells_earliest=tells_earliest, is_renewal=is_renewal)
    if isinstance(answer, Rejected):
        return answer
    plan = answer if choice is None else choice(answer)
    words = review(plan) if review is not None else ""
    if words:
        refusal = Refusal(cause=Cause.POLICY, start_s=plan.start_s, end_s=plan.end_s, message=words)
        return Rejected(refusal=refusal)
    return plan


def _assess(
    book: Book,
    workspace: Workspace,
    now_s: int,
    policy: Policy | None,
    *,
    tells_earliest: bool,
    is_renewal: bool,
) -> ReservationPlan | Rejected:
    if workspace.start_s is None:
        raise ValueError(f"workspace {workspace.name} has no start: best effort is not for admission")
    refusal = _never(book, workspace, now_s, is_renewal=is_renewal) or _refused_by(policy, workspace, now_s)
    if refusal is not None:
        return Rejected(refusal=refusal)
    if workspace.finish_by_s is not None or workspace.is_immediate:
        return _assess_floating(book, workspace, now_s, tells_earliest=tells_earliest)
    attempts: list[Attempt] = []
    plan = plan_at(book, workspace, workspace.start_s, now_s, attempts=attempts)
    if isinstance(plan, ReservationPlan):
        return plan
    later = None
    if tells_earliest:
        later = plan_after(book, workspace, workspace.start_s, now_s, plan, attempts)
    return Rejected(refusal=plan, earliest_start_s=None if later is None else later.start_s)


def _assess_floating(
    book: Book, workspace: Workspace, now_s: int, *, tells_earliest: bool
) -> ReservationPlan | Rejected:
    """A workspace that may start at any time up to a last one: the earliest is taken. What is later than that
    is looked at only for a refusal that tells the earliest start."""
    assert workspace.start_s is not None
    last_s = last_start(book, workspace)
    attempts: list[Attempt] = []
    start_s = max(workspace.start_s, now_s)
    first = plan_at(book, workspace, start_s, now_s, attempts=attempts)
    earliest: ReservationPlan | None
    if isinstance(first, ReservationPlan):
        earliest = first
    else:
        until_s = None if tells_earliest else last_s
        earliest = plan_after(book, workspace, start_s, now_s, first, attempts, until_s)
    if earliest is not None and earliest.start_s <= last_s:
        return earliest
    answer = plan_at(book, workspace, last_s, now_s)
    if isinstance(answer, ReservationPlan):
        # The search gives up after so many starts.
        return answer
    split = plan_split(book, workspace, now_s)
    if split is not None:
        return split
    return Rejected(refusal=answer, earliest_start_s=None if earliest is None else earliest.start_s)


def last_start(book: Book, workspace: Workspace) -> int:
    """The last start of a workspace that ends by a deadline, or begins as soon as its image is there."""
    assert workspace.start_s is not None
    last: list[int] = []
    if workspace.finish_by_s is not None:
        last.append(workspace.finish_by_s - workspace.duration_s)
    if workspace.is_immediate:
        within_s = workspace.ready_within_s
        if within_s is None:
            # One transfer for all nodes, or one for each, of which there are at most so many.
            is_relay = book.terms.shipping is Shipping.RELAY
            count = 1 if is_relay else min(workspace.instances, len(book.timeline.nodes))
            image = workspace.image
            within_s = 0 if image is None else count * book.deadline_duration_s(image)
        last.append(workspace.start_s + within_s)
    return min(last)


def _never(book: Book, workspace: Workspace, now_s: int, *, is_renewal: bool) -> Refusal | None:
    """The refusal of what no state of the book would allow."""
    assert workspace.start_s is not None
    end_s = workspace.start_s + workspace.duration_s
    layout = book.timeline.layout
    message = ""
    unknown = layout.unknown(workspace.resources)
    if unknown:
        message = f"no node has the resource {unknown[0]}; known are {', '.join(layout.names)}"
    elif huge := next((name for name, amount in workspace.resources.amounts if amount > LARGEST_AMOUNT), ""):
        message = f"{workspace.resources[huge]} of {huge} are more than any node has"
    elif workspace.name in book.entries and not is_renewal:
        message = texts.of_name(workspace.name)
    elif workspace.start_s < now_s:
        message = texts.of_past(now_s - workspace.start_s)
    else:
        need = layout.pack(workspace.resources)
        room = sum(
            layout.most(need, capacity, workspace.most_per_node) * (nodes & book.available).bit_count()
            for capacity, nodes in book.timeline.by_capacity.items()
        )
        if room < workspace.instances:
            nodes = book.available.bit_count()
            message = texts.of_site(workspace.instances, workspace.resources, nodes, room)
    if not message:
        return None
    return Refusal(cause=Cause.SLOTS, start_s=workspace.start_s, end_s=end_s, message=message)


def _refused_by(policy: Policy | None, workspace: Workspace, now_s: int) -> Refusal | None:
    message = policy(workspace, now_s) if policy is not None else ""
    if not message:
        return None
    assert workspace.start_s is not None
    end_s = workspace.start_s + workspace.duration_s
    return Refusal(cause=Cause.POLICY, start_s=workspace.start_s, end_s=end_s, message=message)
