"""Store, batch system and nodes compared: what differs is adopted, mended or reported.

The batch system says which nodes there are, what state they are in, and what others take of
them. Of our reservations it is told what they are to be; if it has lost one, it gets it again,
and if it loses it a second time, somebody wants it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from outrider.core.images.pools import Lingering
from outrider.core.model import Resources
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.missing_copies import awaited, note_pool
from outrider.rms.base import NodeState, RmsNode, RmsReservation, Sight
from outrider.service.desk.batch.reservation_effects import orphan_effect
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.pool_room import is_unknown
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.nodes.running_jobs import Started
from outrider.service.desk.nodes.state import NodeStatus, image_of
from outrider.service.desk.nodes.watch import NodeWatch
from outrider.service.desk.reconcile.foreign_use import ForeignUse
from outrider.service.desk.reconcile.inquiries import BATCH_SYSTEM
from outrider.service.desk.reconcile.steering import Steering
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.reservations.lifecycle import ReservationLifecycle
from outrider.service.desk.reservations.repair import ReservationRepair
from outrider.service.desk.state.node_list import is_part
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log
from outrider.service.requests import Caller

SERVICE = Caller(uid=0, user="outriderd", is_admin=True)
PATIENCE_S = 60
"""How long a reservation of ours may be missing before it counts as lost."""
FRESH_S, SOON_S = 2, 120
"""What begins within `SOON_S` is promised by a look that is no older than `FRESH_S`."""
MOST_RESTORED = 1
STRANGE = (
    "if no copy of the store was put back, another outriderd with another store works on this batch system; "
    "stop it, since both steer the same jobs"
)
MOST_DIGITS = 12
"""Of a reservation's number."""


class Reconciler:
    """What was seen, and what it means."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        admission: ReservationAdmission,
        copies: ReservationCopies,
        troubles: Troubles,
        repair: ReservationRepair,
        lifecycle: ReservationLifecycle,
        watch: NodeWatch,
        preemptible: PreemptibleJobs,
        started: Callable[[], Iterable[Started]],
        log: Log,
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._admission = admission
        self._copies = copies
        self._troubles = troubles
        self._repair = repair
        self._foreign_use = ForeignUse(site, troubles, preemptible, started)
        self._watch = watch
        self._lifecycle = lifecycle
        self._steering = Steering(site, log)
        self._log = log
        self._reported: set[str] = set()
        self._nodes: tuple[RmsNode, ...] = ()
        self._states: dict[str, NodeState] = {}
        """As the last look showed them."""
        self._seen_s = 0
        self._unheard: set[str] = set()
        """Nodes that had never spoken when somebody had waited for them long enough."""

    def seen(self, sight: Sight, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Take in a look at the batch system; what was found to differ, in words. `asked` are the nodes
        whose daemons were asked for with it."""
        self._site.seen_jobs, self._seen_s = sight.jobs, self._site.now_s
        silent = self._watch.silent()
        self._watch.looked(asked, sight.silent)
        self._judge(name for name in (*silent, *asked))
        findings = [*self._look_at_nodes(sight.nodes), *self._foreign_use.look(sight), *self._ours(sight)]
        for words in findings:
            if words not in self._reported:
                self._log.warning("reconciler found", words=words)
        self._reported = set(findings)
        self._steering.seen(self._admission.policies)
        return tuple(findings)

    def reserved(self, name: str) -> None:
        """The batch system has made a reservation of ours. If that has lost its place, its nodes are given
        away all the same: they are promised to nobody else, even if the next look is long in coming."""
        live = self._site.live.get(name)
        if live is None or name in self._site.book.entries:
            return
        wanted = live.reservation
        resources = wanted.workspace.resources
        taken = resources if is_part(resources) else None
        for words in self._foreign_use.reserved(name, wanted.nodes, wanted.start_s, wanted.end_s, taken):
            self._log.warning("reconciler found", words=words)

    def doubts(self, plan: ReservationPlan) -> dict[str, int]:
        """What has begun to run since the last look may have nodes of a plan, and for one that begins soon
        there is no time to find others: the batch system is looked at first."""
        now_s = self._site.now_s
        is_sure = plan.start_s > now_s + SOON_S or now_s <= self._seen_s + FRESH_S
        return {} if is_sure else {BATCH_SYSTEM: 0}

    def busy_until_s(self, nodes: Iterable[str]) -> int:
        """Until when jobs that cannot be requeued have any of these nodes; 0 if none has."""
        return self._foreign_use.busy_until_s(nodes)

    def about_to_promise(self) -> None:
        """Somebody asks for nodes: what has to go first needs its time from now on."""
        for words in self._foreign_use.leave_in_time():
            self._log.warning("reconciler found", words=words)

    def presence(self, status: NodeStatus) -> None:
        """A node has answered, or has not: one that is silent for long is promised to nobody."""
        self._judge([status.name])

    def doubt_unheard(self) -> None:
        """Somebody has waited for nodes in vain: those that have never spoken are promised to nobody."""
        statuses = self._node_orders.statuses.items()
        self._unheard = {name for name, each in statuses if each.heard_s is None}
        self._judge(self._unheard)

    def pool(self, status: NodeStatus) -> tuple[str, ...]:
        """A node has said which images it has."""
        site = self._site
        number = site.book.timeline.number_of.get(status.name)
        if number is None:
            return ()
        held = [
            Lingering(
                key=image.digest,
                size_bytes=image.size_bytes,
                added_s=image.added_s,
                uses=image.uses,
                last_use_s=image.last_use_s,
                next_use_s=None,
            )
            for image in status.images.values()
        ]
        private = {image.digest for image in status.images.values() if not image.is_public}
        missing = note_pool(site.book, status.name, held, site.now_s, private=private)
        for key in awaited(site.book, status.name):
            if (found := status.images.get(key)) is not None:
                self._copies.came_by_itself(status.name, image_of(found))
        return tuple(f"node {status.name} does not have image {key}, which is counted on" for key in missing)

    def _look_at_nodes(self, nodes: tuple[RmsNode, ...]) -> Iterator[str]:
        """Which of the nodes can be promised. Where nothing is new, those that are silent may be away by
        now; of the others `presence` is told."""
        site = self._site
        if nodes is not self._nodes:
            self._nodes, self._states = nodes, {node.name: node.state for node in nodes}
            names = [node.name for node in site.book.timeline.nodes]
        else:
            names = list(self._node_orders.silent)
        self._judge(names)
        for name, state in self._states.items():
            if state is not NodeState.UP:
                yield f"node {name} is {state.value}"

    def _judge(self, names: Iterable[str]) -> None:
        """See for each of these nodes whether it can be promised."""
        for name in names:
            number = self._site.book.timeline.number_of.get(name)
            if number is not None:
                words = self._fault(name)
                self._mark(number, name, not words, words)

    def _fault(self, name: str) -> str:
        """Why a node cannot be promised now; empty if it can be."""
        site, status = self._site, self._node_orders.statuses.get(name)
        state = self._states.get(name, NodeState.DOWN if self._states else NodeState.UP)
        if state is not NodeState.UP:
            return f"node {name} is {state.value}"
        if status is not None and status.is_away(site.now_s, site.settings.away_after_s):
            return _silence(status)
        if status is not None and name in self._unheard and is_unknown(site.book, status):
            return f"node {name} has not said yet how large its pool is"
        if self._watch.is_silent(name):
            return f"the batch system's daemon on {name} does not answer"
        return ""

    def _mark(self, number: int, name: str, is_usable: bool, words: str) -> None:
        """A node can be promised, or cannot any more."""
        site = self._site
        was_usable = bool(site.book.available >> number & 1)
        if is_usable == was_usable:
            return
        if is_usable:
            site.book.available |= 1 << number
            self._log.info("node is back", node=name)
            for live in site.live.values():
                if name in live.nodes:
                    self._repair.again(live.name)
            return
        site.book.available &= ~(1 << number)
        self._log.warning("node is gone", node=name, words=words)
        for live in site.live.values():
            if name in live.nodes and live.reservation.end_s > site.now_s:
                self._troubles.note(live.name, words)

    def _ours(self, sight: Sight) -> Iterator[str]:
        site = self._site
        seen = {each.name: each for each in sight.reservations if each.is_ours}
        for live in list(site.live.values()):
            if not live.is_confirmed or live.record.state.is_final or live.reservation.end_s <= site.now_s:
                continue
            there = seen.get(live.name)
            if there is None:
                yield from self._missing(live)
            else:
                live.missing_since_s, live.key = None, there.key
                if not _agrees(there, live, site.now_s):
                    self._admission.confirm(live)
                    yield f"reservation {live.name} is different in the batch system: it is corrected there"
        others = sorted(seen.keys() - site.live.keys())
        self._node_orders.earlier.keep_for_reservations(
            name for name in others if site.store.reservation(name) is None
        )
        for name in others:
            yield from self._orphan(name)

    def _missing(self, live: Live) -> Iterator[str]:
        site = self._site
        if live.missing_since_s is None:
            live.missing_since_s = site.now_s
            return
        if site.now_s - live.missing_since_s < min(PATIENCE_S, site.settings.look_every_s):
            return
        live.missing_since_s = None
        if live.restored >= MOST_RESTORED:
            yield f"reservation {live.name} was deleted in the batch system again: it is cancelled"
            self._lifecycle.cancel(live, SERVICE, "an administrator deleted it in the batch system")
            return
        live.restored += 1
        site.note("reconcile", live.name, "restored", "the batch system had lost it")
        self._admission.confirm(live)
        yield f"reservation {live.name} was not in the batch system: it is put back"

    def _orphan(self, name: str) -> Iterator[str]:
        """The batch system has one of ours that is over, or that we know nothing of."""
        site = self._site
        if site.store.waiting_effects(name):
            return
        past = site.store.reservation(name)
        if past is None:
            # A copy of the store was put back: its name is somebody's, and is not given again.
            number = name.rpartition("-")[2].partition(".")[0]
            if number.isascii() and number.isdecimal() and len(number) < MOST_DIGITS:
                site.skip_numbers(int(number))
            yield f"reservation {name} is in the batch system, and nothing is known of it: {STRANGE}"
            return
        site.todo([orphan_effect(name, site.now_s)])
        yield f"reservation {name} is over, and was still in the batch system: it is deleted there"


def _silence(status: NodeStatus) -> str:
    """That a pool does not answer, and what came instead of an answer."""
    return f"the pool of {status.name} does not answer" + (f": {status.words}" if status.words else "")


def _agrees(there: RmsReservation, live: Live, now_s: int) -> bool:
    reservation = live.reservation
    # It is moved on as long as its event is waited for.
    is_begun = reservation.start_s <= now_s or live.waits
    return (
        set(there.nodes) == set(reservation.nodes)
        and there.end_s == reservation.end_s
        and (is_begun or there.start_s == reservation.start_s)
        and live.record.owner.user in there.users
        and _has_size(there, reservation.workspace.resources)
    )


def _has_size(there: RmsReservation, resources: Resources) -> bool:
    """Whether it has what it should of each node, as far as the batch system says: parts that are all of a
    node may be shown as whole ones."""
    if there.is_whole or not is_part(resources):
        return there.is_whole
    return all(amount == resources[name] for name, amount in there.size.amounts)
