"""How likely it is that the rest of an image arrives in time, by the rates that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import erf, sqrt

MOST_SAMPLES = 20
LEAST_DEVIATION = 0.05
"""A rate that was steady so far may still change by so much of itself."""


def rate_of(samples: Sequence[tuple[int, int]]) -> float:
    """Bytes a second over all samples of an instant and the bytes that had arrived by then."""
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return 0.0
    return max(0, samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


def odds_percent(samples: Sequence[tuple[int, int]], left_bytes: int, left_s: int) -> int:
    """The chance that `left_bytes` arrive within `left_s`, if rates go on as they were.

    The mean rate over the time that is left is taken for normal, with the deviation of the rates
    between samples: a rate that jumps about promises less than a steady one of the same mean.
    """
    if left_bytes <= 0:
        return 100
    if left_s <= 0:
        return 0
    needed = left_bytes / left_s
    mean = rate_of(samples)
    if mean == 0:
        return 0
    rates = [
        (after[1] - before[1]) / (after[0] - before[0])
        for before, after in pairwise(samples)
        if after[0] > before[0]
    ]
    variance = sum((rate - mean) ** 2 for rate in rates) / max(1, len(rates) - 1)
    # The mean of so many more stretches of time deviates less than one stretch does.
    stretch_s = (samples[-1][0] - samples[0][0]) / len(rates)
    deviation = sqrt(variance / max(1.0, left_s / stretch_s))
    deviation = max(deviation, LEAST_DEVIATION * mean)
    return round(100 * 0.5 * (1 + erf((mean - needed) / (deviation * sqrt(2)))))
