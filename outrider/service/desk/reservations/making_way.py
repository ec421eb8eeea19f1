"""Who makes way for a request that was refused: leases with a deadline that go elsewhere, and reservations
that may yield. The core finds out who and where, with the modules of the simulator; here that is carried out.

All of it is written with the request's own promise, in one transaction. The batch system is told by effects,
which say what should be: those who leave nodes before those who get them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outrider.core.model import Reservation, Workspace
from outrider.core.reservations.admission import Review
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.moving import MadeWay, make_way
from outrider.core.reservations.preempting import Preempted, PreemptionRules, preempt
from outrider.core.reservations.refusal import Cause
from outrider.core.restart.snapshot import keep_transfers
from outrider.metadata.leases import outranks_by, preemption_order
from outrider.metadata.policies import Policies
from outrider.service.desk.state.site import Live, Site
from outrider.store.states import TransferState

MOVABLE = (Cause.SLOTS, Cause.LINK, Cause.POOL)
"""What a refusal is for where others may make way."""
NOTICE_S = 120
"""Whose start is sooner than that is not moved: the batch system is about to begin it."""

Way = MadeWay | Preempted
Doubts = Callable[[ReservationPlan], dict[str, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A lease that made way: what it had, and what became of it."""

    live: Live
    before: Reservation
    after: Reservation | None
    """None if it has yielded before its time began, so that it is over."""
    is_parked: bool = False
    """Whether this is only about leaving its old place, as its new one is not free yet."""


class MakingWay:
    """Finds a way for requests, and carries it out."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def find(self, workspace: Workspace, policies: Policies, review: Review, *, is_plan: bool) -> Way | None:
        """A place for a refused request, with others moved or preempted; in the book, unless `is_plan`."""
        book, now_s = self._site.book, self._site.now_s
        found: Way | None = make_way(
            book, workspace, now_s, is_plan=is_plan, review=review, notice_s=NOTICE_S
        )
        rules = self._rules(policies, workspace)
        if found is None and rules is not None:
            found = preempt(book, workspace, now_s, rules, is_plan=is_plan, review=review)
        return found

    def doubts(self, way: Way, of_plan: Doubts) -> dict[str, int]:
        """The nodes of which it is not sure that they have the room, those included to which others move."""
        number_of, now_s = self._site.book.timeline.number_of, self._site.now_s
        found = dict(of_plan(way.plan))
        for moved in way.moved:
            new = sorted(set(moved.reservation.nodes) - set(moved.before.nodes))
            lives = tuple((number_of[name], 0, now_s) for name in new)
            place = replace(
                way.plan,
                workspace=moved.reservation.workspace,
                end_s=moved.reservation.end_s,
                lives=lives,
                revived=(),
            )
            for name, size_bytes in of_plan(place).items():
                found[name] = max(found.get(name, 0), size_bytes)
        return found

    def carry_out(
        self, workspace: Workspace, policies: Policies, review: Review
    ) -> tuple[Way, list[Changed]]:
        """Enter what was found, and what has become of the others. To be written and told by the caller."""
        site = self._site
        before = self._transfers()
        way = self.find(workspace, policies, review, is_plan=False)
        assert way is not None
        after = self._transfers()
        site.touch(after)
        site.end_transfers(sorted(before - after - site.moving.keys()), TransferState.WITHDRAWN)
        changed: list[Changed] = []
        yielded = way.yielded if isinstance(way, Preempted) else ()
        for before_it in (*(each.before for each in way.moved), *(each.before for each in yielded)):
            name = before_it.workspace.name
            entry = site.book.entries.get(name)
            after_it = None if entry is None else entry.reservation
            changed.append(Changed(live=site.live[name], before=before_it, after=after_it))
        return way, changed

    def _transfers(self) -> set[int]:
        site = self._site
        return {each.transfer.number for each in keep_transfers(site.book, site.now_s)}

    def _rules(self, policies: Policies, workspace: Workspace) -> PreemptionRules | None:
        """Who yields to this request, if the site has an order for that."""
        section = None if policies.leases is None else policies.leases.preemption
        if section is None:
            return None
        by_rank, site = outranks_by(section.ranks), self._site
        start_s = max(workspace.start_s or 0, site.now_s)

        def outranks(one: Workspace, other: Workspace) -> bool:
            entry = site.book.entries[other.name]
            if entry.reservation.start_s <= site.now_s + NOTICE_S:
                # Its jobs run, or are about to: they need time to go, and its end must be there to be moved.
                has_time = start_s >= site.now_s + NOTICE_S and site.settings.moves_starts
                if not has_time or entry.reservation.start_s > site.now_s:
                    return False
            return by_rank(one, other)

        return PreemptionRules(order=preemption_order(section), outranks=outranks)


def in_order(changed: list[Changed]) -> list[Changed]:
    """Those who leave nodes before those who get them. Of those who change places one comes twice: first it
    is to leave (`is_parked`), so that another has room."""
    left, parked, ordered = list(changed), list[Changed](), list[Changed]()
    while left:
        standing = [each for each in left if each not in parked]
        free = next((each for each in left if not _stands_on(each, standing)), None)
        if free is None:
            parked.append(standing[0])
            ordered.append(replace(standing[0], is_parked=True))
        else:
            left.remove(free)
            ordered.append(free)
    return ordered


def _stands_on(each: Changed, left: list[Changed]) -> bool:
    """Whether its new place is still another's old one."""
    now = each.after
    if now is None:
        return False
    return any(
        other.live is not each.live
        and not set(now.nodes).isdisjoint(other.before.nodes)
        and now.start_s < other.before.end_s
        and other.before.start_s < now.end_s
        for other in left
    )


def words_of(way: Way) -> str:
    """Who makes way, for whoever asked."""
    parts = [f"{each.before.workspace.name} is moved" for each in way.moved]
    if isinstance(way, Preempted):
        parts += [f"{each.before.workspace.name} yields" for each in way.yielded]
    return f"others make way: {', '.join(parts)}"
