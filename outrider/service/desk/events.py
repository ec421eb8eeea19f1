"""What the rooms of the desk tell each other: events, and who listens to which.

Listeners are called on the spot, in the order in which they subscribed. Whoever publishes does not know
who listens; so reservations and jobs, which share copies of images, need not import each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class CopyLost:
    """A node does not have a copy of an image that was counted on."""

    node: str
    image: str


@dataclass(frozen=True, slots=True)
class CopyFound:
    """A copy that was to be brought to a node is there already."""

    node: str
    image: str


@dataclass(frozen=True, slots=True)
class TransferBegun:
    """A transfer with a deadline has begun."""

    number: int


DeskEvent = CopyLost | CopyFound | TransferBegun
E = TypeVar("E", CopyLost, CopyFound, TransferBegun)


class EventRouter:
    """Brings each event to those who listen for its kind."""

    def __init__(self) -> None:
        self._listeners: dict[type, list[Callable[..., None]]] = {}

    def subscribe(self, kind: type[E], listener: Callable[[E], None]) -> None:
        self._listeners.setdefault(kind, []).append(listener)

    def publish(self, event: DeskEvent) -> None:
        for listener in self._listeners.get(type(event), ()):
            listener(event)
