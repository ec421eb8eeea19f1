"""Independent pieces of an experiment on all cores, with results in the order of the pieces."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Is told how many pieces of how many are done."""


def in_parallel(
    function: Callable[..., Result],
    pieces: Sequence[tuple[object, ...]],
    *,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> list[Result]:
    """Call a function with each of the tuples of arguments.

    Whatever goes wrong, an interrupt included, drops the pieces that have not begun, so
    that the caller hears of it within one piece's time. With one worker everything
    happens in this process.
    """
    workers = min(workers or os.cpu_count() or 1, max(1, len(pieces)))
    if workers == 1:
        return _one_by_one(function, pieces, on_progress)
    # Processes of its own need many modules, which whoever runs one workload does not wait for.
    from concurrent.futures import ProcessPoolExecutor, as_completed

    found: dict[int, Result] = {}
    with ProcessPoolExecutor(max_workers=workers, initializer=_leave_interrupts_to_the_parent) as pool:
        waiting = {pool.submit(function, *piece): number for number, piece in enumerate(pieces)}
        try:
            for done in as_completed(waiting):
                found[waiting[done]] = done.result()
                if on_progress is not None:
                    on_progress(len(found), len(pieces))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [found[number] for number in range(len(pieces))]


def _one_by_one(
    function: Callable[..., Result], pieces: Sequence[tuple[object, ...]], on_progress: Progress | None
) -> list[Result]:
    found = []
    for piece in pieces:
        found.append(function(*piece))
        if on_progress is not None:
            on_progress(len(found), len(pieces))
    return found


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of the terminal; only one of them should speak of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
