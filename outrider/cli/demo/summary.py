"""The demo's last table: what was measured, and beside it what is computed from that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachemgr.sizes import in_words
from outrider.cli.asking.terminal import plain_paint, table
from outrider.service.answers import ReservationDetails

_BEGUN = re.compile(r"info transfer begins transfer=(\d+) image=(\S+) ")
_ENDED = re.compile(r"info transfer ended transfer=(\d+) seconds=(\d+) ")
_HEADER = ("RESERVATION", "NODES", ">IMAGE-READY", ">JOB-BEGAN", ">ELSE", ">MOVED", ">SAVED")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A reservation that is over, and when its job printed its first line."""

    details: ReservationDetails
    job_began_ms: int


def transfer_seconds(log: Sequence[str]) -> dict[str, int]:
    """How long the longest transfer of each image took, by its address."""
    images: dict[str, str] = {}
    longest: dict[str, int] = {}
    for line in log:
        if begun := _BEGUN.match(line):
            images[begun[1]] = begun[2]
        elif (ended := _ENDED.match(line)) and ended[1] in images:
            image = images[ended[1]]
            longest[image] = max(longest.get(image, 0), int(ended[2]))
    return longest


def summary(kept: Sequence[Kept], log: Sequence[str]) -> str:
    """A line for each reservation, and what the columns mean."""
    seconds = transfer_seconds(log)
    rows = []
    for each in kept:
        view, receipt = each.details.reservation, each.details.receipt
        if receipt is None or receipt.spare_s is None:
            continue
        delay_ms = each.job_began_ms - 1_000 * view.start_s
        fetch_s = seconds.get(view.image.uri or "")
        rows.append(
            (
                view.name,
                view.nodes,
                f"{-receipt.spare_s:+d}s",
                f"{delay_ms / 1_000:+.1f}s",
                "-" if fetch_s is None else f"+{fetch_s}s",
                in_words(receipt.transferred_bytes).replace(" ", ""),
                in_words(receipt.saved_bytes).replace(" ", ""),
            )
        )
    return f"{table(_HEADER, rows, plain_paint)}\n\n{_LEGEND}"


_LEGEND = """Seconds after the reservation's start; a minus is before it. IMAGE-READY is the receipt's, JOB-BEGAN
is when the job printed its first line. ELSE is computed, not tried: the same job, had it fetched its
image itself in its own time, at the rate that the longest transfer of this image had here."""
