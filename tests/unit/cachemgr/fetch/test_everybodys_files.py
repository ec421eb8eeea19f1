"""A file that a node looks at without any rights: only what everybody may read is there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import SourceFailed
from cachemgr.fetch.carrier import FetchCarrier, origin_of
from cachemgr.fetch.sources.sources import SourceSettings


def size_of(path: Path, *, is_trusted: bool = False) -> int:
    clock = SystemClock()
    carrier = FetchCarrier(
        settings=SourceSettings(),
        clock=clock,
        random=random.Random(1),
        ticket=lambda digest: None,
        count=lambda scheme, size_bytes: None,
    )
    return carrier.resolve(origin_of(f"file://{path}", is_trusted=is_trusted), 5).size_bytes


@pytest.fixture
def file() -> Iterator[Path]:
    # Not in pytest's own folder, which nobody else may enter.
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        made = Path(name, "image")
        made.write_bytes(b"four")
        made.chmod(0o644)
        yield made


def test_file_that_everybody_may_read_is_there(file: Path) -> None:
    link = file.parent / "link"
    link.symlink_to(file)

    assert (size_of(file), size_of(link)) == (4, 4)


@pytest.mark.parametrize(("mode", "folder"), [(0o640, 0o755), (0o644, 0o700), (0o644, 0o754)])
def test_file_that_not_everybody_may_read_is_not(file: Path, mode: int, folder: int) -> None:
    file.chmod(mode)
    file.parent.chmod(folder)

    with pytest.raises(SourceFailed, match="not a file that everybody may read"):
        size_of(file)
    assert size_of(file, is_trusted=True) == 4


def test_folder_and_what_is_not_there_are_no_files(file: Path) -> None:
    with pytest.raises(SourceFailed, match="not a file that everybody may read"):
        size_of(file.parent)
    with pytest.raises(SourceFailed, match="cannot be looked at: No such file"):
        size_of(file.parent / "missing")
