"""`outrider doctor --measure-link`: what a link really gives, to set link.rate by.

One node after the other sends an image that it has, from its relay to this machine, with a ticket; the bytes
are thrown away. So nothing is written anywhere and no image gives way, within bounds of time and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from cachemgr.base.errors import CacheError
from cachemgr.fetch.control import Control
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.sources.sources import SourceSettings, source_of
from cachemgr.relay.tickets import make_ticket
from outrider.cli.asking.display.words import rate_in_words
from outrider.cli.errors import CommandError
from outrider.cli.installing.common.findings import DoctorFinding, ok, warning

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.fetch.report import FetchProgress
    from outrider.service.answers.site import Status

WHAT = "link.rate"
MOST_S = 20
MOST_BYTES = 1 << 30
LEAST_BYTES = 1 << 20
"""Of less nobody can tell the rate from the beginning."""
TICKET_S = 300
CAREFUL_PERCENT = 90
"""Of what a link gives alone: others use it, too, at noon."""
HIGH_PERCENT = 105
"""A link.rate beyond this part of what was measured is too high."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one node sent, and in how long."""

    node: str
    size_bytes: int
    duration_s: float

    @property
    def rate_bytes_per_s(self) -> int:
        return int(self.size_bytes / max(self.duration_s, 1e-3))


class ImageBeginning:
    """The first part of an image, which nobody keeps."""

    def __init__(self, size_bytes: int, most_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.offset = 0
        self._most_bytes = most_bytes

    def write(self, data: bytes | memoryview) -> None:
        self.offset += len(data)
        if self.offset >= self._most_bytes:
            raise Enough


class Enough(Exception):
    """As many bytes as were wanted have come."""


def obstacle(status: Status) -> str:
    """Why measuring would take the link from a promise; nothing if it would not."""
    if status.transfers_running or status.transfers_waiting:
        moving = status.transfers_running + status.transfers_waiting
        return f"{moving} transfers for reservations need the link: measure later, or with --force"
    if jobs := status.jobs.get("staging", 0):
        return f"images of {jobs} jobs need the link: measure later, or with --force"
    return ""


def measure(
    node: str,
    address: str,
    images: Sequence[dict[str, Any]],
    key: bytes,
    clock: Clock,
    *,
    most_s: int = MOST_S,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measured:
    """Let the node send its largest image, a public one if it has any. Raises CommandError."""
    held = [each for each in images if each["size_bytes"] >= LEAST_BYTES]
    if not held:
        raise CommandError(
            f"{node} has no image to send: wait for the first transfer, or add one with cachemgr"
        )
    image = max(held, key=lambda each: (bool(each.get("is_public")), each["size_bytes"], each["digest"]))
    digest = image["digest"]
    ticket = make_ticket(key, digest, clock.now_s() + TICKET_S)
    most_bytes = min(MOST_BYTES, image["size_bytes"])
    stretch = ImageBeginning(image["size_bytes"], most_bytes)
    control = Control()
    begin_s = clock.monotonic_s()

    def tell(progress: FetchProgress) -> None:
        if clock.monotonic_s() - begin_s >= most_s:
            control.cancel("measured for long enough")
        on_progress(progress.offset_bytes, most_bytes)

    try:
        source = source_of(f"relay://{address}/{digest}", SourceSettings(), clock, ticket=ticket)
        transfer(stretch, [source], clock=clock, random=Random(0), control=control, on_progress=tell)
    except Enough:
        pass
    except CacheError as error:
        # What came until the time was over is what was to be measured.
        if not (control.cancelled and stretch.offset >= LEAST_BYTES):
            raise CommandError(f"{node} could not send image {digest}: {error}") from error
    return Measured(node=node, size_bytes=stretch.offset, duration_s=clock.monotonic_s() - begin_s)


def findings(measured: Sequence[Measured], link_rate_bytes_per_s: int | None) -> list[DoctorFinding]:
    """What each node sent, and what follows for link.rate from the one that sent least."""
    found = [
        ok(
            each.node,
            "link",
            f"sent {rate_in_words(each.rate_bytes_per_s)}, in {each.duration_s:.1f} s, while nobody else did",
        )
        for each in measured
    ]
    if not measured:
        return found
    least = min(measured, key=lambda each: (each.rate_bytes_per_s, each.node))
    value = f"set it to {least.rate_bytes_per_s * CAREFUL_PERCENT // 100}"
    what = f"{least.node} sends {rate_in_words(least.rate_bytes_per_s)}"
    if link_rate_bytes_per_s is None:
        return [*found, ok("head", WHAT, f"{what}: {value}")]
    planned = rate_in_words(link_rate_bytes_per_s)
    if link_rate_bytes_per_s * 100 > least.rate_bytes_per_s * HIGH_PERCENT:
        return [
            *found,
            warning("head", WHAT, f"is {planned}, but {what}: {value}, or find what slows the link"),
        ]
    return [*found, ok("head", WHAT, f"is {planned}, and {what}")]
