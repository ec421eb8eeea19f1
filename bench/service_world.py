"""The outside world of a benchmarked service: nodes and a batch system that cost next to nothing.

Both keep what they were told in a file, a line each, so that they are after a restart of the
service, even by SIGKILL, as they were before it: as real nodes and a real batch system would be.
The shipped twin is not used because it plays a whole cluster: each call takes as long as there
are reservations, in the process that is measured.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

from cachemgr.base.clock import SystemClock
from outrider.core.model import Resources
from outrider.rms.base import NOTHING, Landing, Refused, RmsNode, RmsReservation, Sight, Submission
from outrider.service.ports import (
    Arriving,
    Fetch,
    NodeImage,
    NodeReport,
    Order,
    OrderResult,
    Pin,
    Stop,
    TellNode,
)

POOL_BYTES = 500 * 10**9


class Journal:
    """Lines of JSON that are in the file as soon as they were written; read when first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            self._file = self._path.open("a", buffering=1)
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


@dataclass(slots=True)
class _Pool:
    """`since_s`: when images that are on their way set out."""

    images: dict[str, NodeImage] = field(default_factory=dict)
    arriving: dict[str, tuple[Fetch, int]] = field(default_factory=dict)


class MemoryNodes:
    """Pools without bytes: an image takes its time at the planned rate, and is there."""

    def __init__(self, names: Sequence[str], clock: SystemClock, journal: Journal) -> None:
        self._clock = clock
        self._journal = journal
        self._pools = {name: _Pool() for name in names}
        self._guard = threading.Lock()
        for line in journal.read():
            image = NodeImage(digest=line["digest"], size_bytes=line["size_bytes"], uri=line["uri"])
            self._pools[line["node"]].images[image.digest] = image

    def tell(self, call: TellNode) -> NodeReport:
        with self._guard:
            pool, now_s = self._pools[call.node], self._clock.now_s()
            self._arrive(call.node, pool, now_s)
            results = tuple(self._obey(pool, order, now_s) for order in call.orders)
            images = tuple(pool.images.values())
            return NodeReport(
                node=call.node,
                at_s=now_s,
                limit_bytes=POOL_BYTES,
                used_bytes=sum(image.size_bytes for image in images),
                arriving=tuple(_arriving(fetch, since_s, now_s) for fetch, since_s in pool.arriving.values()),
                images=images if call.wants_images else None,
                results=results,
            )

    def _arrive(self, node: str, pool: _Pool, now_s: int) -> None:
        for digest, (fetch, since_s) in list(pool.arriving.items()):
            if _arriving(fetch, since_s, now_s).arrived_bytes < fetch.size_bytes:
                continue
            del pool.arriving[digest]
            pool.images[digest] = NodeImage(digest=digest, size_bytes=fetch.size_bytes, uri=fetch.uri)
            line = {"node": node, "digest": digest, "size_bytes": fetch.size_bytes, "uri": fetch.uri}
            self._journal.write(line)

    def _obey(self, pool: _Pool, order: Order, now_s: int) -> OrderResult:
        if isinstance(order, Fetch):
            if order.digest not in pool.images:
                pool.arriving.setdefault(order.digest, (order, now_s))
        elif isinstance(order, Pin):
            if order.digest not in pool.images:
                return OrderResult(order=order, code="missing", words="it is not in the pool")
        elif isinstance(order, Stop):
            pool.arriving.pop(order.digest, None)
        return OrderResult(order=order)


def _arriving(fetch: Fetch, since_s: int, now_s: int) -> Arriving:
    rate = fetch.rate_bytes_per_s or 10**10
    return Arriving(
        digest=fetch.digest,
        size_bytes=fetch.size_bytes,
        arrived_bytes=min(fetch.size_bytes, rate * (now_s - since_s)),
        rate_bytes_per_s=rate,
        source=fetch.uri,
    )


class BookingSystem:
    """A batch system that has nodes and reservations, and no jobs."""

    name = "bench"

    def __init__(self, nodes: Sequence[RmsNode], clock: SystemClock, journal: Journal) -> None:
        self._nodes = tuple(nodes)
        self._clock = clock
        self._journal = journal
        self._reservations: dict[str, RmsReservation] | None = None

    def look(self) -> Sight:
        now_s = self._clock.now_s()
        there = tuple(each for each in self._booked().values() if each.end_s > now_s)
        return Sight(at_s=now_s, nodes=self._nodes, jobs=(), reservations=there)

    def shares(self) -> dict[str, int]:
        return {}

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def reserve(self, wanted: RmsReservation) -> None:
        self._booked()[wanted.name] = wanted
        self._journal.write(_line_of(wanted))

    def unreserve(self, name: str) -> None:
        if self._booked().pop(name, None) is not None:
            self._journal.write({"name": name, "nodes": []})

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> NoReturn:
        raise _no_jobs()

    def hold(self, job: str, reason: str) -> NoReturn:
        raise _no_jobs()

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> NoReturn:
        raise _no_jobs()

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> NoReturn:
        raise _no_jobs()

    def note(self, job: str, text: str, start_s: int | None = None) -> NoReturn:
        raise _no_jobs()

    def ticket(self, job: str, text: str) -> NoReturn:
        raise _no_jobs()

    def suspend(self, job: str) -> NoReturn:
        raise _no_jobs()

    def resume(self, job: str) -> NoReturn:
        raise _no_jobs()

    def signal(self, job: str, name: str, start_s: int) -> NoReturn:
        raise _no_jobs()

    def requeue(self, job: str, start_s: int, reason: str) -> NoReturn:
        raise _no_jobs()

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> NoReturn:
        raise _no_jobs()

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> NoReturn:
        raise _no_jobs()

    def land(self, wanted: Landing) -> NoReturn:
        raise _no_jobs()

    def use_of(self, job: str) -> NoReturn:
        raise _no_jobs()

    def cancel(self, job: str, reason: str) -> NoReturn:
        raise _no_jobs()

    def submit(self, submission: Submission) -> NoReturn:
        raise _no_jobs()

    def _booked(self) -> dict[str, RmsReservation]:
        """Read when first asked for, as a batch system is asked after the service has begun."""
        if self._reservations is None:
            self._reservations = {}
            for line in self._journal.read():
                self._reservations.pop(line["name"], None)
                if line["nodes"]:
                    self._reservations[line["name"]] = RmsReservation(**line)
        return self._reservations


def _line_of(wanted: RmsReservation) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "nodes": wanted.nodes,
        "start_s": wanted.start_s,
        "end_s": wanted.end_s,
        "users": wanted.users,
    }


def _no_jobs() -> Refused:
    return Refused("there are no jobs here")
