"""Durations, sizes, memory and shares as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.metadata.errors import TextError
from outrider.metadata.notation.amounts import MOST_BYTES, memory_mib, share_percent, size_bytes
from outrider.metadata.notation.durations import MOST_S, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("90", 90 * 60),
        ("90:30", 90 * 60 + 30),
        ("1:30:00", 5400),
        ("0:90:00", 5400),
        ("2-12", 60 * 3600),
        ("2-12:30", 60 * 3600 + 1800),
        ("2-12:30:15", 60 * 3600 + 1815),
        ("0-1", 3600),
        ("2h30m", 9000),
        ("90s", 90),
        ("1d12h", 36 * 3600),
        ("1 week", 7 * 86_400),
        ("2 hours 5 minutes", 7500),
        (" 3H ", 10_800),
        ("3650d", MOST_S),
    ],
)
def test_duration_is_this_many_seconds(text: str, expected_s: int) -> None:
    assert parse_duration(text) == expected_s


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not a length of time"),
        ("0", "not a length of time"),
        ("0:00", "not a length of time"),
        ("3651d", "longer than ten years"),
        ("5 parsecs", '"parsecs" in "5 parsecs" is not a unit'),
        ("30m2h", '"2h" in "30m2h" is out of order'),
        ("1h1h", "out of order"),
        ("2h30", '"30" in "2h30" is not a number with a unit'),
        ("1.5h", '"1.5h" in "1.5h" is not a number'),
        ("-5", "not a number with a unit"),
        ("1:2:3:4", "not a number with a unit"),
        ("1-2-3", "not a number with a unit"),
        ("99999999999", "more than 10 digits"),
        ("UNLIMITED", "not a number with a unit"),
    ],
)
def test_no_duration_names_the_part_that_is_wrong(text: str, part: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_duration(text)

    assert part in str(caught.value)


@given(st.integers(1, MOST_S))
def test_printed_duration_is_read_back(duration_s: int) -> None:
    assert parse_duration(format_duration(duration_s)) == duration_s


@given(st.text(max_size=20) | st.text("0123456789:- dhms", max_size=15))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        duration_s = parse_duration(text)
    except TextError:
        return

    assert 0 < duration_s <= MOST_S


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("600MB", 600_000_000),
        ("1.5 G", 1_500_000_000),
        ("2GiB", 2_147_483_648),
        ("1b", 1),
        (1_800_000_000, 1_800_000_000),
        ("1tib", 1_099_511_627_776),
    ],
)
def test_size_is_this_many_bytes(text: str | int, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("8GiB", 8192), ("1.5GiB", 1536), ("8GB", 7630), ("1KB", 1)])
def test_memory_is_rounded_up_to_whole_mebibytes(text: str, expected: int) -> None:
    # 8 * 10**9 / 2**20 = 7629.39…
    assert memory_mib(text) == expected


@pytest.mark.parametrize("text", ["8G", "8g", "4096", 4096, "512M"])
def test_memory_without_a_full_unit_is_ambiguous_and_refused(text: str | int) -> None:
    with pytest.raises(TextError, match="no full unit"):
        memory_mib(text)


@pytest.mark.parametrize(("text", "expected"), [("60%", 60), (60, 60), ("0%", 0), ("100", 100)])
def test_share_is_a_percentage(text: str | int, expected: int) -> None:
    assert share_percent(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (size_bytes, ""),
        (size_bytes, "0"),
        (size_bytes, "-1"),
        (size_bytes, -1),
        (size_bytes, "5XB"),
        (size_bytes, "MB"),
        (size_bytes, "1e9"),
        (size_bytes, "9" * 18 + "TB"),
        (size_bytes, "9" * 5000),
        (size_bytes, "0.1B"),
        (memory_mib, "many"),
        (share_percent, "101%"),
        (share_percent, "half"),
        (share_percent, "-1%"),
    ],
)
def test_no_amount_is_refused_in_one_line(parse: Callable[[str | int], int], text: str | int) -> None:
    with pytest.raises(TextError) as caught:
        parse(text)

    assert len(str(caught.value)) < 200


@given(st.integers(1, MOST_BYTES))
def test_bytes_are_taken_as_they_are(amount: int) -> None:
    assert size_bytes(str(amount)) == size_bytes(f"{amount}B") == amount
