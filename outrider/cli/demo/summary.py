"""The demo's last table: what was measured, and beside it what is computed from that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachemgr.base.sizes import in_words
from outrider.service.answers.reservations import ReservationDetails

_BEGUN = re.compile(r"info transfer begins transfer=(\d+) image=(\S+) ")
_ENDED = re.compile(r"info transfer ended transfer=(\d+) seconds=(\d+) ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A reservation that is over, and when its job printed its first line."""

    details: ReservationDetails
    job_began_ms: int


def transfer_seconds(log: Sequence[str]) -> dict[str, int]:
    """How long the shortest transfer of each image took, by its address."""
    images: dict[str, str] = {}
    shortest: dict[str, int] = {}
    for line in log:
        if begun := _BEGUN.match(line):
            images[begun[1]] = begun[2]
        elif (ended := _ENDED.match(line)) and ended[1] in images:
            image = images[ended[1]]
            shortest[image] = min(shortest.get(image, int(ended[2])), int(ended[2]))
    return shortest


def summary(kept: Sequence[Kept], log: Sequence[str]) -> str:
    """A line for each reservation, and what the columns mean."""
    seconds = transfer_seconds(log)
    rows = [_HEAD, _HEAD_BELOW]
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
                f"{abs(receipt.spare_s)} s {'before' if receipt.spare_s >= 0 else 'after'}",
                _seconds(delay_ms),
                "-" if fetch_s is None else _seconds(delay_ms + 1_000 * fetch_s),
                in_words(receipt.transferred_bytes),
                in_words(receipt.saved_bytes),
            )
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    written = ["   ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*(line.rstrip() for line in written), "", _LEGEND])


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:.1f} s"


_HEAD = ("", "", "image was", "job began", "had the job", "", "")
_HEAD_BELOW = ("", "nodes", "ready", "after start", "fetched it", "moved", "saved")
_LEGEND = """Measured, all but one column: "had the job fetched it" adds the seconds that the shortest
transfer of this image took here. A batch system would take them from the time that the user asked for."""
