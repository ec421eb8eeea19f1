"""Whose fault is it that too little comes? Pure decisions from what the nodes upstream have.

A chain of nodes is as fast as its narrowest place, and everybody behind that place is equally
slow. If each of them went to somebody else, the chain would fall apart; so only the node
directly behind the narrow place goes round it, and those behind it wait for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Below this share of the expected rate a stream is slow.
SLOW_SHARE = 0.5
# Two chains out of one source get half of the rate each: away from the planned source less is borne.
DETOUR_SHARE = 0.85
# Somewhere else has to be better by this much, or the trouble is our own.
BETTER_FACTOR = 1.3
# The planned source need not be: with it the one further up sends everything once.
HOME_FACTOR = 0.9
# Less than this ahead means that a node has nothing more to give: it is on the way.
LEAST_AHEAD_BYTES = 512 * 1024
AHEAD_S = 0.3


class SourceVerdict(Enum):
    """What to do about the present source."""

    STAY = "stay"
    GO = "go"
    WAIT = "wait"


@dataclass(frozen=True)
class Judgement:
    """The verdict, which of the others to go to (counted from the next one upstream), and why."""

    verdict: SourceVerdict
    target: int = 0
    reason: str = ""


def ahead_bytes(expected_bytes_per_s: float | None) -> int:
    """From how much on one node counts as ahead of another."""
    return max(LEAST_AHEAD_BYTES, int((expected_bytes_per_s or 0) * AHEAD_S))


def is_slow(rate: float | None, expected: float | None, share: float = SLOW_SHARE) -> bool:
    return rate is not None and expected is not None and rate < expected * share


class Search:
    """For the narrow place: told what the present source has, then those further up, the nearest first.

    None is told for one that does not answer. The first gap from the near end is the narrow
    place, and nobody beyond it needs to be asked.
    """

    def __init__(self, offset: int, margin_bytes: int) -> None:
        self._below = offset
        self._margin_bytes = margin_bytes
        self._heard = 0

    def hear(self, have: int | None) -> Judgement | None:
        """The judgement, if this answer decides it."""
        index, self._heard = self._heard - 1, self._heard + 1
        if have is None:
            return Judgement(SourceVerdict.GO, 0, "it does not answer") if index < 0 else None
        more, self._below = have - self._below, have
        if more <= self._margin_bytes:
            return None
        if index < 0:
            return Judgement(SourceVerdict.GO, 0, f"it has {more} bytes more than it sends")
        verdict = SourceVerdict.GO if index == 0 else SourceVerdict.WAIT
        return Judgement(verdict, index, f"those above it have {more} bytes more than it has")
