"""Sizes, rates and node sets as they are written on a command line."""

from __future__ import annotations

import argparse

import pytest

from outrider.cli.quantities import in_hours, link_bytes_per_s, node_names, percent, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("600MB", 600 * 10**6), ("2GiB", 2 * 2**30), ("1.5 G", 1_500_000_000), ("42", 42), ("1kib", 1024)],
)
def test_sizes_know_si_and_iec_units(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "6 00MB", "1XB", "1e9", "١MB1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        size_bytes(text)


def test_a_link_of_100_megabits_carries_12_and_a_half_megabytes() -> None:
    assert link_bytes_per_s("100") == 12_500_000
    with pytest.raises(argparse.ArgumentTypeError, match="not a rate"):
        link_bytes_per_s("0")


def test_node_sets_keep_their_zeros_and_their_order() -> None:
    assert node_names("3") == ("n1", "n2", "n3")
    assert node_names("c[008-010,42]") == ("c008", "c009", "c010", "c42")


@pytest.mark.parametrize("text", ["0", "n[3-1]", "n[1-2,2]", "n[1-999999]", "n1", "n[a]", "[1-2]"])
def test_node_sets_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        node_names(text)


def test_percentages_are_between_nothing_and_all() -> None:
    assert percent("50%") == 50
    for text in ("0", "100", "half"):
        with pytest.raises(argparse.ArgumentTypeError):
            percent(text)


def test_times_are_written_as_people_do() -> None:
    assert [in_hours(seconds) for seconds in (0, 48, 740, 42_720)] == [
        "0 s", "48 s", "12:20 min", "11:52:00 h",
    ]  # fmt: skip
