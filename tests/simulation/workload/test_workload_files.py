"""What every reader has in common: lines, their limits, their encoding."""

from pathlib import Path

import pytest

from outrider.sim.workload.formats import files
from outrider.sim.workload.formats.files import BLOCK_BYTES, numbered_lines, open_workload
from outrider.sim.workload.trace import WorkloadError


def test_lines_are_counted_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"line {number}\n" for number in range(1, BLOCK_BYTES // 4)))

    found = list(numbered_lines(path))

    assert found[-1] == (BLOCK_BYTES // 4 - 1, f"line {BLOCK_BYTES // 4 - 1}")
    assert all(text == f"line {number}" for number, text in found)


def test_endless_line_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE_BYTES", 10)
    path = tmp_path / "lines"
    path.write_text("good\n" + "x" * (BLOCK_BYTES + 10))

    with pytest.raises(WorkloadError, match="line 2: longer than 10 bytes"):
        list(numbered_lines(path))


def test_line_of_exactly_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE_BYTES", 10)
    path = tmp_path / "lines"
    path.write_text("x" * (BLOCK_BYTES + 10))

    assert [len(text) for _, text in numbered_lines(path)] == [BLOCK_BYTES + 10]


def test_text_that_is_not_utf8_is_named_with_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"good\nbad \xff\n")

    with pytest.raises(WorkloadError, match="lines, line 2: byte 5 is not UTF-8"):
        list(numbered_lines(path))


def test_folder_is_an_error_and_not_a_workload(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read"), open_workload(tmp_path):
        pass
