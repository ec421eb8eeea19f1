"""Whether processor time grows in proportion to a text's length.

What is judged is growth, never a time by itself: of what takes longer than a clock's noise, how many
times more for a text twice as long, on the average of the upper doublings. Times are a process's own
and the least of several, so that another load on the machine says nothing; who fails is measured
again, and the least of all counts.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from math import log2

from tests.amount import LONG

LARGEST = 11 if os.environ.get(LONG) else 10
SIZES = tuple(4**power for power in range(5, LARGEST + 1))
"""1 KiB to 4 MiB; in the short form to 1 MiB, for which all take a third of the time."""
MOST_A_DOUBLING = 2.5
"""What grows in proportion was seen at 2.33 where a text no longer fits into a processor's caches."""
FLOOR_S = 0.001
"""Below it is noise; what takes less for four mebibytes cannot grow with their square."""
ENOUGH_S = 0.25
"""Longer texts are not tried after one that took so long: what is at fault shows by then."""
LEAST_DOUBLINGS = 4
QUICK, QUICK_S = (4**7, SIZES[-1]), 0.01
"""What takes so little for both lengths, of which the longer is 64 times the shorter or more, grows with
neither."""
ROUNDS = 3

Times = dict[int, float]
"""Seconds by size."""


def growth(times: Mapping[int, float]) -> float:
    """How many times longer a text of twice the length takes; 1 if too little can be measured."""
    seen = sorted((size, seconds) for size, seconds in times.items() if seconds >= FLOOR_S)
    if not seen:
        return 1.0
    (first, low_s), (last, high_s) = seen[0], seen[-1]
    if last / first < 2**LEAST_DOUBLINGS:
        # Long before the longest text, and that quickly: from noise to too much in a few doublings.
        is_cut_short = max(times) < SIZES[-1]
        return float("inf") if is_cut_short else 1.0
    return float((high_s / low_s) ** (1 / log2(last / first)))


Case = Callable[[int], Callable[[], object]]
"""Makes ready for a size, and gives what is to be timed."""


def measured(cases: Mapping[str, Case], rounds: int = 1) -> dict[str, Times]:
    """Processor time of each case by size, the least of several.

    Without the collector: how often it looks at all other objects of the process is not what is tried.
    """
    gc.disable()
    try:
        return {name: _times_of(case, rounds) for name, case in cases.items()}
    finally:
        gc.enable()


def _times_of(case: Case, rounds: int) -> Times:
    """Of what is quick with the longest text nothing else is measured."""
    if _least_s(case(QUICK[0]), 1) < FLOOR_S and _least_s(case(QUICK[1]), 1) <= QUICK_S:
        return dict.fromkeys(SIZES, 0.0)
    times: Times = {}
    for size in SIZES:
        times[size] = _least_s(case(size), rounds)
        if times[size] > ENOUGH_S:
            break
    return times


def _least_s(run: Callable[[], object], rounds: int) -> float:
    best_s = float("inf")
    for _ in range(rounds):
        begin_s = time.process_time()
        run()
        best_s = min(best_s, time.process_time() - begin_s)
        if best_s > ENOUGH_S:
            break
    return best_s


def least(first: Mapping[int, float], second: Mapping[int, float]) -> Times:
    return {size: min(first.get(size, second.get(size, 0.0)), second.get(size, first.get(size, 0.0)))
            for size in {*first, *second}}  # fmt: skip


def superlinear(
    first: Mapping[str, Times], again: Callable[[list[str]], Mapping[str, Times]]
) -> dict[str, tuple[float, Times]]:
    """Those that still grow too fast when they have been measured again, several times, with the times."""
    known = dict(first)
    for _ in range(ROUNDS):
        left = [name for name, times in known.items() if growth(times) > MOST_A_DOUBLING]
        if not left:
            break
        known = {name: least(known[name], times) for name, times in again(left).items()}
    return {name: (growth(times), times) for name, times in known.items() if growth(times) > MOST_A_DOUBLING}
