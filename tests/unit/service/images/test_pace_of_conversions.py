"""How long a conversion is expected to take: by size, by what is made, and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.service.images.containers.pace import KEPT, ConversionPace, Expectation


def test_time_and_size_are_in_proportion_to_the_layers_and_of_the_same_kind(tmp_path: Path) -> None:
    pace = ConversionPace(tmp_path / "pace.json")
    assert pace.expected("squashfs", 1_000) is None

    pace.note("squashfs", 1_000, 4.0, 1_200)

    assert pace.expected("squashfs", 500) == Expectation(2.0, 600)
    assert pace.expected("sif", 500) is None


def test_what_was_measured_counts_after_a_restart_and_less_than_what_came_later(tmp_path: Path) -> None:
    ConversionPace(tmp_path / "pace.json").note("squashfs", 1_000, 4.0, 2_000)
    later = ConversionPace(tmp_path / "pace.json")
    later.note("squashfs", 1_000, 1.0, 500)

    found = later.expected("squashfs", 1_000)
    assert found is not None
    assert found.took_s == pytest.approx((KEPT * 4 + 1) / (KEPT + 1))
    assert found.size_bytes == round((KEPT * 2_000 + 500) / (KEPT + 1))


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"squashfs": 3}', '{"squashfs": [1, 2]}', '{"squashfs": ["a", 2, 3]}']
)
def test_file_that_cannot_be_read_means_that_nothing_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "pace.json").write_text(text)

    assert ConversionPace(tmp_path / "pace.json").expected("squashfs", 1) is None
