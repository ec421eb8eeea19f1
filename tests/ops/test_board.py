"""The folder that tells a hook in which reservations jobs may begin."""

from __future__ import annotations

import io
from pathlib import Path

from outrider.service.daemon.board import FolderBoard
from tests.ops.fakes import text_log


def board(folder: Path, log: io.StringIO | None = None) -> FolderBoard:
    return FolderBoard(str(folder / "outriderd.sock"), text_log(log or io.StringIO()))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "begin").iterdir())


def test_it_has_a_file_for_each_that_may_begin(tmp_path: Path) -> None:
    made = board(tmp_path)
    made.clear()
    made.tell([("render-1", True), ("render-2", True), ("render-3", False)])
    made.tell([("render-1", False), ("render-2", True)])

    assert names(tmp_path) == ["render-2"]
    assert (tmp_path / "begin").stat().st_mode & 0o777 == 0o755


def test_what_an_earlier_service_knew_is_not_believed(tmp_path: Path) -> None:
    board(tmp_path).clear()
    board(tmp_path).tell([("render-1", True)])
    board(tmp_path).clear()

    assert names(tmp_path) == []


def test_folder_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "begin").write_text("no folder")
    log = io.StringIO()
    made = board(tmp_path, log)
    made.clear()
    made.tell([("render-1", True), ("render-2", False)])

    assert "board cannot be cleared" in log.getvalue()
    assert log.getvalue().count("board cannot be written") == 2
