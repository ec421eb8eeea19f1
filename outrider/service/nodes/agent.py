"""What the service wants of one node, carried out on its daemon, and the node's report.

Orders say what should be, so each of them may come twice: what is so already stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from cachemgr.base.clock import Clock
from cachemgr.base.errors import CacheError, DiskFailed
from cachemgr.base.shares import Share
from cachemgr.pool.layered import LAYERS
from cachemgr.protocol import (
    JOB_OWNER,
    PROOF,
    RESERVATION_OWNER,
    AddRequest,
    CopyRequest,
    CopyState,
    ImageEntry,
    ListedImages,
    ListedInstances,
    ListedMachines,
    ListedShares,
    ListedTransfers,
    MovedMachine,
    MoveRequest,
    NameRequest,
    NoFields,
    PinFields,
    PinRequest,
    PoolStats,
    PromisedRoom,
    PromiseRequest,
    ReleaseRequest,
    ShownImage,
    TransferChange,
    TransferEntry,
    UnpinRequest,
)
from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.asking import Asking, DaemonConnection, read_from_node
from outrider.service.nodes.listed_machines import MOST_JOBS, instances_of, owners_of, times_of
from outrider.service.nodes.report import Lists, report_of, reservations_of
from outrider.service.nodes.rights import Rights
from outrider.service.ports import (
    COPYING,
    READ,
    Copy,
    Fetch,
    HeldBytes,
    Move,
    NodeReport,
    NodeRoom,
    NodeTrouble,
    Order,
    OrderResult,
    Pin,
    Relay,
    Release,
    Source,
    Stop,
    TellNode,
    Unpin,
)

TELL_S = 60.0
"""How long everything together may take."""
MOST_SOURCES = 64
MOST_ORDERS = 1_000
MOST_READ = 2_000
MOST_SHARES = 50
"""So many of a node's users' shares are told on, the largest ones."""
MOST_NAME = 64
MOST_SHOWN = 500
"""Of so many images in one report it is looked up for whom they are pinned."""


RelayOf = Callable[[str], str | None]
"""From a node's name to host:port of its relay; None if it has none, or nobody knows it."""


NO_NAMES = Catalogue()
"""A site whose images have addresses alone."""


def no_relay(node: str) -> None:
    """A site whose nodes pass nothing on."""


def tell_daemon(
    client: DaemonConnection,
    call: TellNode,
    *,
    clock: Clock,
    relay_of: RelayOf = no_relay,
    catalogue: Catalogue = NO_NAMES,
    tell_s: float = TELL_S,
    our_uid: int | None = None,
) -> NodeReport:
    """Carry out the orders one after the other, and report what there is then.

    An order that went wrong is in the report. Raises NodeTrouble if the daemon does not answer,
    or not sensibly. A node is told where an image of the `catalogue` is, not what the site calls it.
    `our_uid` is as whom the node knows the service; without it, as this process.
    """
    if len(call.orders) > MOST_ORDERS:
        raise NodeTrouble(f"{len(call.orders)} orders at once: at most {MOST_ORDERS}", is_away=False)
    asking = Asking(client, call.node, clock, clock.monotonic_s() + tell_s)
    uid = os.geteuid() if our_uid is None else our_uid
    orders = _OrdersOfACall(asking, call.node, relay_of, catalogue, uid)
    # First the room, then what needs it.
    room = _promise(asking, call)
    results = tuple(orders.carry_out(order) for order in call.orders)
    kept = _machines(asking) if call.wants_images or call.wants_machines else None
    pool = asking.ask("ls", ListedImages)
    pinned = [image.digest for image in pool.images if image.pins]
    lists = Lists(
        pool=pool,
        transfers=asking.ask("transfers", ListedTransfers).transfers,
        stats=asking.ask("stats", PoolStats),
        room=room,
        our_uid=uid,
        is_complete=call.wants_images,
        owners={digest: _owners(asking, digest, uid) for digest in pinned[:MOST_SHOWN]}
        if call.wants_images
        else {},
        jobs=_jobs(asking) if call.wants_images else (),
        machines=() if kept is None else owners_of(kept),
        instances=None if kept is None else instances_of(kept),
        times=None if kept is None else times_of(kept),
        shares=_shares(asking) if call.wants_images else None,
    )
    return report_of(call.node, lists, results, clock.now_s())


def owner_of(reservation: str) -> str:
    """Under which name a node pins for a reservation: other pins of the same user are left alone."""
    return f"{RESERVATION_OWNER}{reservation}"


def _promise(asking: Asking, call: TellNode) -> NodeRoom | None:
    """Have bytes kept for promises, and hear what others hold; None if the node cannot say.

    A daemon of an older version does not know the question: it keeps nothing, and its pool is
    promised as if nobody else held anything. A disk that takes no small file takes no image.
    """
    wanted = PromiseRequest()
    if call.promised_bytes is not None:
        wanted = PromiseRequest(call.promised_bytes, call.promised_until_s)
    try:
        found = asking.order("promise", wanted, PromisedRoom)
    except DiskFailed:
        return NodeRoom(capacity_bytes=0)
    except CacheError:
        return None
    held = [
        HeldBytes(size_bytes=each.size_bytes, until_s=each.until_s, digest=each.digest or "")
        for each in found.others
    ]
    return NodeRoom(
        capacity_bytes=found.capacity_bytes,
        held=tuple(held),
        users_bytes=found.users_bytes,
        copied_formats=found.copied_formats or (),
    )


def _jobs(asking: Asking) -> tuple[str, ...]:
    """The owners of instances that are jobs; a user's have other names."""
    owners = {each.owner for each in asking.ask("instances", ListedInstances).instances}
    return tuple(sorted(owner for owner in owners if owner.startswith(JOB_OWNER))[:MOST_JOBS])


def _machines(asking: Asking) -> ListedMachines | None:
    """The jobs of which there are machines; None from an older daemon."""
    try:
        return asking.order("kept-machines", NoFields(), ListedMachines)
    except CacheError:
        return None


def _shares(asking: Asking) -> tuple[Share, ...] | None:
    """Who takes what of what users share there; None if the daemon cannot say, being older than this.

    It is for administrators to look at: an answer of another form must not make the node useless.
    """
    try:
        found = asking.order("shares", NoFields(), ListedShares).shares[:MOST_READ]
    except CacheError:
        return None
    except NodeTrouble as trouble:
        if trouble.is_away:
            raise
        return None
    cut = [
        each.changed(thing=each.thing[:MOST_NAME], unit=each.unit[:MOST_NAME], user=each.user[:MOST_NAME])
        for each in found
    ]
    return tuple(sorted(cut, key=_by_share)[:MOST_SHARES])


def _by_share(share: Share) -> tuple[float, int, int, str, str]:
    """The largest part of what one user may have first."""
    ratio = share.held / share.most if share.most else 0.0
    return -ratio, -share.refused, -share.held, share.thing, share.user


def _owners(asking: Asking, digest: str, our_uid: int) -> tuple[str, ...]:
    """The reservations for which an image is pinned; one that has just gone has none."""
    try:
        shown = asking.order("show", NameRequest(digest), ShownImage)
    except CacheError:
        return ()
    return reservations_of(pin.owner for pin in shown.pin_list or () if pin.uid == our_uid)


class _OrdersOfACall:
    """The orders of one call."""

    def __init__(
        self, asking: Asking, node: str, relay_of: RelayOf, catalogue: Catalogue, our_uid: int
    ) -> None:
        self._asking = asking
        self._node = node
        self._relay_of = relay_of
        self._catalogue = catalogue
        self._our_uid = our_uid
        self._rights = Rights(asking, node, catalogue)

    def carry_out(self, order: Order) -> OrderResult:
        try:
            match order:
                case Fetch():
                    return replace(self._fetch(self._located(order)), order=order)
                case Pin():
                    return self._pin(order)
                case Copy():
                    return self._copy(order)
                case Unpin():
                    self._asking.send("unpin", UnpinRequest(order.digest, owner_of(order.owner)))
                case Stop():
                    self._stop(order)
                case Release():
                    self._asking.send("release", ReleaseRequest(order.owner))
                    if order.has_machine:
                        self._asking.send("discard", ReleaseRequest(order.owner))
                case Move():
                    return self._move(order)
        except CacheError as error:
            return OrderResult(order=order, code=error.code, words=str(error))
        return OrderResult(order=order)

    def _move(self, order: Move) -> OrderResult:
        source = self._relay_of(order.source) if order.source else None
        if order.source and source is None:
            return OrderResult(order=order, code="no-relay", words=f"node {order.source} has no relay")
        wanted = MoveRequest(
            order.owner, order.step, order.uid, source, order.place or None, order.rate_bytes_per_s
        )
        moved = self._asking.order("move-machine", wanted, MovedMachine)
        return OrderResult(order=order, words=f"{moved.state} {moved.place}")

    def _located(self, order: Fetch) -> Fetch:
        """The same with addresses in the place of names of the site's catalogue: an administrator may
        move an image without touching what was promised, since its digest stays."""
        names = self._catalogue
        made = names.made(names.source_of(order.uri), order.digest, order.deadline_s)
        sources = order.sources if made is None or order.sources else (order.uri,)
        return replace(
            order,
            uri=names.source_of(order.uri),
            sources=tuple(
                each if not isinstance(each, str) else made or names.source_of(each) for each in sources
            ),
            readers=order.readers or names.readers_of(order.uri),
        )

    def _fetch(self, order: Fetch) -> OrderResult:
        answer = self._asking.send("add", self._addition(order))
        if not answer.get("transfer"):
            there = read_from_node(ImageEntry, "add", answer)
            if there.is_public:
                return OrderResult(order=order)
            found = self._rights.let_in(order, self._addition(order).changed(sources=None, pin=None))
            if not isinstance(found, OrderResult):
                self._adapt(order, found)
                found = OrderResult(order=order, words=READ)
            return found
        transfer = read_from_node(TransferEntry, "add", answer)
        self._adapt(order, transfer)
        for arriving in self._asking.order("ls", NoFields(), ListedImages).arriving:
            if arriving.digest == order.digest and not arriving.is_public:
                return self._rights.check(order, arriving, set(transfer.wanted_by))
        return OrderResult(order=order)

    def _adapt(self, order: Fetch, transfer: TransferEntry) -> None:
        """Let it come on the order's terms."""
        change = TransferChange(transfer.transfer)
        if transfer.limit_bytes_per_s != order.rate_bytes_per_s:
            change = change.changed(rate_bytes_per_s=order.rate_bytes_per_s or 0)
        # The daemon takes the earliest deadline of all; one that was put off has to be said.
        is_ours = transfer.wanted_by == (self._our_uid,)
        if is_ours and order.deadline_s not in (None, transfer.deadline_s):
            change = change.changed(deadline_s=order.deadline_s)
        if change != TransferChange(transfer.transfer):
            self._asking.send("transfer-set", change)

    def _pin(self, order: Pin) -> OrderResult:
        if order.layers:
            return self._hold(order)
        wanted = PinRequest(order.digest, owner_of(order.owner), order.until_s, "hold")
        pinned = self._asking.order("pin", wanted, ImageEntry)
        if not order.uri or pinned.is_public:
            return OrderResult(order=order)
        return self._rights.of_pinned(order)

    def _hold(self, order: Pin) -> OrderResult:
        """Some of its layers: the rest of it is missing."""
        held = AddRequest(
            uri=order.uri,
            digest=order.digest,
            pin=PinFields(owner_of(order.owner), order.until_s, "hold"),
            format=LAYERS,
            readers=order.readers,
            hold=order.layers,
        )
        self._asking.send("add", held)
        return OrderResult(order=order, code="missing")

    def _copy(self, order: Copy) -> OrderResult:
        wanted = CopyRequest(order.digest, owner_of(order.owner), order.until_s)
        made = self._asking.order("copy", wanted, CopyState)
        return OrderResult(order=order, code=COPYING if made.state == COPYING else "")

    def _addition(self, order: Fetch) -> AddRequest:
        from_s = None if order.deadline_s is None else min(order.deadline_s, order.until_s)
        return AddRequest(
            uri=order.uri,
            digest=order.digest,
            size_bytes=order.size_bytes,
            sources=self._sources(order.sources),
            # A pin that holds: one of the kind `expect` would let the image be evicted.
            pin=PinFields(owner_of(order.owner), order.until_s, "hold", from_s),
            deadline_s=order.deadline_s,
            rate_bytes_per_s=order.rate_bytes_per_s or None,
            format=order.format or None,
            readers=order.readers,
        )

    def _sources(self, sources: tuple[Source, ...]) -> tuple[str, ...] | None:
        """Addresses in their order. A node that passes nothing on, or is this one, is no source."""
        found = []
        for source in sources:
            if not isinstance(source, Relay):
                found.append(source)
            elif source.node != self._node and (address := self._relay_of(source.node)) is not None:
                found.append(f"relay://{address}/{source.digest}")
        return tuple(found[:MOST_SOURCES]) or None

    def _stop(self, order: Stop) -> None:
        key = order.digest.removeprefix("sha256:")
        for each in self._asking.order("transfers", NoFields(), ListedTransfers).transfers:
            is_meant = each.key == key or each.key.startswith(PROOF + key)
            if is_meant and each.ended_s is None and each.wanted_by == (self._our_uid,):
                self._asking.send("transfer-set", TransferChange(each.transfer, cancel=True))
