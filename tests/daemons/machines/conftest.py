"""Fixtures of real machines: an engine of an ordinary user, and guests for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.machines.keeper import PROGRAM
from testbed.linux_guest import LinuxGuest, linux_guest
from tests.daemons.machines.counter import make_disk
from tests.daemons.machines.engine import MIB, Engine

NEEDED = (PROGRAM, "/usr/bin/as", "/usr/bin/ld")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = [path for path in NEEDED if not os.path.exists(path)]
    for item in items:
        if lacking and item.path.parent == Path(__file__).parent and "CI" not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(lacking)}: make tools"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="machines-"))
    found = Engine(folder)
    yield found
    found.close()


@pytest.fixture
def counter(engine: Engine) -> str:
    """The wish of a machine that counts."""
    path = engine.folder / "counter.img"
    make_disk(path, engine.folder)
    path.chmod(0o444)
    return engine.wish(name="counter", memory_bytes=32 * MIB, disks=[{"name": "root", "path": str(path)}])


@pytest.fixture(scope="session")
def linux() -> LinuxGuest:
    for tool in ("apt-get", "dpkg-deb", "cpio", "lz4"):
        if shutil.which(tool) is None and "CI" not in os.environ:
            pytest.skip(f"needs {tool} to make a guest: make tools")
    return linux_guest()
