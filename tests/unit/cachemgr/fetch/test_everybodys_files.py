"""A file that a node looks at without any rights: only what everybody may read is there."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import SourceFailed
from cachemgr.daemon.transfers.proofs import open_everybodys
from cachemgr.fetch.bring import Origin
from cachemgr.fetch.carrier import FetchCarrier, origin_of
from cachemgr.fetch.ports import Resolved
from cachemgr.fetch.sources.sources import SourceSettings


def carrier() -> FetchCarrier:
    return FetchCarrier(
        settings=SourceSettings(),
        clock=SystemClock(),
        random=random.Random(1),
        ticket=lambda digest: None,
        count=lambda scheme, size_bytes: None,
    )


def size_of(path: Path, *, is_trusted: bool = False) -> int:
    return carrier().resolve(origin_of(f"file://{path}", is_trusted=is_trusted), 5).size_bytes


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


def test_opened_file_is_the_one_that_everybody_may_read(file: Path) -> None:
    odd = file.parent / "an image #%20 of mine?"
    odd.write_bytes(b"five5")
    odd.chmod(0o644)
    link = file.parent / "link"
    link.symlink_to(odd)
    for path in (odd, link):
        opened = open_everybodys(carrier(), origin_of(f"file://{quote(str(path))}", is_trusted=False))
        assert opened.descriptor is not None
        with os.fdopen(opened.descriptor, "rb") as reader:
            assert reader.read() == b"five5"


@pytest.mark.parametrize(("mode", "folder"), [(0o640, 0o755), (0o644, 0o700)])
def test_file_that_not_everybody_may_read_is_not_opened_by_a_link_that_anybody_made(
    file: Path, mode: int, folder: int, tmp_path: Path
) -> None:
    file.chmod(mode)
    file.parent.chmod(folder)
    link = tmp_path / "link"
    link.symlink_to(file)
    before = len(os.listdir("/proc/self/fd"))

    for path in (file, link, file.parent, tmp_path / "nothing"):
        with pytest.raises(SourceFailed):
            open_everybodys(carrier(), origin_of(f"file://{path}", is_trusted=False))
    assert len(os.listdir("/proc/self/fd")) == before


def test_path_that_leads_elsewhere_once_it_was_looked_at_proves_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens it with more rights may be led to what the user could not open."""
    secret = file.parent / "secret"
    secret.write_bytes(b"hidden")
    secret.chmod(0o600)
    look = FetchCarrier.resolve

    def then_swap(self: FetchCarrier, origin: Origin, timeout_s: float) -> Resolved:
        found = look(self, origin, timeout_s)
        file.unlink()
        file.symlink_to(secret)
        return found

    monkeypatch.setattr(FetchCarrier, "resolve", then_swap)
    try:
        opened = open_everybodys(carrier(), origin_of(f"file://{file}", is_trusted=False))
    except SourceFailed:
        return
    assert opened.descriptor is not None
    with os.fdopen(opened.descriptor, "rb") as reader:
        assert reader.read() == b"four"
