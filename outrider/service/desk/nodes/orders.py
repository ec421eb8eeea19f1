"""What each node is to have, what it was told, and what it said: orders by level, not by edge.

A *need* is a reservation's need of its image on one node. As long as it stands, its node is told
again and again until the image is there and pinned; so a lost message, a node that was away or a
service that died are no special cases. Nothing here knows why something is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from outrider.service.desk.nodes import copies
from outrider.service.desk.nodes.earlier_pins import EarlierPins
from outrider.service.desk.nodes.events import Arrived, Failed, Missed, Moved, News
from outrider.service.desk.nodes.sources import (
    Provers,
    chain_of,
    is_to_begin_anew,
    may_be_told,
    patience_s,
    proof_of,
    rate_of,
    sources,
)
from outrider.service.desk.nodes.state import WATCHED_AWAY_S, Need, NodeStatus
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.ports import (
    READ,
    Arriving,
    Copy,
    Fetch,
    Move,
    NodeReport,
    Order,
    Pin,
    Release,
    Stop,
    TellNode,
    Unpin,
)
from outrider.service.settings import Settings

LOST_CALL_S = 180
"""After so long without an answer a call is taken for lost, and the node is told anew."""
MOST_ORDERS = 64
"""Orders in one call; the rest follow in the next."""
RETRY_S, MOST_RETRY_S = 5, 120
FIRST_PER_S = 50
"""So many nodes a second are asked for the first time."""
DISK = "disk"
"""The node's word for a disk that refuses: full, over its quota, read-only, broken."""
FULL_S = 600
"""For so long a pool whose disk has refused an image is promised no more than it has."""


class NodeOrders:
    """All nodes."""

    def __init__(self, settings: Settings, agenda: Agenda) -> None:
        self._settings = settings
        self._agenda = agenda
        self.statuses: dict[str, NodeStatus] = {}
        self.silent: dict[str, NodeStatus] = {}
        """Those that have not answered when they were last spoken to."""
        self._ready: dict[str, None] = {}
        """Nodes whose turn it is, in their order; each once, however often it was planned."""
        # By node and owner, the node that waits for that one to have been told.
        self._behind: dict[tuple[str, str], str] = {}
        self.copiers = copies.Copiers()
        self._under_way = 0
        self._number = 0
        self.earlier, self._provers = EarlierPins(), Provers()

    def assemble(self, names: Collection[str], owners: Mapping[str, Collection[str]], now_s: int) -> None:
        """These are the site's nodes, and only these owners have needs, each on its nodes; what is known
        of them stays. What else a node was told to keep is taken away when it says what it has.

        New nodes are asked what they have, though not all at once.
        """
        self.earlier.begin()
        for name in [name for name in self.statuses if name not in names]:
            status = self.statuses.pop(name)
            self.silent.pop(name, None)
            self._under_way -= status.call is not None
        for number, name in enumerate(names):
            if name not in self.statuses:
                delay_s = min(number // FIRST_PER_S, self._settings.reconcile_every_s // 2)
                self.statuses[name] = NodeStatus(name=name, compare_s=now_s + delay_s)
        for status in self.statuses.values():
            for owner in [owner for owner in status.needs if status.name not in owners.get(owner, ())]:
                del status.needs[owner]
            self._plan(status, now_s)
        self._behind = {key: node for key, node in self._behind.items() if key[1] in owners}

    def need(self, node: str, need: Need, now_s: int) -> None:
        """A reservation needs its image here from now on; what was known of the same need stays."""
        status = self.statuses.get(node)
        if status is None:
            return
        before = status.needs.get(need.owner)
        if before is not None and before.digest == need.digest:
            need.take_over(before)
        need.since_s = need.next_s = now_s
        status.needs[need.owner] = need
        if need.upstream:
            self._behind[need.upstream[0], need.owner] = node
        if not need.layers:  # Of those the node is to hold no more than they are.
            status.unpins.pop((need.digest, need.owner), None)
        begins_anew = status.stops.pop(need.digest, False)
        status.has_new |= before is None
        # Of an image in layers what was there was held before its transfer began.
        is_new = before is None or before.transfer is None
        if begins_anew or (is_new and is_to_begin_anew(status, need)):
            status.begin_anew(need.digest, now_s)
        self._plan(status, now_s)

    def drop(self, node: str, owner: str, now_s: int, *, is_stopped: bool = False, after_s: int = 0) -> None:
        """A reservation needs nothing here any more. `is_stopped`: what is under way may end, too. A full
        copy that was made for it stays for `after_s`: its job may just be about to take it."""
        status = self.statuses.get(node)
        need = status.needs.pop(owner, None) if status is not None else None
        if status is None or need is None:
            return
        if need.upstream:
            self._behind.pop((need.upstream[0], owner), None)
        self._provers.forget(node, owner)
        status.unpins[need.digest, owner] = now_s + (after_s if need.is_copied else 0)
        others = [other for other in status.needs.values() if other.digest == need.digest]
        for other in others:
            if other.transfer is not None and not other.is_there:
                # It may have come with the rate of the one that is gone.
                other.is_told, other.next_s = False, now_s
        if is_stopped and not need.is_there and not others:
            status.stops[need.digest] = False
        self._plan(status, now_s)

    def promise(self, node: str, promised_bytes: int, now_s: int) -> None:
        """So many bytes of a node's pool are promised from now on. It is told at once if users could take
        them until then; what they never get, and less than before, when the node is spoken to anyhow."""
        status = self.statuses.get(node)
        if status is None or promised_bytes == status.promised_bytes:
            return
        status.promised_bytes = promised_bytes
        # One that has not spoken yet is about to be asked, and keeps what it was told before.
        if status.room is not None and promised_bytes > max(status.kept_bytes, status.room.spared_bytes):
            status.promise_s = now_s
            self._plan(status, now_s)

    def spared_bytes(self, node: str) -> int:
        """How much of a node's pool it leaves to users in no case, as far as it has said."""
        status = self.statuses.get(node)
        return 0 if status is None or status.room is None else status.room.spared_bytes

    def keep_for(self, ticket: int, node: str, size_bytes: int, now_s: int) -> None:
        """Let a node keep so much, and say what others hold, while a request is not decided."""
        status = self.statuses.get(node)
        if status is not None:
            status.tentative[ticket] = size_bytes
            status.promise_s = now_s
            # Somebody waits: even if it was spoken to in this very second.
            self._plan_at(status, now_s)

    def decided(self, ticket: int, nodes: Iterable[str]) -> None:
        """A request is decided: what was kept for it alone is not kept on."""
        for name in nodes:
            status = self.statuses.get(name)
            if status is not None:
                status.tentative.pop(ticket, None)

    def release(self, node: str, owner: str, now_s: int) -> None:
        """Let a node have no instance of an owner's any more."""
        status = self.statuses.get(node)
        if status is not None:
            status.releases.setdefault(owner, now_s)
            self._plan(status, now_s)

    def has_copy(self, node: str, owner: str) -> bool:
        """Whether a node has said that what a reservation needs is there."""
        status = self.statuses.get(node)
        need = None if status is None else status.needs.get(owner)
        return need is not None and need.is_there

    def is_prepared(self, node: str, owner: str) -> bool:
        """Whether a job that needs it can start there: it is there, and a copy of it where that is needed."""
        status = self.statuses.get(node)
        return status is not None and copies.is_prepared(status, owner)

    def has_spoken(self, node: str) -> bool:
        """Whether a node has answered at all since the service was started."""
        status = self.statuses.get(node)
        return status is not None and status.heard_s is not None

    def hurry(self, node: str, owner: str, now_s: int) -> None:
        """Tell a node about a need now, whatever was said when."""
        status = self.statuses[node]
        status.needs[owner].next_s = now_s
        self._plan(status, now_s)

    def set_rate(self, node: str, transfer: int, rate_bytes_per_s: int, now_s: int) -> None:
        """Let a transfer that is under way to a node take so much of the link from now on."""
        status = self.statuses.get(node)
        if status is None:
            return
        for need in status.needs_of(transfer):
            if not need.is_there:
                chain = chain_of(status, need.digest)
                need.rate_bytes_per_s, need.is_told = rate_bytes_per_s, False
                if chain_of(status, need.digest) != chain:
                    status.begin_anew(need.digest, now_s)
                self.hurry(node, need.owner, now_s)

    def watch(self, node: str, now_s: int, until_s: int) -> None:
        """Ask a node now whether it is there; until then its silence counts for more than elsewhere."""
        status = self.statuses.get(node)
        if status is not None:
            status.watch_s, status.watched_until_s = now_s, until_s
            self._plan(status, now_s)

    def compare_all(self, now_s: int) -> None:
        """Ask every node what it has."""
        for status in self.statuses.values():
            status.compare_s = now_s
            self._plan(status, now_s)

    def due(self, node: str, at_s: int) -> None:
        """The agenda says that it is time for a node."""
        status = self.statuses.get(node)
        if status is None or status.due_s != at_s:
            return
        status.due_s = None
        if status.call is not None:
            if at_s < (lost_s := status.called_s + LOST_CALL_S):
                # Its answer will say what is next; should none come, it is told anew.
                self._plan_at(status, lost_s)
                return
            # Given up here, since it may be one of those that keep all others from being called.
            status.call = None
            self._under_way -= 1
        self._ready[node] = None

    def calls(self, now_s: int) -> Iterator[TellNode]:
        """What is to be said to nodes now, as many at once as may be."""
        while self._ready and self._under_way < self._settings.most_calls:
            name = next(iter(self._ready))
            del self._ready[name]
            status = self.statuses.get(name)
            if status is None:
                continue
            if status.call is not None:
                self._plan_at(status, status.called_s + LOST_CALL_S)
                continue
            self._number += 1
            call = TellNode(
                node=status.name,
                orders=tuple(self._orders(status, now_s))[:MOST_ORDERS],
                wants_images=status.compare_s <= now_s,
                wants_machines=self._settings.allows_machines,
                number=self._number,
                promised_bytes=status.to_keep_bytes if status.to_keep_bytes or status.kept_bytes else None,
                promised_until_s=now_s + self._settings.pin_lease_s,
            )
            status.call, status.called_s, status.has_new = call, now_s, False
            self._under_way += 1
            # Should no answer come, it is told anew.
            status.due_s = None
            self._plan_at(status, now_s + LOST_CALL_S)
            yield call

    def heard(self, call: TellNode, report: NodeReport | None, words: str, now_s: int) -> list[News]:
        """A call has come back: with a report, or with words about why there is none."""
        status = self.statuses.get(call.node)
        if status is None or status.call is None or status.call.number != call.number:
            return []
        status.call = status.watch_s = None
        self._under_way -= 1
        if report is None:
            return self._silent(status, words, now_s)
        status.heard_s, status.silent_since_s, status.failures, status.words = now_s, None, 0, ""
        self.silent.pop(status.name, None)
        status.limit_bytes, status.used_bytes = report.limit_bytes, report.used_bytes
        status.is_missed, status.arriving = False, report.arriving
        status.hear_machines(report, now_s, self._settings.consolidate_every_s)
        status.hear_promised(call, now_s, self._settings.pin_lease_s)
        self.copiers.heard(status, report.room)
        status.room = report.room or status.room
        if report.images is not None:
            status.images, status.come = {image.digest: image for image in report.images}, {}
            self._forget_others(status, now_s)
            status.compare_s = now_s + self._settings.reconcile_every_s
        news = self._results(status, report, now_s)
        if report.images is not None:
            news += self._gone(status, now_s)
        self._plan(status, now_s)
        return news

    def _gone(self, status: NodeStatus, now_s: int) -> list[News]:
        """Images that were there, and that the node does not have any more; a pin that is gone is renewed."""
        news: list[News] = []
        for need in status.needs.values():
            image = status.images.get(need.digest)
            if need.is_there and image is None:
                need.is_there, need.is_told, need.next_s = False, False, now_s
                news.append(Missed(node=status.name, owner=need.owner))
            elif need.is_there and image is not None:
                need.see(now_s)
                need.next_s = need.next_s if need.owner in image.owners else now_s
        return news

    def _forget_others(self, status: NodeStatus, now_s: int) -> None:
        """Of what a service that was killed wanted: nobody's pins go, and so does what arrives for nobody."""
        shown = [(each.digest, each.owners) for each in status.images.values()]
        shown += [(each.digest, each.owners) for each in status.arriving]
        for digest, owners in shown:
            for owner in owners:
                need = status.needs.get(owner)
                if (need is None or need.digest != digest) and not self.earlier.stay(owner, now_s):
                    status.unpins.setdefault((digest, owner), now_s)
        needed = {need.digest for need in status.needs.values()}
        for each in status.arriving if self.earlier.is_all_known(now_s) else ():
            if each.digest not in needed and not each.has_failed:
                status.stops[each.digest] = False

    def _silent(self, status: NodeStatus, words: str, now_s: int) -> list[News]:
        status.failures += 1
        status.words = words
        if status.silent_since_s is None:
            status.silent_since_s = now_s
        is_long = now_s - status.silent_since_s >= WATCHED_AWAY_S
        status.is_missed = status.is_missed or (is_long and status.watched_until_s > now_s)
        self.silent[status.name] = status
        wait_s = min(RETRY_S * 2 ** min(status.failures - 1, 8), MOST_RETRY_S)
        status.compare_s = max(status.compare_s, now_s + wait_s)
        for need in status.needs.values():
            need.next_s = max(need.next_s, now_s + wait_s)
            need.rate = 0
        if status.promise_s is not None:
            status.promise_s = now_s + wait_s
        for key in status.unpins:
            status.unpins[key] = now_s + wait_s
        for owner in status.releases:
            status.releases[owner] = now_s + wait_s
        self._plan(status, now_s)
        return [Failed(node=status.name, owner=need.owner) for need in status.needs.values() if need.transfer]

    def _results(self, status: NodeStatus, report: NodeReport, now_s: int) -> list[News]:
        news: list[News] = []
        arriving = {each.digest: each for each in report.arriving}
        for result in report.results:
            order = result.order
            assert not isinstance(order, Move), "whoever moves a machine asks by itself"
            if isinstance(order, Stop):
                status.stops.pop(order.digest, None)
            elif isinstance(order, Release):
                status.releases.pop(order.owner, None)  # Else it is there again at the next comparison.
            elif isinstance(order, Unpin):
                if not result.code or result.code == "missing":
                    status.unpins.pop((order.digest, order.owner), None)
                else:
                    status.unpins[order.digest, order.owner] = now_s + RETRY_S
            elif (need := status.needs.get(order.owner)) is None or need.digest != order.digest:
                continue
            elif isinstance(order, Copy):
                news += copies.told(status, need, result, now_s)
            else:
                news += self._result(status, need, order, result.code, result.words, arriving, now_s)
        return news

    def _result(
        self,
        status: NodeStatus,
        need: Need,
        order: Fetch | Pin,
        code: str,
        words: str,
        arriving: dict[str, Arriving],
        now_s: int,
    ) -> list[News]:
        if isinstance(order, Fetch):
            if code == DISK:
                status.full_until_s = now_s + FULL_S
            self._provers.told(status.name, need, code, words)
            if code:
                return self._failed(status, need, code, words, now_s)
            # It may have to come at another rate, or by another way, since the call went out.
            terms = rate_of(status, need, self._settings), need.deadline_s
            is_same = (order.rate_bytes_per_s, order.deadline_s) == terms
            need.is_told = is_same and order.digest not in status.stops
            need.told_until_s = order.until_s
            behind = self.statuses.get(self._behind.pop((status.name, order.owner), ""))
            if behind is not None:
                # At once, lest an image take a second longer for each node of a chain.
                self._plan(behind, now_s)
            return []
        if not code and need.is_barred:
            # It is there, and pinned, and not for whoever needs it.
            need.rate = 0
            return []
        if not code:
            status.full_until_s = status.full_until_s if need.is_there else 0
            was_there = need.see(now_s)
            status.come[need.digest] = need
            need.arrived_bytes, need.rate, need.failures, need.words = need.size_bytes, 0, 0, ""
            need.told_until_s = order.until_s
            # What lasts as long as it is needed is not renewed.
            lease_s = self._settings.pin_lease_s
            renewed_s = order.until_s - lease_s // 2 if order.until_s < need.until_s else order.until_s
            need.next_s = max(now_s + 1, copies.next_s(status, need, now_s, renewed_s))
            return [] if was_there else [Arrived(node=status.name, owner=need.owner)]
        if code not in ("missing", READ):
            return self._failed(status, need, code, words, now_s)
        was_there, need.is_there = need.is_there, False
        if need.transfer is None or was_there:
            need.next_s = now_s + (self._settings.pin_lease_s // 2 if need.layers else RETRY_S)
            return [] if need.layers or code == READ else [Missed(node=status.name, owner=need.owner)]
        found = arriving.get(need.digest)
        if found is not None and found.has_failed:
            return self._failed(status, need, found.code, found.words, now_s)
        if found is None:
            need.rate = 0
        else:
            need.arrived_bytes, need.rate = found.arrived_bytes, found.rate_bytes_per_s
            need.source = found.source or need.source
        wait_s = patience_s(need, now_s, self._settings.progress_every_s)
        # What was changed while the node was being told is said at once.
        need.next_s = now_s + (1 if found is not None and not need.is_told else wait_s)
        # If the node knows nothing of it (any more), it is to be told.
        need.is_told = need.is_told and found is not None
        return [Moved(node=status.name, owner=need.owner)]

    def _failed(self, status: NodeStatus, need: Need, code: str, words: str, now_s: int) -> list[News]:
        need.failures += 1
        need.rate = 0
        need.code, need.words = code, words or code
        need.is_told = False
        wait_s = min(RETRY_S * 2 ** min(need.failures - 1, 8), MOST_RETRY_S)
        need.next_s = now_s + (1 if need.is_barred and not need.has_failed_often else wait_s)
        return [Failed(node=status.name, owner=need.owner)]

    def _orders(self, status: NodeStatus, now_s: int) -> Iterator[Order]:
        for digest in status.stops:
            yield Stop(digest=digest)
        for owner, at_s in status.releases.items():
            if at_s <= now_s:
                yield Release(owner=owner, has_machine=owner in status.machines)
        for (digest, owner), at_s in status.unpins.items():
            if at_s <= now_s:
                yield Unpin(digest=digest, owner=owner)
        for need in status.needs.values():
            # What is let go of takes those layers with it that are to stay.
            is_let_go = bool(need.layers) and status.unpins.get((need.digest, need.owner), now_s + 1) <= now_s
            if (need.next_s > now_s and not is_let_go) or not may_be_told(self.statuses, need, now_s):
                continue
            if need.is_barred and not self._provers.has_proof(self.statuses, status, need, now_s):
                continue
            until_s = min(need.until_s, now_s + self._settings.pin_lease_s)
            until_s = max(until_s, now_s + self._settings.grace_s)
            # Not again while it is under way: a transfer that has failed would begin anew, unnoticed.
            is_wanted = not need.is_told or until_s >= need.told_until_s + self._settings.pin_lease_s // 2
            if need.transfer is not None and not need.is_there and is_wanted:
                yield Fetch(
                    digest=need.digest,
                    uri=need.uri,
                    size_bytes=need.size_bytes,
                    sources=sources(self.statuses, status, need),
                    owner=need.owner,
                    until_s=until_s,
                    deadline_s=need.deadline_s,
                    rate_bytes_per_s=rate_of(status, need, self._settings),
                    format=need.format,
                    readers=need.readers,
                    proof=proof_of(need),
                )
            yield Pin(
                digest=need.digest,
                owner=need.owner,
                until_s=until_s,
                uri=need.uri,
                size_bytes=need.size_bytes,
                readers=need.readers,
                layers=need.layers,
            )
            if status.copies_for(need) and need.copy_from_s is not None and need.copy_from_s <= now_s:
                yield Copy(digest=need.digest, owner=need.owner, until_s=until_s)

    def _plan(self, status: NodeStatus, now_s: int) -> None:
        """When to speak to the node next."""
        instants = [status.compare_s, *status.unpins.values(), *status.releases.values()]
        instants += [
            need.next_s if may_be_told(self.statuses, need, now_s) else now_s + 1
            for need in status.needs.values()
        ]
        stops_s = now_s if status.stops else None
        instants += [at_s for at_s in (stops_s, status.promise_s, status.watch_s) if at_s is not None]
        # Once a second at most, whatever a node answers; what is new was asked for by somebody.
        self._plan_at(status, max(now_s, min(instants), now_s if status.has_new else status.called_s + 1))

    def _plan_at(self, status: NodeStatus, at_s: int) -> None:
        if status.due_s is None or at_s < status.due_s:
            status.due_s = at_s
            self._agenda.add(at_s, Topic.NODE, status.name)
