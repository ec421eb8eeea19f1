"""Files of users, and whoever looks them up."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.images.catalogue import Catalogue
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import OpenAs, opener
from outrider.service.images.resolving import Resolver
from outrider.service.ports import FoundImage, ImageClaim, Unread

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


class Reader:
    """Reads at once what has to be read."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def __call__(
        self, uri: str, digest: str, is_private: bool, uid: int, gids: tuple[int, ...]
    ) -> FoundImage:
        found = self._resolver(ImageClaim(uri=uri, uid=uid, digest=digest, is_private=is_private, gids=gids))
        if not isinstance(found, Unread):
            return found
        try:
            return found.read(lambda: True)
        finally:
            found.close()


@pytest.fixture
def resolver() -> Callable[..., Reader]:
    def make(
        open_as: OpenAs | None = None, hashes: Hashes | None = None, catalogue: Catalogue | None = None
    ) -> Reader:
        resolver = Resolver(
            open_as=open_as or opener(),
            hashes=hashes or Hashes(None, CLOCK),
            clock=CLOCK,
            catalogue=catalogue,
            most_bytes=lambda: 1 << 30,
        )
        return Reader(resolver)

    return make
