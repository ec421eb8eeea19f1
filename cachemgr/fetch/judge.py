"""Whose fault is it that too little comes? Pure decisions from what the nodes upstream have.

A chain of nodes is as fast as its narrowest place, and everybody behind that place is equally
slow. If each of them went to somebody else, the chain would fall apart; so only the node
directly behind the narrow place goes round it, and those behind it wait for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Below this share of the expected rate a stream is slow.
SLOW_SHARE = 0.5
# Somewhere else has to be better by this much, or the trouble is our own.
BETTER_FACTOR = 1.3
# Less than this ahead means that a node has nothing more to give: it is on the way.
LEAST_AHEAD_BYTES = 512 * 1024
AHEAD_S = 0.3


class Verdict(Enum):
    """What to do about the present source."""

    STAY = "stay"
    GO = "go"
    WAIT = "wait"


@dataclass(frozen=True)
class Judgement:
    """The verdict, which of the others to go to (counted from the next one upstream), and why."""

    verdict: Verdict
    target: int = 0
    reason: str = ""


def ahead_bytes(expected_bytes_per_s: float | None) -> int:
    """From how much on one node counts as ahead of another."""
    return max(LEAST_AHEAD_BYTES, int((expected_bytes_per_s or 0) * AHEAD_S))


def is_slow(rate: float | None, expected: float | None) -> bool:
    return rate is not None and expected is not None and rate < expected * SLOW_SHARE


def judge(offset: int, direct: int | None, above: Iterable[int | None], margin_bytes: int) -> Judgement:
    """Find the narrow place.

    `direct` is what the present source has, `above` what those further up have, the nearest
    first; None for one that does not answer. The first gap from the near end is the narrow
    place. Nobody beyond it is asked, so `above` may be a generator.
    """
    if direct is None:
        return Judgement(Verdict.GO, 0, "it does not answer")
    if direct - offset > margin_bytes:
        return Judgement(Verdict.GO, 0, f"it has {direct - offset} bytes more than it sends")
    below = direct
    for index, have in enumerate(above):
        if have is None:
            continue
        if have - below > margin_bytes:
            verdict = Verdict.GO if index == 0 else Verdict.WAIT
            return Judgement(verdict, index, f"those above it have {have - below} bytes more than it has")
        below = have
    return Judgement(Verdict.STAY)
