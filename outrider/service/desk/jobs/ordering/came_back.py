"""When jobs that were sent back had been submitted.

Slurm and Grid Engine take a job that was requeued for one that was submitted just then, and number jobs in
the order in which they come. So whoever seems to have come after a job of a higher number has been sent back,
and had come before that one: it gets its place in the queue again, whether anybody here has seen it run or
not. What jobs carry with them is not asked, since their users could have written it.
"""

from __future__ import annotations

from collections.abc import Iterable

BLOCK_BITS = 26
"""The clusters of a federation number their jobs in blocks of their own, and know nothing of each other."""

NO_NUMBER = -1


def came_back(waiting: Iterable[tuple[str, int]]) -> dict[str, int]:
    """By their keys when jobs had come at the latest that were sent back since: of all that wait, with when
    they seem to have been submitted."""
    numbered = [(_number(key), key, at_s) for key, at_s in waiting]
    numbered.sort(reverse=True)
    found: dict[str, int] = {}
    block, earliest_s = NO_NUMBER, 0
    for number, key, at_s in numbered:
        if number == NO_NUMBER:
            break
        if number >> BLOCK_BITS != block:
            block, earliest_s = number >> BLOCK_BITS, at_s
        if at_s > earliest_s:
            found[key] = earliest_s
        earliest_s = min(earliest_s, at_s)
    return found


def _number(key: str) -> int:
    """Of a job; of a task, that of its array."""
    number = key.partition("_")[0].partition(".")[0].partition("+")[0]
    return int(number) if number.isascii() and number.isdecimal() else NO_NUMBER
