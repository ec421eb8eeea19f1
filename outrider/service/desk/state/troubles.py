"""Reservations that cannot stay as they are: why, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Troubles:
    """Written by whoever finds that a promise cannot be kept where it was made; read by its repair."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._taken: dict[str, frozenset[str]] = {}
        """By reservation, nodes that others have taken although they were promised to it."""
        self._crowded: dict[str, frozenset[str]] = {}
        """By reservation, nodes whose pools have no room for its image, since others hold it."""
        self._kept: dict[str, frozenset[str]] = {}
        """By reservation, nodes that jobs do not leave although they were told to."""

    def __contains__(self, name: str) -> bool:
        return name in self._why

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._why))

    def why(self, name: str) -> str:
        """What is wrong with a reservation; empty if nothing is known to be."""
        return self._why.get(name, "")

    def note(self, name: str, why: str) -> None:
        """Something is wrong: the first reason stands until the reservation is forgotten here."""
        self._why.setdefault(name, why)

    def replace(self, name: str, why: str) -> None:
        """Something is wrong, and matters more than what was known before."""
        self._why[name] = why

    def note_taken(self, name: str, nodes: Iterable[str], why: str) -> None:
        """Others are on these of a reservation's nodes in its time."""
        self._taken[name] = self._taken.get(name, frozenset()).union(nodes)
        self.note(name, why)

    def note_kept(self, name: str, nodes: Iterable[str], why: str) -> None:
        """Jobs that were to make way for a reservation are still on these of its nodes, and on no others."""
        self._kept[name] = frozenset(nodes)
        self.note(name, why)

    def clear_kept(self, name: str) -> bool:
        """They have gone; whether there were any."""
        return self._kept.pop(name, None) is not None

    def note_crowded(self, name: str, node: str, why: str) -> None:
        """The pool of a node has no room for a reservation's image."""
        self._crowded[name] = self._crowded.get(name, frozenset()) | {node}
        self.note(name, why)

    def keep_crowded(self, node: str, names: Iterable[str]) -> None:
        """A node has no room for these reservations' images, and for no others."""
        for name in self._crowded.keys() - set(names):
            left = self._crowded[name] - {node}
            if left:
                self._crowded[name] = left
            else:
                del self._crowded[name]

    @property
    def has_crowded(self) -> bool:
        return bool(self._crowded)

    def bad_nodes(self, name: str) -> frozenset[str]:
        """The nodes that others have taken from a reservation or do not leave, or whose pools are full."""
        return frozenset().union(*(known.get(name, ()) for known in (self._taken, self._crowded, self._kept)))

    def forget(self, name: str) -> None:
        """Nothing is wrong with a reservation any more, or it is over."""
        for known in (self._taken, self._crowded, self._kept):
            known.pop(name, None)
        self._why.pop(name, None)
