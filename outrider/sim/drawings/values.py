"""What a drawing shows: lanes over time, with boxes in them and marks at instants."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BoxKind(Enum):
    """What a box stands for."""

    BEST_EFFORT = "best effort"
    RESERVATION = "reservation"
    OVERHEAD = "overhead"
    TRANSFER = "transfer"
    IMAGE = "image on the disk"
    AGREEMENT = "agreement"
    """Agreed, but nothing is given yet."""
    ASKED = "asked for"


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Something takes [low, high) of a lane's units throughout [start_s, end_s)."""

    lane: str
    name: str
    kind: BoxKind
    start_s: int
    end_s: int
    low: int = 0
    high: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """An instant in a lane: a submission, an event, a deadline."""

    lane: str
    at_s: int
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A row: a node with its slots, a node's memory, a link. `units` is how much there is of it."""

    name: str
    units: int = 1
    unit: str = ""
    """What its units are called on the axis; without a name they are not counted out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanePanel:
    """One pair of axes."""

    title: str
    lanes: tuple[Lane, ...]
    boxes: tuple[Box, ...]
    marks: tuple[Mark, ...] = ()

    def spans(self, lane: str) -> dict[str, list[tuple[int, int]]]:
        """By name, when what is in a lane is there."""
        found: dict[str, list[tuple[int, int]]] = {}
        for box in self.boxes:
            if box.lane == lane:
                found.setdefault(box.name, []).append((box.start_s, box.end_s))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneDrawing:
    """One of the thesis' drawings."""

    number: str
    title: str
    panels: tuple[LanePanel, ...]
    unit_s: int = 1
    """Seconds, minutes or hours: what the axis counts."""
    says: str
    """What the thesis says of it."""
    differs: str = ""
    """What is otherwise here, and why."""
    notes: tuple[str, ...] = ()
    """What the scheduler said."""
