"""What the service wants of one node, carried out on its daemon, and the node's report.

Orders say what should be, so each of them may come twice: what is so already stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Protocol

from cachemgr.base.errors import CacheError, DiskFailed, NoDaemon
from cachemgr.base.shares import Share
from outrider.service.nodes.answers import Fields
from outrider.service.nodes.report import Lists, report_of
from outrider.service.ports import (
    COPYING,
    Copy,
    Fetch,
    HeldBytes,
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

ANSWER_S = 20.0
"""How long the daemon may take for one answer: reserving a large image's bytes takes a while."""
TELL_S = 60.0
"""How long everything together may take."""
OURS = "reservation:"
JOB = "job-"
MOST_SOURCES = 64
MOST_ORDERS = 1_000
MOST_JOBS = 2_000
MOST_READ = 2_000
MOST_SHARES = 50
"""So many of a node's users' shares are told on, the largest ones."""
MOST_NAME = 64
MOST_SHOWN = 500
"""Of so many images in one report it is looked up for whom they are pinned."""


class Clock(Protocol):
    def now_s(self) -> int: ...

    def monotonic_s(self) -> float: ...


class Asker(Protocol):
    """The part of `cachemgr.network.client.Client` that is needed."""

    def ask(
        self, verb: str, fields: Mapping[str, object] | None = None, *, timeout_s: float = ...
    ) -> dict[str, Any]: ...


RelayOf = Callable[[str], str | None]
"""From a node's name to host:port of its relay; None if it has none, or nobody knows it."""


def no_relay(node: str) -> None:
    """A site whose nodes pass nothing on."""


def tell_daemon(
    client: Asker,
    call: TellNode,
    *,
    clock: Clock,
    relay_of: RelayOf = no_relay,
    tell_s: float = TELL_S,
    our_uid: int | None = None,
) -> NodeReport:
    """Carry out the orders one after the other, and report what there is then.

    An order that went wrong is in the report. Raises NodeTrouble if the daemon does not answer,
    or not sensibly. `our_uid` is as whom the node knows the service; without it, as this process.
    """
    if len(call.orders) > MOST_ORDERS:
        raise NodeTrouble(f"{len(call.orders)} orders at once: at most {MOST_ORDERS}", is_away=False)
    asking = _Asking(client, call.node, clock, clock.monotonic_s() + tell_s)
    uid = os.geteuid() if our_uid is None else our_uid
    errand = _Errand(asking, call.node, relay_of, uid)
    # First the room, then what needs it.
    room = _promise(asking, call)
    results = tuple(errand.carry_out(order) for order in call.orders)
    pool = asking.ask("ls")
    pinned = [image.text("digest") for image in pool.parts("images") if image.number("pins")]
    lists = Lists(
        transfers=asking.ask("transfers"),
        pool=pool,
        stats=asking.ask("stats"),
        room=room,
        our_uid=uid,
        owners={digest: _owners(asking, digest, uid) for digest in pinned[:MOST_SHOWN]}
        if call.wants_images
        else {},
        jobs=_jobs(asking) if call.wants_images else (),
        shares=_shares(asking) if call.wants_images else None,
    )
    return report_of(call, lists, results, clock.now_s())


def owner_of(reservation: str) -> str:
    """Under which name a node pins for a reservation: other pins of the same user are left alone."""
    return f"{OURS}{reservation}"


def _promise(asking: _Asking, call: TellNode) -> NodeRoom | None:
    """Have bytes kept for promises, and hear what others hold; None if the node cannot say.

    A daemon of an older version does not know the question: it keeps nothing, and its pool is
    promised as if nobody else held anything. A disk that takes no small file takes no image.
    """
    fields: dict[str, object] = {}
    if call.promised_bytes is not None:
        fields = {"size_bytes": call.promised_bytes, "until_s": call.promised_until_s}
    try:
        found = asking.order("promise", **fields)
    except DiskFailed:
        return NodeRoom(capacity_bytes=0)
    except CacheError:
        return None
    held = [
        HeldBytes(
            size_bytes=each.number("size_bytes"), until_s=each.number("until_s"), digest=each.text("digest")
        )
        for each in found.parts("others")
    ]
    return NodeRoom(
        capacity_bytes=found.number("capacity_bytes"),
        held=tuple(held),
        users_bytes=found.number("users_bytes"),
        # A daemon of an older version does not say, and makes no copies before they are wanted.
        copied_formats=found.texts("copied_formats"),
    )


def _jobs(asking: _Asking) -> tuple[str, ...]:
    """The owners of instances that are jobs; a user's have other names."""
    owners = {each.text("owner") for each in asking.ask("instances").parts("instances")}
    return tuple(sorted(owner for owner in owners if owner.startswith(JOB))[:MOST_JOBS])


def _shares(asking: _Asking) -> tuple[Share, ...] | None:
    """Who takes what of what users share there; None if the daemon cannot say, being older than this.

    It is for administrators to look at: an answer of another form must not make the node useless.
    """
    try:
        parts = islice(asking.order("shares").parts("shares"), MOST_READ)
        found = [
            Share(
                each.text("thing")[:MOST_NAME],
                each.text("unit")[:MOST_NAME],
                each.text("user")[:MOST_NAME],
                each.number("held"),
                each.number("most"),
                each.number("refused"),
            )
            for each in parts
        ]
    except CacheError:
        return None
    except NodeTrouble as trouble:
        if trouble.is_away:
            raise
        return None
    return tuple(sorted(found, key=_by_share)[:MOST_SHARES])


def _by_share(share: Share) -> tuple[float, int, int, str, str]:
    """The largest part of what one user may have first."""
    ratio = share.held / share.most if share.most else 0.0
    return -ratio, -share.refused, -share.held, share.thing, share.user


def _owners(asking: _Asking, digest: str, our_uid: int) -> tuple[str, ...]:
    """The reservations for which an image is pinned; one that has just gone has none."""
    try:
        shown = asking.order("show", name=digest)
    except CacheError:
        return ()
    pins = [pin.text("owner") for pin in shown.parts("pin_list") if pin.number("uid") == our_uid]
    return tuple(sorted(owner.removeprefix(OURS) for owner in pins if owner.startswith(OURS)))


class _Asking:
    """The daemon, with an end to all waiting; whoever does not answer is away."""

    def __init__(self, client: Asker, node: str, clock: Clock, until_s: float) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._until_s = until_s

    def ask(self, verb: str, **fields: object) -> Fields:
        try:
            return self.order(verb, **fields)
        except CacheError as error:
            raise NodeTrouble(f"node {self._node} refuses {verb}: {error}", is_away=False) from error

    def order(self, verb: str, **fields: object) -> Fields:
        """As `ask`; what the daemon refuses is the caller's to deal with."""
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise NodeTrouble(f"node {self._node} takes too long to carry out its orders: look at its disk")
        try:
            return Fields(self._client.ask(verb, fields, timeout_s=min(ANSWER_S, left_s)), verb)
        except NoDaemon as error:
            raise NodeTrouble(f"node {self._node} does not answer: {error}") from error


class _Errand:
    """The orders of one call."""

    def __init__(self, asking: _Asking, node: str, relay_of: RelayOf, our_uid: int) -> None:
        self._asking = asking
        self._node = node
        self._relay_of = relay_of
        self._our_uid = our_uid

    def carry_out(self, order: Order) -> OrderResult:
        try:
            match order:
                case Fetch():
                    return self._fetch(order)
                case Pin():
                    return self._pin(order)
                case Copy():
                    return self._copy(order)
                case Unpin():
                    self._asking.order("unpin", name=order.digest, owner=owner_of(order.owner))
                case Stop():
                    self._stop(order)
                case Release():
                    self._asking.order("release", owner=order.owner)
        except CacheError as error:
            return OrderResult(order=order, code=error.code, words=str(error))
        return OrderResult(order=order)

    def _fetch(self, order: Fetch) -> OrderResult:
        answer = self._asking.order("add", **self._addition(order))
        name = answer.text("transfer")
        if not name:
            shown = None if answer.truth("is_public") else self._asking.order("show", name=order.digest)
            return self._check_readers(order, answer, shown)
        changes: dict[str, object] = {}
        if answer.optional_number("limit_bytes_per_s") != order.rate_bytes_per_s:
            changes["rate_bytes_per_s"] = order.rate_bytes_per_s or 0
        wanted_by = answer.numbers("wanted_by")
        # The daemon takes the earliest deadline of all; one that was put off has to be said.
        if wanted_by == (self._our_uid,) and order.deadline_s not in (
            None,
            answer.optional_number("deadline_s"),
        ):
            changes["deadline_s"] = order.deadline_s
        if changes:
            self._asking.order("transfer-set", transfer=name, **changes)
        for arriving in self._asking.order("ls").parts("arriving"):
            if arriving.text("digest") == order.digest and not arriving.truth("is_public"):
                return self._check_readers(order, arriving, arriving, set(wanted_by))
        return OrderResult(order=order)

    def _pin(self, order: Pin) -> OrderResult:
        pinned = self._asking.order(
            "pin", name=order.digest, owner=owner_of(order.owner), until_s=order.until_s, kind="hold"
        )
        if not order.uri or pinned.truth("is_public"):
            return OrderResult(order=order)
        return self._check_readers(order, pinned, self._asking.order("show", name=order.digest))

    def _copy(self, order: Copy) -> OrderResult:
        made = self._asking.order(
            "copy", name=order.digest, owner=owner_of(order.owner), until_s=order.until_s
        )
        return OrderResult(order=order, code=COPYING if made.text("state") == COPYING else "")

    def _addition(self, order: Fetch) -> dict[str, object]:
        # A pin that holds: one of the kind `expect` would let the image be evicted.
        pin: dict[str, object] = {"owner": owner_of(order.owner), "until_s": order.until_s, "kind": "hold"}
        if order.deadline_s is not None:
            pin["from_s"] = min(order.deadline_s, order.until_s)
        fields: dict[str, object] = {
            "uri": order.uri,
            "digest": order.digest,
            "size_bytes": order.size_bytes,
            "sources": self._sources(order.sources),
            "pin": pin,
            "deadline_s": order.deadline_s,
            "rate_bytes_per_s": order.rate_bytes_per_s or None,
            "format": order.format or None,
        }
        if order.readers is not None:
            fields["readers"] = {"uids": list(order.readers.uids), "gids": list(order.readers.gids)}
        return {name: value for name, value in fields.items() if value is not None}

    def _sources(self, sources: tuple[Source, ...]) -> list[str] | None:
        """Addresses in their order. A node that passes nothing on, or is this one, is no source."""
        found = []
        for source in sources:
            if not isinstance(source, Relay):
                found.append(source)
            elif source.node != self._node and (address := self._relay_of(source.node)) is not None:
                found.append(f"relay://{address}/{source.digest}")
        return found[:MOST_SOURCES] or None

    def _check_readers(
        self, order: Fetch | Pin, image: Fields, shown: Fields | None, joined: set[int] | None = None
    ) -> OrderResult:
        """An image that was begun for others: the users of this one have to be able to use it.

        Nobody is let in because the service says so: a user has to have a right to the source
        from which the image came, which the daemon finds out itself. `shown` has its readers;
        None means everybody.
        """
        if shown is None:
            return OrderResult(order=order)
        if order.readers is None:
            return OrderResult(
                order=order,
                code="not-allowed",
                words=f"the image is on {self._node} for its owner's use only: write `private: true`, "
                "or ask its owner to make it public",
            )
        known = {0, image.number("owner_uid"), *shown.part("readers").numbers("uids"), *(joined or ())}
        for uid in sorted(set(order.readers.uids) - known):
            self._asking.order(
                "add", uri=order.uri, digest=order.digest, size_bytes=order.size_bytes, uid=uid, private=True
            )
        return OrderResult(order=order)

    def _stop(self, order: Stop) -> None:
        key = order.digest.removeprefix("sha256:")
        for transfer in self._asking.order("transfers").parts("transfers"):
            is_alive = transfer.optional_number("ended_s") is None
            if transfer.text("key") != key or not is_alive:
                continue
            if transfer.numbers("wanted_by") == (self._our_uid,):
                self._asking.order("transfer-set", transfer=transfer.text("transfer"), cancel=True)
