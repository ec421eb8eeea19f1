"""Files of users, and whoever looks them up."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.clock import SystemClock
from outrider.service.images import Catalogue, Hashes, OpenAs, Resolver, opener

CLOCK = SystemClock()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can search."""
    path = Path(tempfile.mkdtemp(prefix="images-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def put(folder: Path) -> Callable[..., Path]:
    """A file of a user, as old as the hashes want it to be."""

    def make(
        name: str = "image", content: bytes = b"an image", *, mode: int = 0o644, uid: int | None = None
    ) -> Path:
        path = folder / name
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        if uid is not None:
            os.chown(path, uid, uid)
        return path

    return make


@pytest.fixture
def resolver() -> Callable[..., Resolver]:
    def make(
        open_as: OpenAs | None = None, hashes: Hashes | None = None, catalogue: Catalogue | None = None
    ) -> Resolver:
        return Resolver(
            open_as=open_as or opener(),
            hashes=hashes or Hashes(None, CLOCK),
            clock=CLOCK,
            catalogue=catalogue,
            most_bytes=1 << 30,
        )

    return make
