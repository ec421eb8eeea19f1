"""Pieces of an experiment on several processes: their order, and what an interrupt does to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.sim.experiments.parallel import in_parallel


def noted(folder: Path, number: int) -> int:
    """A piece that leaves a trace, so that other processes' work can be counted."""
    (folder / str(number)).touch()
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_pieces(tmp_path: Path, workers: int) -> None:
    told: list[tuple[int, int]] = []

    found = in_parallel(
        noted,
        [(tmp_path, number) for number in range(20)],
        workers=workers,
        on_progress=lambda done, total: told.append((done, total)),
    )

    assert found == [number * number for number in range(20)]
    assert told == [(done, 20) for done in range(1, 21)]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_drops_what_has_not_begun(tmp_path: Path, workers: int) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    pieces = [(tmp_path, number) for number in range(5000)]

    with pytest.raises(KeyboardInterrupt):
        in_parallel(noted, pieces, workers=workers, on_progress=interrupt)

    assert 1 <= len(list(tmp_path.iterdir())) < 5000
