"""When jobs that were sent back had come, by their numbers."""

from __future__ import annotations

import pytest

from outrider.service.desk.jobs.ordering.came_back import BLOCK_BITS, came_back

OTHER = 1 << BLOCK_BITS


@pytest.mark.parametrize(
    ("waiting", "found"),
    [
        ([("7", 10), ("8", 10), ("9", 20), ("10", 30)], {}),
        # 8 was sent back at 50, when 9 had come at 20.
        ([("7", 10), ("8", 50), ("9", 20), ("10", 30)], {"8": 20}),
        # So were 7 and 8: they keep the order of their numbers.
        ([("7", 60), ("8", 50), ("9", 20)], {"7": 20, "8": 20}),
        ([("7", 60), ("8", 50)], {"7": 50}),
        # Nobody has come since.
        ([("7", 10), ("8", 50)], {}),
        ([("8_3", 50), ("9_[1-4]", 20), ("10.2", 30)], {"8_3": 20}),
        # Another cluster of a federation has numbers of its own.
        ([("8", 50), (str(OTHER + 9), 20)], {}),
        ([("x", 50), ("9", 20)], {}),
    ],
    ids=["none", "one", "two", "all", "last", "arrays", "clusters", "no-number"],
)
def test_job_that_was_sent_back_had_come_before_those_of_higher_numbers(
    waiting: list[tuple[str, int]], found: dict[str, int]
) -> None:
    assert came_back(waiting) == found
