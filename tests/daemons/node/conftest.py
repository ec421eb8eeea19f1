"""Fixtures that start daemons, and stop them again."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr import config as configs
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import Daemon, put_together
from tests.daemons.node.daemons import MIB, Inside, Outside, ScriptedCarrier, make_pool


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can search, with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="node-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def carrier() -> ScriptedCarrier:
    return ScriptedCarrier()


@pytest.fixture
def inside(folder: Path, carrier: ScriptedCarrier) -> Iterator[Callable[..., Inside]]:
    """Starts daemons in this process, each in a folder of its name; a scripted carrier brings images."""
    started: list[Inside] = []

    def start(
        name: str = ".",
        limit_bytes: int = 64 * MIB,
        clock: Any = None,
        maker: Any = None,
        real_carrier: bool = False,
        **texts: str,
    ) -> Inside:
        place = folder / name
        place.mkdir(exist_ok=True)
        make_pool(place / "pool", limit_bytes)

        def make(config: configs.NodeConfig, log: DaemonLog) -> Daemon:
            chosen = None if real_carrier else carrier
            return put_together(config, {}, log, carrier=chosen, clock=clock, maker=maker)

        found = Inside(place, make, **texts)
        started.append(found)
        return found

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def outside(folder: Path) -> Iterator[Callable[..., Outside]]:
    started: list[Outside] = []

    def start(
        limit_bytes: int = 64 * MIB,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
        most_open_files: int | None = None,
        **texts: str,
    ) -> Outside:
        make_pool(folder / "pool", limit_bytes)
        found = Outside(folder, environment, python, most_open_files, **texts)
        started.append(found)
        return found

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
