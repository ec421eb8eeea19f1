"""How long a conversion is expected to take: by size, by what is made, and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.service.images.containers.pace import KEPT, LEAST_BYTES, ConversionPace

LARGE = 100 << 20


def test_time_is_in_proportion_to_the_size_and_of_the_same_kind(tmp_path: Path) -> None:
    pace = ConversionPace(tmp_path / "pace.json")
    assert pace.expected_s("squashfs", LARGE) is None

    pace.note("squashfs", LARGE, 4.0)

    assert pace.expected_s("squashfs", LARGE // 2) == pytest.approx(2.0)
    assert pace.expected_s("sif", LARGE) is None


def test_small_image_says_how_long_another_one_takes_and_little_of_a_large_one(tmp_path: Path) -> None:
    pace = ConversionPace(tmp_path / "pace.json")

    pace.note("squashfs", 300, 2.0)

    assert pace.expected_s("squashfs", 5_000) == pytest.approx(2.0)
    assert pace.expected_s("squashfs", 10 * LEAST_BYTES) == pytest.approx(20.0)


def test_what_was_measured_counts_after_a_restart_and_less_than_what_came_later(tmp_path: Path) -> None:
    ConversionPace(tmp_path / "pace.json").note("squashfs", LARGE, 4.0)
    later = ConversionPace(tmp_path / "pace.json")
    later.note("squashfs", LARGE, 1.0)

    assert later.expected_s("squashfs", LARGE) == pytest.approx((KEPT * 4 + 1) / (KEPT + 1))


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"squashfs": 3}', '{"squashfs": ["a", 2]}'])
def test_file_that_cannot_be_read_means_that_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "pace.json").write_text(text)

    assert ConversionPace(tmp_path / "pace.json").expected_s("squashfs", 1) is None
