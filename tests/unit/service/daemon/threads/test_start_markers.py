"""The folder that tells a hook in which reservations jobs may begin."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cachemgr.base.ownfolder import MARKER
from outrider.service.daemon.errors import ServiceInputError
from outrider.service.daemon.world.start_markers import StartMarkerFolder
from tests.unit.service.daemon.fakes import text_log


def markers(folder: Path, log: io.StringIO | None = None) -> StartMarkerFolder:
    return StartMarkerFolder(str(folder / "outriderd.sock"), text_log(log or io.StringIO()))


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "begin").iterdir() if each.name != MARKER)


def test_it_has_a_file_for_each_that_may_begin(tmp_path: Path) -> None:
    made = markers(tmp_path)
    made.clear()
    made.tell([("render-1", True), ("render-2", True), ("render-3", False)])
    made.tell([("render-1", False), ("render-2", True)])

    assert names(tmp_path) == ["render-2"]
    assert (tmp_path / "begin").stat().st_mode & 0o777 == 0o755


def test_what_an_earlier_service_knew_is_not_believed(tmp_path: Path) -> None:
    markers(tmp_path).clear()
    markers(tmp_path).tell([("render-1", True)])
    markers(tmp_path).clear()

    assert names(tmp_path) == []


def test_folder_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "begin").write_text("no folder")
    log = io.StringIO()
    made = markers(tmp_path, log)
    made.clear()
    made.tell([("render-1", True), ("render-2", False)])

    assert "markers cannot be cleared" in log.getvalue()
    assert log.getvalue().count("markers cannot be written") == 2


def test_words_of_a_service_before_there_were_marks_are_cleared(tmp_path: Path) -> None:
    (tmp_path / "begin").mkdir()
    (tmp_path / "begin/render-1").touch()
    made = markers(tmp_path)
    made.check()
    made.clear()

    assert names(tmp_path) == []
    assert (tmp_path / "begin" / MARKER).read_text() == "begin\n"


@pytest.mark.parametrize("stranger", ["notes.txt", "a folder"])
def test_folder_of_somebody_else_is_refused_and_nothing_in_it_touched(tmp_path: Path, stranger: str) -> None:
    folder = tmp_path / "begin"
    folder.mkdir()
    (folder / "render-1").touch()
    if stranger == "a folder":
        (folder / stranger).mkdir()
    else:
        (folder / stranger).write_text("of somebody")
    log = io.StringIO()
    made = markers(tmp_path, log)
    with pytest.raises(
        ServiceInputError, match=f"holds '{stranger}': name another folder; or, .*echo begin > {folder}"
    ):
        made.check()
    made.clear()
    made.tell([("render-2", True), ("render-1", False)])

    assert names(tmp_path) == sorted(["render-1", stranger])
    assert "markers cannot be cleared" in log.getvalue()


def test_link_in_the_place_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    (tmp_path / "begin").symlink_to(other)
    made = markers(tmp_path)
    with pytest.raises(ServiceInputError, match="is a link, or not a folder"):
        made.check()
    made.clear()
    made.tell([("render-1", True), ("precious", False)])

    assert [each.name for each in other.iterdir()] == ["precious"]


def test_link_that_takes_the_folders_place_later_leads_nowhere(tmp_path: Path) -> None:
    made = markers(tmp_path)
    made.clear()
    made.tell([("render-1", True)])
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    (tmp_path / "begin").rename(tmp_path / "away")
    (tmp_path / "begin").symlink_to(other)
    made.tell([("render-2", True), ("precious", False)])
    made.clear()

    assert [each.name for each in other.iterdir()] == ["precious"]


def test_link_among_the_words_is_not_written_through(tmp_path: Path) -> None:
    made = markers(tmp_path)
    made.clear()
    (tmp_path / "begin/render-1").symlink_to(tmp_path / "made-by-us")
    made.tell([("render-1", True)])

    assert not (tmp_path / "made-by-us").exists()


def test_folder_that_is_removed_while_the_service_runs_is_made_anew(tmp_path: Path) -> None:
    made = markers(tmp_path)
    made.clear()
    (tmp_path / "begin").rename(tmp_path / "away")
    made.tell([("render-1", True)])

    assert names(tmp_path) == ["render-1"]
