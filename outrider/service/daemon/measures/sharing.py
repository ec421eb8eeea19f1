"""Who takes what of everything that users share: what is counted elsewhere, on the head and on nodes,
put together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from cachemgr.base.clock import Clock
from cachemgr.base.shares import Share
from outrider.service.answers.site import ShareList, ShareView
from outrider.service.daemon.measures.nodeshares import NodeShare, NodeShares
from outrider.service.front import WantedShares
from outrider.service.meter import Meter
from outrider.service.requests import Caller
from outrider.service.web.identity import name_of

HEAD = "head"
FRESH_S = 1.0
"""What was collected is good for so long: who asks often costs no more than that."""
DESK_S = 2.0
"""How long the desk may take to answer; then the rest is shown without it."""
SHOW_S = 30.0
NO_DESK = "the desk did not answer in time: nothing is known of reservations and jobs"


@runtime_checkable
class Sharing(Protocol):
    """Something of which users have shares."""

    def shares(self) -> Sequence[Share]:
        """Any thread may call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """All shares at one time. `missing` says what is not among them."""

    at_s: float
    now_s: int
    head: tuple[Share, ...]
    nodes: tuple[NodeShare, ...]
    missing: tuple[str, ...]


class ShareBook:
    """Knows everything that counts shares on the head, and what nodes last reported. Any thread may call."""

    def __init__(
        self,
        desk: Callable[[], Future[list[Share]]],
        nodes: NodeShares,
        meter: Meter,
        clock: Clock,
        *,
        desk_s: float = DESK_S,
    ) -> None:
        self._desk = desk
        self._nodes = nodes
        self._meter = meter
        self._clock = clock
        self._desk_s = desk_s
        self._sources: dict[str, Sharing] = {}
        self._collected: Collected | None = None
        self._guard = threading.Lock()
        self._refused: dict[tuple[str, str], int] = {}
        self._shown_s = clock.monotonic_s()

    def learn(self, name: str, source: object) -> None:
        """From now on this is asked, too, in the place of what had the name before."""
        if isinstance(source, Sharing):
            self._sources = {**self._sources, name: source}

    def listed(self, caller: Caller, wanted: WantedShares) -> ShareList:
        """Whose share is the largest comes first. Who is not an administrator sees their own."""
        found = self._collect()
        own = None if caller.is_admin else str(caller.uid)
        rows = [
            _view(each, found)
            for each in ([] if wanted.nodes else found.head)
            if own in (None, user_of(each.user)) and _is_wanted(each, wanted)
        ]
        reported = [
            each
            for each in found.nodes
            if own in (None, user_of(each.share.user)) and _is_wanted(each.share, wanted)
        ]
        if wanted.nodes:
            names = set(wanted.nodes)
            rows += [_of_nodes([each]) for each in reported if each.node in names]
        else:
            rows += [_of_nodes(each) for each in _grouped(reported)]
        rows.sort(key=_order)
        return ShareList(
            shares=tuple(_named(each) for each in rows[: wanted.most]),
            is_complete=len(rows) <= wanted.most,
            is_of_all=own is None,
            missing=found.missing,
            nodes=self._nodes.count,
            oldest_s=self._nodes.oldest_s,
        )

    @property
    def is_due(self) -> bool:
        """Whether the metrics are to be brought up to date."""
        return self._clock.monotonic_s() - self._shown_s >= SHOW_S

    def show(self) -> None:
        """The metrics of each thing: no user is named in them, since there may be any number."""
        self._shown_s = self._clock.monotonic_s()
        found = self._collect()
        rows = [(HEAD, each) for each in found.head] + [("nodes", each.share) for each in found.nodes]
        held: Counter[tuple[str, str]] = Counter(dict.fromkeys(self._refused, 0))
        refused: Counter[tuple[str, str]] = Counter()
        most: dict[tuple[str, str], float] = {}
        limits: dict[tuple[str, str], int] = {}
        for where, share in rows:
            key = (share.thing, where)
            held[key] += share.held
            refused[key] += share.refused
            most[key] = max(most.get(key, 0.0), share.held / share.most if share.most else 0.0)
            limits[key] = max(limits.get(key, 0), share.most)
        for (thing, where), amount in held.items():
            key = (thing, where)
            self._meter.set("outrider_shared_held", amount, thing, where)
            self._meter.set("outrider_shared_most_ratio", most.get(key, 0.0), thing, where)
            if key in limits:
                self._meter.set("outrider_shared_limit", limits[key], thing, where)
            # Those refused longest ago are forgotten, and so is everything when a daemon starts anew.
            more = max(0, refused[key] - self._refused.get(key, 0))
            self._meter.count("outrider_shared_refused_total", thing, where, by=more)
            self._refused[key] = refused[key]

    def _collect(self) -> Collected:
        with self._guard:
            at_s = self._clock.monotonic_s()
            if self._collected is None or at_s - self._collected.at_s >= FRESH_S:
                desk, missing = self._ask_desk()
                sources = [share for each in self._sources.values() for share in each.shares()]
                now_s = self._clock.now_s()
                self._collected = Collected(
                    at_s=at_s,
                    now_s=now_s,
                    head=(*desk, *sources),
                    nodes=self._nodes.rows(now_s),
                    missing=missing,
                )
            return self._collected

    def _ask_desk(self) -> tuple[list[Share], tuple[str, ...]]:
        future = self._desk()
        try:
            return future.result(self._desk_s), ()
        except (TimeoutError, CancelledError):
            future.cancel()
            return [], (NO_DESK,)


def user_of(user: str) -> str:
    """A uid, however it was counted; or an address."""
    return user.removeprefix("uid ")


def _is_wanted(share: Share, wanted: WantedShares) -> bool:
    # Tables show a thing's name without blanks.
    if wanted.thing and wanted.thing.replace("_", " ") != share.thing.replace("_", " "):
        return False
    user = user_of(share.user)
    return not wanted.user or wanted.user in (user, name_of(user))


def _grouped(rows: Iterable[NodeShare]) -> Iterable[Sequence[NodeShare]]:
    """A user's shares of one thing on all nodes."""
    found: dict[tuple[str, str, str], list[NodeShare]] = {}
    for each in rows:
        found.setdefault((each.share.thing, each.share.unit, each.share.user), []).append(each)
    return found.values()


def _view(share: Share, found: Collected) -> ShareView:
    return ShareView(
        thing=share.thing,
        unit=share.unit,
        user=user_of(share.user),
        where=HEAD,
        held=share.held,
        most=share.most or None,
        refused=share.refused,
        nodes=0,
        held_in_all=share.held,
        seen_s=found.now_s,
    )


def _of_nodes(rows: Sequence[NodeShare]) -> ShareView:
    """One row for all these nodes: where the user's share is the largest, and what it is in all."""
    worst = max(rows, key=lambda each: (each.ratio, each.share.held, each.share.refused))
    share = worst.share
    return ShareView(
        thing=share.thing,
        unit=share.unit,
        user=user_of(share.user),
        where=worst.node,
        held=share.held,
        most=share.most or None,
        refused=sum(each.share.refused for each in rows),
        nodes=sum(each.share.held > 0 for each in rows),
        held_in_all=sum(each.share.held for each in rows),
        seen_s=worst.at_s,
    )


def _order(view: ShareView) -> tuple[object, ...]:
    share = -1.0 if view.most is None else view.held / view.most
    return (-share, -view.refused, -view.held_in_all, view.thing, view.user, view.where)


def _named(view: ShareView) -> ShareView:
    return replace(view, user=name_of(view.user))
