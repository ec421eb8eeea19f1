"""What a transfer did: which source delivered which bytes, and what the others said."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST_ATTEMPTS = 200


@dataclass(frozen=True)
class Delivered:
    """Bytes `[start_bytes, end_bytes)` came from this source."""

    source: str
    start_bytes: int
    end_bytes: int


@dataclass(frozen=True)
class Said:
    """The last that a source said when it failed or was left, and how often it did."""

    source: str
    message: str
    times: int


@dataclass(frozen=True)
class Attempt:
    """One time that a source was asked: from which byte on, what came of it, and why it ended."""

    source: str
    begin_s: float
    end_s: float
    start_bytes: int
    end_bytes: int
    reason: str


@dataclass(frozen=True)
class Report:
    """A transfer, finished or not. Skipped bytes were received again and thrown away.

    Times of attempts count from the transfer's beginning; of many, the last ones are named.
    """

    delivered: tuple[Delivered, ...]
    said: tuple[Said, ...]
    skipped_bytes: int
    duration_s: float
    attempts: tuple[Attempt, ...] = ()

    def sources(self) -> tuple[str, ...]:
        """Who delivered anything, in the order of their first byte: suspects if the digest is wrong."""
        return tuple(dict.fromkeys(each.source for each in self.delivered))


@dataclass(frozen=True)
class FetchProgress:
    """How far a transfer is. The finish is None as long as nothing moves."""

    offset_bytes: int
    size_bytes: int
    rate_bytes_per_s: int
    finish_s: int | None
    source: str


class FetchLog:
    """Collects what a report will say."""

    def __init__(self) -> None:
        self._delivered: list[Delivered] = []
        self._said: dict[str, Said] = {}
        self._attempts: deque[Attempt] = deque(maxlen=MOST_ATTEMPTS)
        self.skipped_bytes = 0

    def delivered(self, source: str, start_bytes: int, end_bytes: int) -> None:
        last = self._delivered[-1] if self._delivered else None
        if last is not None and last.source == source and last.end_bytes == start_bytes:
            self._delivered[-1] = Delivered(source, last.start_bytes, end_bytes)
        else:
            self._delivered.append(Delivered(source, start_bytes, end_bytes))

    def attempted(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    def said(self, source: str, message: str) -> None:
        before = self._said.get(source)
        self._said[source] = Said(source, message, 1 if before is None else before.times + 1)

    def complaints(self) -> str:
        """One clause a source, for an error."""
        return "; ".join(
            f"{each.source}: {each.message}" + (f" ({each.times} times)" if each.times > 1 else "")
            for each in self._said.values()
        )

    def report(self, duration_s: float) -> Report:
        return Report(
            tuple(self._delivered),
            tuple(self._said.values()),
            self.skipped_bytes,
            duration_s,
            tuple(self._attempts),
        )
