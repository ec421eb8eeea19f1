"""A node for each test, in a folder that the users of jobs can search."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemons.node.daemons import needs_root
from tests.daemons.pyxis.site import Site, squashfs
from tests.unit.cachemgr.fetch.servers import Server, file_server, serving

IMAGE = squashfs(bytes(range(256)) * 4096)


@pytest.fixture
def site() -> Iterator[Site]:
    yield from _site()


@pytest.fixture
def web() -> Iterator[Server]:
    """An image server, which counts what it is asked for."""
    with serving(file_server(IMAGE)) as server:
        yield server


@pytest.fixture
def downloads(web: Server) -> Callable[[], int]:
    return lambda: sum(asked.method == "GET" for asked in web.asked)


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """One node, with a converter, for what leaves no trace on it, or one of its own name."""
    for found in _site():
        found.start_converter()
        yield found


def _site() -> Iterator[Site]:
    needs_root()
    folder = Path(tempfile.mkdtemp(prefix="px-", dir="/tmp"))
    folder.chmod(0o755)
    found = None
    try:
        found = Site(folder)
        yield found
    finally:
        if found is not None:
            found.stop()
        shutil.rmtree(folder)
