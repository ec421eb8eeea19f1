"""What the desk and the nodes know that other threads ask for: promised images, and how large one may be."""

from __future__ import annotations

from collections.abc import Callable


class Promised:
    """Which image a reservation or a job was promised: known once somebody who knows has been named.

    Asked by what makes instances for jobs on virtual nodes, from any thread.
    """

    def __init__(self) -> None:
        self._ask: Callable[[str], str | None] | None = None
        self._ask_job: Callable[[str], str | None] | None = None
        self._ask_needed: Callable[[], frozenset[str] | None] | None = None

    def learn(self, ask: Callable[[str], str | None]) -> None:
        """From now on `ask` is asked for the digest that a reservation was promised."""
        self._ask = ask

    def learn_jobs(self, ask: Callable[[str], str | None]) -> None:
        """From now on `ask` is asked for the digest of the image that a job without one names."""
        self._ask_job = ask

    def learn_needed(self, ask: Callable[[], frozenset[str] | None]) -> None:
        """From now on `ask` is asked for the digests of all images that somebody was promised."""
        self._ask_needed = ask

    def needed_digests(self) -> frozenset[str] | None:
        """The digests of all images that somebody was promised; None if nobody knows."""
        return None if self._ask_needed is None else self._ask_needed()

    def job(self, key: str) -> str:
        """The digest of a job's image; empty if nobody knows it yet."""
        return "" if self._ask_job is None else self._ask_job(key) or ""

    def digest(self, reservation: str | None) -> str | None:
        """None if there is no such reservation, or nobody who knows yet."""
        return None if reservation is None or self._ask is None else self._ask(reservation)


class Ceiling:
    """The largest image that is worth looking at: what no node's pool could hold is refused at once.

    Told by whoever hears nodes' reports, and asked, from any thread.
    """

    def __init__(self, most_bytes: int, assumed_bytes: int | None = None) -> None:
        """`assumed_bytes` is the size of a pool as long as none has reported."""
        self._most_bytes = most_bytes
        self._assumed_bytes = assumed_bytes
        self._limits: dict[str, int] = {}
        self._largest_bytes = 0

    def note(self, node: str, limit_bytes: int) -> None:
        """A node says how much its pool may hold."""
        if self._limits.get(node) != limit_bytes:
            # Replaced as a whole, so that whoever reads it needs no lock.
            self._limits = {**self._limits, node: limit_bytes}
            self._largest_bytes = max(self._limits.values())

    def __call__(self) -> int:
        largest_bytes = self._largest_bytes or self._assumed_bytes or self._most_bytes
        return min(self._most_bytes, largest_bytes)
