"""The nodes' pools and the bytes on their way to them, as far as the service can tell them from real ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from cachemgr.daemon.transfers.transfer import SLOW
from outrider.core.model import ImagePart
from outrider.service.ports import (
    COPYING,
    KNOWN,
    READ,
    Arriving,
    Copy,
    Fetch,
    NodeImage,
    NodeReport,
    NodeRoom,
    Order,
    OrderResult,
    Pin,
    Readers,
    Relay,
    Source,
    Stop,
    TellNode,
    Unpin,
)
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.pool import Flow, Pool, renew

STEP_MS = 1000
"""Between two looks at the bytes that move."""
COPY_S = 7
"""How long a node takes for a full copy."""


class Network:
    """All pools, the server that images come from, and what moves."""

    def __init__(
        self,
        clock: Clockwork,
        trace: Trace,
        random: Random,
        *,
        names: tuple[str, ...],
        limit_bytes: int,
        origin_rate: int,
        node_rate: int,
        wrong_digests: float,
        parts: dict[str, tuple[ImagePart, ...]] | None = None,
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._random = random
        self.pools = {name: Pool(name=name, limit_bytes=limit_bytes, parts=parts or {}) for name in names}
        self.origin_rate = origin_rate
        self.node_rate = node_rate
        self.wrong_digests = wrong_digests
        self.poisoned = ""
        """A node that passes on other bytes than it has, forever."""
        self.closed: frozenset[str] = frozenset()
        """What nobody gets without a right to it."""
        self.slow: dict[str, int] = {}
        """What some nodes can receive at most, in bytes a second."""
        self.is_origin_up = True
        self._moved_ms = 0
        self._is_moving = False

    def tell(self, call: TellNode) -> NodeReport:
        """What a node does with orders, and what it says then."""
        self.move()
        pool, now_s = self.pools[call.node], self._clock.now_s()
        if call.promised_bytes is not None:
            pool.promised = call.promised_bytes, call.promised_until_s
        results = tuple(self._carry_out(pool, order, now_s) for order in call.orders)
        self._keep_moving()
        return NodeReport(
            node=pool.name,
            at_s=now_s,
            limit_bytes=pool.limit_bytes,
            used_bytes=pool.used_bytes(),
            arriving=tuple(_arriving(flow, now_s) for flow in pool.flows.values()),
            images=pool.shown(now_s) if call.wants_images else None,
            results=results,
            room=NodeRoom(
                capacity_bytes=pool.limit_bytes,
                held=pool.held(now_s),
                users_bytes=pool.limit_bytes,
                copied_formats=("file",) if pool.is_copying else (),
            ),
        )

    def empty(self, name: str) -> None:
        """Somebody removes all images by hand."""
        self.move()
        pool = self.pools[name]
        pool.images.clear()
        pool.pins.clear()
        pool.copies.clear()
        pool.tampered_ms = self._clock.now_ms

    def service_was_away(self, absence_s: int) -> None:
        """It could not find out meanwhile what somebody has done to a pool."""
        for pool in self.pools.values():
            if pool.tampered_ms >= 0:
                pool.tampered_ms += absence_s * 1000

    def move(self) -> None:
        """Let bytes move up to now, a step at a time."""
        while self._moved_ms < self._clock.now_ms:
            step_ms = min(STEP_MS, self._clock.now_ms - self._moved_ms)
            flows = [
                (pool, flow)
                for pool in self.pools.values()
                if pool.is_up
                for flow in pool.flows.values()
                if not flow.has_failed
            ]
            if not flows:
                self._moved_ms = self._clock.now_ms
                return
            self._moved_ms += step_ms
            self._step(flows, step_ms)

    def _keep_moving(self) -> None:
        """Time has to be told while anything moves, so that what fails does so in time."""
        if not self._is_moving and any(
            not flow.has_failed for pool in self.pools.values() if pool.is_up for flow in pool.flows.values()
        ):
            self._is_moving = True
            self._clock.after(STEP_MS, self._moved, order=1)

    def _moved(self) -> None:
        self._is_moving = False
        self.move()
        self._keep_moving()

    def wake(self) -> None:
        """A node or the server is back: what was on its way goes on."""
        self._keep_moving()

    def _step(self, flows: list[tuple[Pool, Flow]], step_ms: int) -> None:
        for pool, flow in flows:
            flow.source = self._source(pool, flow)
        share = self._share_of_origin(flows)
        for pool, flow in sorted(flows, key=lambda each: -each[1].arrived_bytes):
            if flow.source is None:
                self._fail(pool, flow, "no source has it", keeps=True)
                continue
            rate = share
            most = flow.size_bytes
            if isinstance(flow.source, Relay):
                rate = self.node_rate
                above = self.pools[flow.source.node].flows.get(flow.digest)
                # Of an image in layers each lacks others.
                behind = 0 if above is None else above.size_bytes - above.arrived_bytes
                most = max(0, flow.size_bytes - behind)
            rate = min(rate, self._most_rate(pool, flow))
            before = flow.arrived_bytes
            flow.arrived_bytes = max(before, min(before + rate * step_ms // 1000, most))
            flow.rate = (flow.arrived_bytes - before) * 1000 // step_ms
            if flow.arrived_bytes >= flow.size_bytes:
                whole = self._opened if flow.is_read else self._complete
                whole(pool, flow)

    def _most_rate(self, pool: Pool, flow: Flow) -> int:
        """What a node can receive, and may."""
        rates = (self.slow.get(pool.name), flow.rate_bytes_per_s)
        return min((rate for rate in rates if rate is not None), default=self.origin_rate + self.node_rate)

    def _share_of_origin(self, flows: list[tuple[Pool, Flow]]) -> int:
        """What of the images' server's link a transfer has that could take more: an equal part of what
        those leave that are held back."""
        left = self.origin_rate
        wanted = sorted(self._most_rate(pool, flow) for pool, flow in flows if isinstance(flow.source, str))
        for taken, rate in enumerate(wanted):
            share = left // (len(wanted) - taken)
            if rate >= share:
                return share
            left -= rate
        return self.origin_rate

    def _complete(self, pool: Pool, flow: Flow) -> None:
        least_rate = 0 if flow.deadline_s is None else int(SLOW * (flow.rate_bytes_per_s or 1))
        missing = pool.missing(flow.digest, flow.deadline_s, self._clock.now_s(), least_rate)
        lacking = [part for part in missing if part not in flow.layers]
        if lacking:
            # It was to come for another image, which is gone, or less urgent by now, or slow.
            flow.layers = (*flow.layers, *lacking)
            flow.size_bytes += sum(part.size_bytes for part in lacking)
            return
        here = {*pool.images, *(part.key for part in flow.layers)}
        if any(part.key not in here for part in pool.parts.get(flow.digest, ())):
            # It still comes for another one.
            return
        pool.brought_bytes[flow.digest] = pool.brought_bytes.get(flow.digest, 0) + max(1, flow.size_bytes)
        is_poisoned = isinstance(flow.source, Relay) and flow.source.node == self.poisoned
        if is_poisoned or (self.wrong_digests and self._random.random() < self.wrong_digests):
            flow.arrived_bytes = 0
            self._fail(pool, flow, "its digest is another")
            return
        if flow.readers is None and flow.digest in self.closed:
            raise Violation(f"{pool.name} has {flow.digest[7:11]} for everybody, which not everybody gets")
        del pool.flows[flow.digest]
        now_s = self._clock.now_s()
        for part in flow.layers:
            pool.images[part.key] = NodeImage(
                digest=part.key, size_bytes=part.size_bytes, added_s=now_s, last_use_s=now_s
            )
        pool.images[flow.digest] = NodeImage(
            digest=flow.digest,
            # Of layers, the manifest: next to nothing, which is not counted.
            size_bytes=1 if flow.digest in pool.parts else flow.size_bytes,
            uri=flow.uri,
            added_s=now_s,
            last_use_s=now_s,
            is_public=flow.readers is None,
            readers=None if flow.readers is None else Readers(uids=tuple(sorted(flow.readers))),
        )
        for owner, until_s in flow.owners.items():
            pool.pin(flow.digest, owner, until_s)
        self._trace.note(f"node {pool.name} has {flow.digest[7:11]}")

    def _fail(self, pool: Pool, flow: Flow, words: str, *, keeps: bool = False) -> None:
        flow.has_failed, flow.words, flow.rate = True, words, 0
        self._trace.note(f"node {pool.name} fails {flow.digest[7:11]}: {words}")

    def _source(self, pool: Pool, flow: Flow) -> Source | None:
        for source in flow.sources:
            if isinstance(source, str):
                if self.is_origin_up:
                    return source
            elif self._passes_on(source, pool.name):
                return source
        return None

    def _passes_on(self, source: Relay, to: str) -> bool:
        """Whether a node has something to pass on that does not come from the one that asks."""
        seen = {to}
        name = source.node
        while name not in seen:
            seen.add(name)
            pool = self.pools.get(name)
            if pool is None or not pool.is_up:
                return False
            if pool.has(source.digest):
                return True
            flow = pool.flows.get(source.digest)
            if flow is None or flow.has_failed:
                return False
            if not isinstance(flow.source, Relay):
                return flow.source is not None or self.is_origin_up
            name = flow.source.node
        return False

    def _carry_out(self, pool: Pool, order: Order, now_s: int) -> OrderResult:
        code = ""
        if isinstance(order, Fetch):
            code = self._fetch(pool, order, now_s)
        elif isinstance(order, Pin):
            if order.layers:
                pool.pin_layers(order.digest, order.owner, order.until_s, order.layers)
                code = "missing"
            elif pool.has(order.digest):
                pool.pin(order.digest, order.owner, order.until_s)
                code = self._let_in(pool, order)
            else:
                code = "missing"
        elif isinstance(order, Copy) and pool.has(order.digest):
            made_s = pool.copies.setdefault((order.digest, order.owner), now_s + COPY_S)
            code = COPYING if made_s > now_s else ""
        elif isinstance(order, Copy):
            code = "missing"
        elif isinstance(order, Unpin):
            pool.copies.pop((order.digest, order.owner), None)
            pool.unpin(order.digest, order.owner)
            flow = pool.flows.get(order.digest)
            if flow is not None:
                flow.owners.pop(order.owner, None)
            elif order.digest not in pool.images:
                code = "missing"
        elif isinstance(order, Stop):
            for key in [key for key, flow in pool.flows.items() if flow.digest == order.digest]:
                del pool.flows[key]
        words = code and f"{code} on {pool.name}"
        if isinstance(order, Fetch) and not code and _reading(order) in pool.flows:
            words = READ
        return OrderResult(order=order, code=code, words=words)

    def _fetch(self, pool: Pool, order: Fetch, now_s: int) -> str:
        if pool.has(order.digest):
            pool.pin(order.digest, order.owner, order.until_s)
            code = self._let_in(pool, order)
            return self._read(pool, order) if code and order.proof == READ else code
        # What is there of it stays.
        pool.pin_layers(order.digest, order.owner, order.until_s)
        flow = pool.flows.get(order.digest)
        if flow is None:
            layers = pool.missing(order.digest, order.deadline_s, now_s)
            is_layered = order.digest in pool.parts
            size_bytes = sum(part.size_bytes for part in layers) if is_layered else order.size_bytes
            if not self._make_room(pool, size_bytes, now_s):
                pool.unpin(order.digest, order.owner)
                return "no-room"
            flow = pool.flows[order.digest] = Flow(
                digest=order.digest,
                uri=order.uri,
                size_bytes=size_bytes,
                layers=layers,
                sources=order.sources,
                owners={},
                rate_bytes_per_s=order.rate_bytes_per_s,
                readers=None if order.readers is None else set(),
            )
        renew(flow.owners, order.owner, order.until_s)
        # Who joins brings its sources along; what runs goes on with what it has.
        known = () if flow.has_failed else flow.sources
        flow.sources = (*known, *(each for each in order.sources if each not in known))
        flow.rate_bytes_per_s = order.rate_bytes_per_s
        if order.deadline_s is not None:
            flow.deadline_s = min(order.deadline_s, flow.deadline_s or order.deadline_s)
        flow.has_failed = False
        if flow.readers is not None and order.readers is not None:
            flow.readers.update(order.readers.uids)
        is_shut_out = flow.readers is not None and order.readers is None and order.digest in self.closed
        return "not-allowed" if is_shut_out else ""

    def _read(self, pool: Pool, order: Fetch) -> str:
        """Read what is there for others where whoever needs it has it from."""
        flow = pool.flows.setdefault(
            _reading(order),
            Flow(
                digest=order.digest,
                uri=order.uri,
                size_bytes=order.size_bytes,
                sources=(order.uri,),
                owners={},
                rate_bytes_per_s=order.rate_bytes_per_s,
                readers=None if order.readers is None else set(order.readers.uids),
                is_read=True,
            ),
        )
        if flow.readers is not None:
            flow.readers = None if order.readers is None else flow.readers | set(order.readers.uids)
        if flow.has_failed:
            flow.has_failed, flow.arrived_bytes = False, 0
        renew(flow.owners, order.owner, order.until_s)
        flow.rate_bytes_per_s = order.rate_bytes_per_s
        return ""

    def _opened(self, pool: Pool, flow: Flow) -> None:
        """It has been read: the address gives these bytes."""
        for key in [key for key, each in pool.flows.items() if each is flow]:
            del pool.flows[key]
        image = pool.images.get(flow.digest)
        if image is None or (flow.readers is None and flow.digest in self.closed):
            return
        known = () if image.readers is None else image.readers.uids
        readers = None if flow.readers is None else Readers(uids=tuple(sorted({*known, *flow.readers})))
        pool.read_at.setdefault(flow.digest, set()).add(flow.uri)
        if not image.is_public:
            pool.images[flow.digest] = replace(image, is_public=readers is None, readers=readers)
        self._trace.note(f"node {pool.name} has read {flow.digest[7:11]}")

    def _let_in(self, pool: Pool, order: Fetch | Pin) -> str:
        """An image that is there for others alone is for everybody, too, if everybody gets it where it comes
        from; and for whoever has shown a right to it there, or at another address."""
        image = pool.images[order.digest]
        if image.is_public:
            return ""
        is_known = isinstance(order, Fetch) and order.proof == KNOWN
        is_reader = order.readers is not None and set(order.readers.uids) <= set(
            () if image.readers is None else image.readers.uids
        )
        addresses = {image.uri, *pool.read_at.get(order.digest, ())}
        if order.uri not in addresses and not is_known and not is_reader:
            reading = pool.flows.get(_reading(order)) if isinstance(order, Pin) else None
            if reading is not None:
                return "source-failed" if reading.has_failed else READ
            return "not-allowed"
        if order.readers is None:
            if order.digest in self.closed:
                return "not-allowed"
            pool.images[order.digest] = replace(image, is_public=True, readers=None)
            return ""
        known = () if image.readers is None else image.readers.uids
        uids = tuple(sorted({*known, *order.readers.uids}))
        pool.images[order.digest] = replace(image, readers=Readers(uids=uids))
        return ""

    def _make_room(self, pool: Pool, size_bytes: int, now_s: int) -> bool:
        """Remove what nobody needs, the longest unused first, until there is room. Before that goes what has
        failed to arrive and is for nobody."""
        for digest, flow in list(pool.flows.items()):
            if flow.has_failed and all(until_s <= now_s for until_s in flow.owners.values()):
                del pool.flows[digest]
        spare = [each for each in pool.images.values() if not pool.pinned(each.digest, now_s)]
        spare.sort(key=lambda each: (each.last_use_s, each.digest))
        free = pool.limit_bytes - pool.used_bytes()
        if free + sum(each.size_bytes for each in spare) < size_bytes:
            return False
        for each in spare:
            if free >= size_bytes:
                break
            del pool.images[each.digest]
            pool.pins.pop(each.digest, None)
            free += each.size_bytes
        for digest in [digest for digest in pool.images if not pool.has(digest)]:
            del pool.images[digest]
        return True


def _reading(order: Fetch | Pin) -> str:
    """Under what it is read for whoever needs it."""
    return f"{order.digest} {order.uri}"


def _arriving(flow: Flow, now_s: int) -> Arriving:
    source = flow.source
    return Arriving(
        digest=flow.digest,
        size_bytes=flow.size_bytes,
        arrived_bytes=flow.arrived_bytes,
        rate_bytes_per_s=flow.rate,
        source=source.node if isinstance(source, Relay) else source or "",
        has_failed=flow.has_failed,
        words=flow.words,
        owners=tuple(sorted(owner for owner, until_s in flow.owners.items() if until_s > now_s)),
    )
