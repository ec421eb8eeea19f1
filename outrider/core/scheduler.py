"""Reservations and best effort together: what a service or a simulator talks to.

Events go in (a request, a tick, something began or ended or broke) and decisions come out
(runs with nodes and segments, accepted and refused reservations). Time is what the caller
says it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from outrider.core.besteffort.board import BestEffortRun, QueueBoard, QueueRules
from outrider.core.besteffort.lending import OpenLease, is_clearable_within
from outrider.core.besteffort.queue import BestEffortQueue
from outrider.core.besteffort.suspension_notice import busy_until, give_back, hold_nodes
from outrider.core.besteffort.yielding import gentlest
from outrider.core.model import Reservation, Workspace
from outrider.core.reservations.admission import Policy, Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.refusal import Cause
from outrider.core.site_view import CoreSiteView

# What most sites do without is loaded by whoever asks for it: making its classes would slow every start.
if TYPE_CHECKING:
    from outrider.core.besteffort.protection.first_slice import FirstSlices, SliceRules
    from outrider.core.leases.adaptive import AdaptiveShare, SteeringRules
    from outrider.core.leases.admission import AdmissionPolicy, PlannedLease
    from outrider.core.leases.pricing import PriceList
    from outrider.core.options.admission import OptionsAnswer
    from outrider.core.reservations.bundles import BundleAnswer
    from outrider.core.reservations.moving import MadeWay, MovedLease
    from outrider.core.reservations.preempting import Preempted, PreemptionRules, YieldedLease

FORGET_EVERY_S = 6 * 3600
"""How often the slot tables drop their past, which nobody asks for."""


MOVABLE = (Cause.SLOTS, Cause.LINK, Cause.POOL)
"""What a refusal is for where other leases may make way."""


class Choice(Protocol):
    """Finds a plan for the same start on nodes that others leave more easily; or gives back the same."""

    def __call__(self, plan: ReservationPlan, now_s: int) -> ReservationPlan: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRules:
    """What a site accepts, at which price, and what may become of accepted leases for the sake of others."""

    is_moving: bool = False
    """Whether deadline leases that have not begun are moved, and split if they may yield."""
    admission: tuple[AdmissionPolicy, ...] = ()
    steering: SteeringRules | None = None
    """By which the share of reservations adapts to what users do; None: it does not."""
    prices: PriceList | None = None
    preemption: PreemptionRules | None = None
    """Whose reservations yield to whose, among those that may; None: nobody's."""
    slices: SliceRules | None = None
    """Of the time that whom leases keep waiting has at once; None: they wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What became of a request for a reservation, which runs had to move for it, and which leases."""

    admission: ReservationPlan | Rejected
    moved: tuple[BestEffortRun, ...] = ()
    moved_leases: tuple[MovedLease, ...] = ()
    yielded: tuple[YieldedLease, ...] = ()
    price: int | None = None
    """In thousandths, of what was accepted or would have been, if the site has prices."""
    is_too_dear: bool = False
    """Whether it was refused because its user would not pay the price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecidedTogether:
    """What became of several reservations that are accepted together, and which runs had to move."""

    answer: BundleAnswer
    moved: tuple[BestEffortRun, ...] = ()
    prices: Mapping[str, int] = field(default_factory=dict)
    is_too_dear: bool = False


class _Review:
    """Asks the site's policies about plans, and remembers the price of the last one."""

    def __init__(
        self, rules: LeaseRules, steering: AdaptiveShare | None, view: CoreSiteView, now_s: int
    ) -> None:
        self._rules, self._view, self._now_s = rules, view, now_s
        self._asked = (*rules.admission, steering) if steering is not None else rules.admission
        self._asks = bool(self._asked) or rules.prices is not None
        self.price: int | None = None
        self.is_too_dear = False
        self.prices: dict[str, int] = {}
        self._told: tuple[PlannedLease, str] | None = None

    def __call__(self, plan: ReservationPlan) -> str:
        if not self._asks:
            return ""
        lease, told = self._view.lease(plan), self._told
        # When it is asked again, other leases may have moved.
        self._told = None
        return told[1] if told is not None and told[0] == lease else self._words(plan, lease)

    def unless_refused(self, choice: Choice, plan: ReservationPlan) -> ReservationPlan:
        """The choice is not made of nodes for what is refused wherever it is. What is chosen is asked about
        next, and that is known then."""
        if not self._asks:
            return choice(plan, self._now_s)
        lease = self._view.lease(plan)
        words = self._words(plan, lease)
        self._told = lease, words
        return plan if words else choice(plan, self._now_s)

    def _words(self, plan: ReservationPlan, lease: PlannedLease) -> str:
        from outrider.core.leases.admission import WithinMaximumRate, first_refusal, price_of

        rules, view, now_s = self._rules, self._view, self._now_s
        self.price, self.is_too_dear = None, False
        words = first_refusal(self._asked, lease, view, now_s)
        if words or rules.prices is None:
            return words
        self.price = self.prices[plan.workspace.name] = price_of(rules.prices, lease, view, now_s)
        words = WithinMaximumRate(rules.prices).refuse(lease, view, now_s)
        self.is_too_dear = bool(words)
        return words


class Scheduler:
    """One site's book of reservations and queue of best effort."""

    def __init__(
        self,
        book: Book,
        rules: QueueRules,
        policy: Policy | None = None,
        leases: LeaseRules | None = None,
    ) -> None:
        self.book = book
        self.board = QueueBoard(book, rules)
        self.queue = BestEffortQueue(self.board)
        self.leases = leases or LeaseRules()
        self.steering = _steered(self.leases.steering)
        self.slices = _sliced(self.queue, self.leases.slices)
        self.view = CoreSiteView(book, self.queue)
        self.policy = policy
        self.choice: Choice | None = None
        """Of the nodes of a plan, by whoever knows of best effort that is not queued here."""
        self.open_leases: dict[str, OpenLease] = {}
        """Those whose event has not come yet."""
        self.came = 0
        """How much best effort was ever handed in."""
        self._forgotten_s = 0

    def what_if(self, workspace: Workspace, now_s: int) -> ReservationPlan | Rejected:
        """The answer that `reserve` would give now."""
        return self._decide(workspace, now_s, is_plan=True, tells_earliest=True).admission

    def reserve(self, workspace: Workspace, now_s: int, *, tells_earliest: bool = True) -> Decided:
        """Accept or refuse a reservation; if accepted, best effort makes way for it."""
        return self._decide(workspace, now_s, is_plan=False, tells_earliest=tells_earliest)

    def reserve_options(
        self, workspaces: Sequence[Workspace], now_s: int, *, finish_by_s: int | None = None
    ) -> tuple[OptionsAnswer, Decided | None]:
        """Accept a request by one of its options or refuse it; what became of the one that was chosen."""
        from outrider.core.options.admission import assess_options

        answer = assess_options(workspaces, lambda asked: self.what_if(asked, now_s), finish_by_s=finish_by_s)
        if answer.chosen is None:
            return answer, None
        decided = self.reserve(answer.chosen.workspace, now_s)
        entry = self.book.entries[answer.chosen.workspace.name]
        return replace(answer, reservation=entry.reservation), decided

    def _decide(self, workspace: Workspace, now_s: int, *, is_plan: bool, tells_earliest: bool) -> Decided:
        book = self.book
        book.links.pass_until(now_s)
        # Without a start it is refused.
        holds = hold_nodes(self.board, now_s, workspace.start_s or now_s)
        review = _Review(self.leases, self.steering, self.view, now_s)
        decide = assess if is_plan else admit
        admission = decide(
            book,
            workspace,
            now_s,
            policy=self.policy,
            tells_earliest=tells_earliest,
            choice=partial(review.unless_refused, self.choice or partial(gentlest, self.board)),
            review=review,
        )
        found: MadeWay | Preempted | None = None
        if isinstance(admission, Rejected) and _may_be_helped(admission):
            # Leases that make way look for places of their own, from now on.
            holds += hold_nodes(self.board, now_s, now_s)
            if self.leases.is_moving:
                from outrider.core.reservations.moving import make_way

                found = make_way(book, workspace, now_s, is_plan=is_plan, review=review)
            if found is None and self.leases.preemption is not None:
                from outrider.core.reservations.preempting import preempt

                rules = self.leases.preemption
                found = preempt(book, workspace, now_s, rules, is_plan=is_plan, review=review)
        give_back(self.board, holds)
        moved, freed, yielded = _changed(found)
        if found is not None:
            admission = found.plan
        runs: tuple[BestEffortRun, ...] = ()
        if isinstance(admission, ReservationPlan) and not is_plan:
            book.expect_arrivals(now_s)
            runs = self._clear(workspace.name, moved, freed, now_s)
        price = review.price
        if isinstance(admission, Rejected) and price is None:
            price = self._list_price(workspace, now_s)
        return Decided(
            admission=admission,
            moved=runs,
            moved_leases=moved,
            yielded=yielded,
            price=price,
            is_too_dear=review.is_too_dear,
        )

    def _list_price(self, workspace: Workspace, now_s: int) -> int | None:
        """What a request would cost that has no place, at the start that was asked for."""
        if self.leases.prices is None:
            return None
        from outrider.core.leases.admission import price_of

        return price_of(self.leases.prices, self.view.wanted(workspace), self.view, now_s)

    def _clear(
        self, name: str, moved: Sequence[MovedLease], freed: Sequence[MovedLease], now_s: int
    ) -> tuple[BestEffortRun, ...]:
        """Best effort makes way for reservations that are in the book; the runs that have new segments."""
        for lease in freed:
            for span in lease.spans:
                self.queue.give_back(lease.fits, lease.need, *span)
        changed = {lease.before.workspace.name for lease in freed} & self.book.entries.keys()
        runs: dict[str, BestEffortRun] = {}
        for each in (name, *sorted(changed)):
            entry = self.book.entries[each]
            for span in entry.spans(now_s):
                for run in self.queue.make_room(entry.fits, entry.need, *span, now_s):
                    runs[run.name] = run
        for run in self.queue.replace_misplaced(now_s):
            runs[run.name] = run
        # Who made way more than once may be back in the queue by now.
        return tuple(run for run in runs.values() if self.board.runs.get(run.name) is run)

    def reserve_together(
        self, workspaces: Sequence[Workspace], now_s: int, *, is_one_start: bool
    ) -> DecidedTogether:
        """Accept all of these reservations or none: occurrences of one that recurs, or, with `is_one_start`,
        the roles of one of unlike instances."""
        from outrider.core.reservations.bundles import admit_each, admit_roles

        book = self.book
        book.links.pass_until(now_s)
        holds = hold_nodes(self.board, now_s, now_s)
        review = _Review(self.leases, self.steering, self.view, now_s)
        admit_all = admit_roles if is_one_start else admit_each
        answer = admit_all(book, workspaces, now_s, policy=self.policy, review=review)
        give_back(self.board, holds)
        prices = dict(review.prices)
        if answer.rejected is not None:
            for each in workspaces:
                price = self._list_price(each, now_s)
                if price is not None:
                    prices.setdefault(each.name, price)
            return DecidedTogether(answer=answer, prices=prices, is_too_dear=review.is_too_dear)
        book.expect_arrivals(now_s)
        runs: dict[str, BestEffortRun] = {}
        for reservation in answer.reservations:
            for run in self._clear(reservation.workspace.name, (), (), now_s):
                runs[run.name] = run
        moved = tuple(run for run in runs.values() if self.board.runs.get(run.name) is run)
        return DecidedTogether(answer=answer, moved=moved, prices=prices)

    def reserve_open(self, workspace: Workspace, until_s: int, within_s: int, now_s: int) -> Decided:
        """Keep nodes and image ready from the workspace's start until an event comes, at `until_s` at the
        latest; what is wanted then begins within `within_s`. Refused if that cannot be promised."""
        assert workspace.start_s is not None
        waiting_s = until_s - workspace.start_s
        if waiting_s < 0 or within_s < 0 or workspace.finish_by_s is not None or workspace.is_immediate:
            raise ValueError(
                f"workspace {workspace.name}: an open lease has a start, an end of waiting, no deadline"
            )
        whole = replace(workspace, duration_s=waiting_s + within_s + workspace.duration_s)
        decided = self._decide(whole, now_s, is_plan=False, tells_earliest=False)
        if isinstance(decided.admission, Rejected):
            return decided
        entry = self.book.entries[workspace.name]
        lease = OpenLease(
            name=workspace.name,
            until_s=until_s,
            within_s=within_s,
            duration_s=workspace.duration_s,
            fits=entry.fits,
            need=entry.need,
            start_s=entry.reservation.start_s,
            end_s=entry.end_s,
            is_lent=is_clearable_within(self.board, entry.fits, within_s),
        )
        self.open_leases[workspace.name] = lease
        if lease.is_lent:
            # Who cannot be cleared has left; all others may come back until the event.
            self.queue.give_back(lease.fits, lease.need, lease.start_s, lease.end_s)
            self.board.lent[lease.name] = (((lease.start_s, lease.end_s),), lease.fits)
        return decided

    def trigger(self, name: str, now_s: int) -> tuple[int, tuple[BestEffortRun, ...]]:
        """The event of an open lease has come: when it begins, and the runs that have new segments."""
        lease = self.open_leases.pop(name)
        if not lease.start_s <= now_s <= lease.until_s:
            raise ValueError(f"lease {name} waits from {lease.start_s} to {lease.until_s}, not at {now_s}")
        start_s = now_s
        if lease.is_lent:
            busy = busy_until(self.board, now_s)
            start_s = max([now_s, *(busy.get(chosen.node, now_s) for chosen in lease.fits)])
            self.board.lent[name] = (((now_s, start_s),), lease.fits)
        end_s = start_s + lease.duration_s
        if end_s < lease.end_s:
            from outrider.core.reservations.renegotiation import change_end

            change_end(self.book, name, end_s, now_s)
        if not lease.is_lent:
            self.queue.give_back(lease.fits, lease.need, end_s, lease.end_s)
            return start_s, ()
        # It had kept its nodes for longer than it needs them now.
        self.queue.gain_node()
        return start_s, tuple(self.queue.make_room(lease.fits, lease.need, start_s, end_s, now_s))

    def end_reservation(self, name: str, now_s: int) -> None:
        """A reservation is cancelled, or its user is done before its end, or it is over."""
        entry = self.book.entries[name]
        if self.steering is not None:
            self.steering.ended(*self.view.booked_and_used(entry, now_s))
        if self.slices is not None and entry.reservation.start_s <= now_s:
            self.slices.lease_ended(now_s)
        self.open_leases.pop(name, None)
        lent, _ = self.board.lent.pop(name, ((), ()))
        # As long as it is lent it is in the book alone.
        from_s = max([now_s, *(end_s for _, end_s in lent)])
        self.queue.gain_node()
        for span in entry.spans(from_s):
            self.queue.give_back(entry.fits, entry.need, *span)
        self.book.cancel(name, now_s)

    def choose_nodes_anew(self, name: str, now_s: int) -> tuple[BestEffortRun, ...]:
        """Give a reservation that has not begun, and needs no image, the nodes whose runs lose least by now;
        the runs that have new segments. It keeps its time, and no policy is asked again."""
        entry, book = self.book.entries[name], self.book
        workspace, start_s = entry.reservation.workspace, entry.reservation.start_s
        if workspace.image is not None or entry.reservation.pieces or start_s < now_s:
            raise ValueError(f"reservation {name} has begun, has pieces, or needs its image where it is")
        for span in entry.spans(now_s):
            self.queue.give_back(entry.fits, entry.need, *span)
        book.cancel(name, now_s)
        holds = hold_nodes(self.board, now_s, start_s)
        fixed = replace(workspace, start_s=start_s, finish_by_s=None, is_immediate=False)
        choice = partial(self.choice or partial(gentlest, self.board), now_s=now_s)
        admission = admit(book, fixed, now_s, tells_earliest=False, choice=choice)
        give_back(self.board, holds)
        # What it had until now is free.
        assert isinstance(admission, ReservationPlan)
        return self._clear(name, (), (), now_s)

    def node_failed(self, name: str, now_s: int) -> tuple[list[BestEffortRun], list[Reservation]]:
        """A node is gone: the runs that wait again, and the reservations that lost their place.

        Those reservations are out of the book; the caller, who made the promise, decides what to try.
        """
        node = self.book.timeline.number_of[name]
        self.book.available &= ~(1 << node)
        runs = [run for run in self.board.runs.values() if node in run.nodes_from(now_s)]
        for run in sorted(runs, key=lambda run: (run.order, run.index)):
            self.queue.abandon(run, now_s)
        broken = [
            entry.reservation
            for entry in self.book.entries.values()
            if entry.end_s > now_s and any(chosen.node == node for chosen in entry.fits)
        ]
        broken.sort(key=lambda reservation: (reservation.start_s, reservation.workspace.name))
        for reservation in broken:
            self.end_reservation(reservation.workspace.name, now_s)
        return runs, broken

    def node_returned(self, name: str) -> None:
        """A node can be used again."""
        self.book.available |= 1 << self.book.timeline.number_of[name]
        self.queue.gain_node()

    def submit(self, workspace: Workspace, now_s: int = 0) -> bool:
        """Queue a best-effort workspace; False if the site could never run it."""
        if not self.queue.fits_site(workspace):
            return False
        order = self.board.rules.preemption
        if order is not None and order.spares(workspace.owner):
            workspace = replace(workspace, is_preemptible=False)
        self.queue.submit(workspace, now_s)
        self.came += 1
        self.watch(len(self.queue.waiting), self.came, now_s)
        return True

    def schedule(self, now_s: int) -> list[BestEffortRun]:
        """Place what can be placed now."""
        self.book.pools.settle(now_s)
        self.board.everything.pass_until(now_s)
        if now_s - self._forgotten_s > FORGET_EVERY_S:
            self._forgotten_s = now_s
            self.book.timeline.forget_before(now_s)
            self.board.everything.forget_before(now_s)
        placed = self.queue.schedule(now_s)
        if self.slices is not None:
            placed += self.slices.begin(now_s)
        self.watch(len(self.queue.waiting), self.came, now_s)
        return placed

    def end_slice(self, run: BestEffortRun, now_s: int) -> None:
        """A first slice is over, and its job is not: it waits again, where it was."""
        self.queue.abandon(run, now_s)
        self.queue.gain_node()

    def watch(self, waiting: int, came: int, now_s: int) -> None:
        """So many jobs wait, of so many that have come: what a share that adapts learns from."""
        if self.steering is not None:
            self.steering.look(waiting, came, self.view.units, now_s)


def _steered(rules: SteeringRules | None) -> AdaptiveShare | None:
    if rules is None:
        return None
    from outrider.core.leases.adaptive import AdaptiveShare

    return AdaptiveShare(rules)


def _sliced(queue: BestEffortQueue, rules: SliceRules | None) -> FirstSlices | None:
    if rules is None:
        return None
    from outrider.core.besteffort.protection.first_slice import FirstSlices

    return FirstSlices(queue, rules)


def _may_be_helped(answer: Rejected) -> bool:
    """Whether other leases may make way: not if no state of the book would allow it."""
    return answer.refusal.cause in MOVABLE and not answer.refusal.message


def _changed(
    found: MadeWay | Preempted | None,
) -> tuple[tuple[MovedLease, ...], tuple[MovedLease, ...], tuple[YieldedLease, ...]]:
    """Who has another place, whose earlier place is free, and who has yielded."""
    if found is None:
        return (), (), ()
    from outrider.core.reservations.moving import MadeWay

    if isinstance(found, MadeWay):
        return found.moved, found.moved, ()
    return found.moved, found.freed, found.yielded
