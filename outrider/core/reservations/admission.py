"""May this reservation be promised? Accepted with a plan, or refused with a reason and a remedy.

`assess` reads the book and changes nothing, so the answer to "what if" and the real answer
are the same. `admit` is `assess` and, if the answer is yes, `Book.commit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.model import Image, Reservation, Workspace
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.nodes.earliest_slots import SlotSweep, next_edge
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.planning import plan_at
from outrider.core.reservations.refusal import Cause, Refusal

Policy = Callable[[Workspace, int], str]
"""A site's own rule: a sentence if it refuses the workspace at this instant, else nothing."""

MOST_STARTS_TRIED = 10_000
"""How many candidate starts a search for the earliest one looks at before it gives up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    plan: ReservationPlan
    reservation: Reservation | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """`earliest_start_s` is a start that would be accepted now; None if none would."""

    refusal: Refusal
    earliest_start_s: int | None = None


def admit(
    book: Book, workspace: Workspace, now_s: int, *, policy: Policy | None = None, tells_earliest: bool = True
) -> Accepted | Rejected:
    """Accept the reservation and enter it in the book, or refuse it and change nothing."""
    answer = assess(book, workspace, now_s, policy=policy, tells_earliest=tells_earliest)
    if isinstance(answer, Rejected):
        return answer
    return Accepted(plan=answer.plan, reservation=book.commit(answer.plan, now_s))


def assess(
    book: Book,
    workspace: Workspace,
    now_s: int,
    *,
    policy: Policy | None = None,
    tells_earliest: bool = True,
    is_renewal: bool = False,
) -> Accepted | Rejected:
    """What `admit` would answer, with nothing changed.

    In a renewal the reservation of that name is to be replaced, and has been taken back.
    """
    if workspace.start_s is None:
        raise ValueError(f"workspace {workspace.name} has no start: best effort is not for admission")
    refusal = _never(book, workspace, now_s, is_renewal=is_renewal) or _refused_by(policy, workspace, now_s)
    if refusal is not None:
        return Rejected(refusal=refusal)
    if workspace.finish_by_s is not None:
        return _assess_deadline(book, workspace, now_s)
    plan = plan_at(book, workspace, workspace.start_s, now_s)
    if isinstance(plan, ReservationPlan):
        return Accepted(plan=plan)
    earliest_s = _start_after(book, workspace, workspace.start_s, now_s, plan) if tells_earliest else None
    return Rejected(refusal=plan, earliest_start_s=earliest_s)


def earliest_start(book: Book, workspace: Workspace, from_s: int, now_s: int) -> int | None:
    """The first start from `from_s` on that would be accepted now; None if there is none.

    Whatever is returned has been planned in full. It is the very first such start unless a
    pool's limit or a transfer's release is what stood in the way: then it is the first among
    the instants at which slots, pools or the link change.
    """
    start_s = max(from_s, now_s)
    plan = plan_at(book, workspace, start_s, now_s)
    return (
        start_s if isinstance(plan, ReservationPlan) else _start_after(book, workspace, start_s, now_s, plan)
    )


def _start_after(book: Book, workspace: Workspace, start_s: int, now_s: int, refusal: Refusal) -> int | None:
    """The first start after one that was refused."""
    for _ in range(MOST_STARTS_TRIED):
        among = None
        if refusal.cause is Cause.SLOTS:
            following, among = _slots_free(book, workspace, start_s)
        else:
            following = _next_change(book, workspace, start_s, now_s, refusal)
        if following is None:
            return None
        start_s = following
        answer = plan_at(book, workspace, start_s, now_s, among=among)
        if isinstance(answer, ReservationPlan):
            return start_s
        refusal = answer
    return None


def _slots_free(book: Book, workspace: Workspace, after_s: int) -> tuple[int | None, int]:
    """The first start after `after_s` with room for all instances, and a mask of where there is any."""
    sweep = SlotSweep(
        book.timeline,
        instances=workspace.instances,
        need=book.timeline.layout.pack(workspace.resources),
        duration_s=workspace.duration_s,
        start_s=after_s,
        available=book.available,
    )
    return sweep.advance(), sweep.roomy()


def _next_change(book: Book, workspace: Workspace, start_s: int, now_s: int, refusal: Refusal) -> int | None:
    """The next start at which what stood in the way of the images may be gone."""
    image = workspace.image
    assert image is not None
    nodes = book.timeline.everyone
    changes = [_next_pool_change(book, image, start_s)]
    if refusal.cause is Cause.LINK:
        changes.append(_link_frees(book, refusal, start_s, now_s))
        if book.terms.shipping is Shipping.RELAY:
            # One transfer is needed unless every instance finds a copy: only where copies are
            # can slots make a difference.
            nodes = book.pools.mask_with(image.key)
    changes.append(next_edge(book.timeline, nodes, start_s, workspace.duration_s))
    return min((at_s for at_s in changes if at_s is not None and at_s > start_s), default=None)


def _assess_deadline(book: Book, workspace: Workspace, now_s: int) -> Accepted | Rejected:
    """A workspace that may start at any time, as long as it ends by its deadline."""
    assert workspace.start_s is not None
    assert workspace.finish_by_s is not None
    start_s = earliest_start(book, workspace, workspace.start_s, now_s)
    if start_s is not None and start_s + workspace.duration_s <= workspace.finish_by_s:
        plan = plan_at(book, workspace, start_s, now_s)
        assert isinstance(plan, ReservationPlan)
        return Accepted(plan=plan)
    last_s = workspace.finish_by_s - workspace.duration_s
    answer = plan_at(book, workspace, last_s, now_s)
    if isinstance(answer, ReservationPlan):
        # The search may pass over a start where a pool's limit stood in the way.
        return Accepted(plan=answer)
    return Rejected(refusal=answer, earliest_start_s=start_s)


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
            layout.most(need, capacity, workspace.instances) * (nodes & book.available).bit_count()
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


def _next_pool_change(book: Book, image: Image, after_s: int) -> int | None:
    """The next instant at which a pool begins or ceases to promise anything."""
    instants: list[int] = []
    lead_s = book.deadline_duration_s(image) + (book.link.reserve_s or 0)
    for node in book.pools.nodes_with(image.key):
        for life in book.pools.pools[node].lives.get(image.key, ()):
            instants += [life.ready_s, life.expires_s + 1]
    for pool in book.pools.pools:
        # Where all that was ever promised has room together with this image, nothing has to go first.
        most = pool.room_bytes
        if most is not None and pool.promised_bytes + pool.foreign_bytes + image.size_bytes > most:
            for lives in pool.lives.values():
                for life in lives:
                    # What is free then can be brought then, and is not there before.
                    instants += [life.start_s, life.expires_s, life.expires_s + lead_s]
            instants += [hold.until_s + lead_s for hold in pool.encumbrance.holds]
    return min((instant_s for instant_s in instants if instant_s > after_s), default=None)


def _link_frees(book: Book, refusal: Refusal, start_s: int, now_s: int) -> int | None:
    """The first deadline after `start_s` by which the link has enough time left."""
    frees_s = book.link.earliest_deadline(refusal.needed_s, now_s, start_s)
    return frees_s if frees_s > start_s else None
