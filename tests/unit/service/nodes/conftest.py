"""A daemon whose sources a test decides, and the service's way of telling it what to do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr import config as configs
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import Daemon, put_together
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, make_pool


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="nodes-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def carrier() -> ScriptedCarrier:
    return ScriptedCarrier()


@pytest.fixture
def daemon(folder: Path, carrier: ScriptedCarrier) -> Iterator[Callable[..., Inside]]:
    started: list[Inside] = []

    def start(name: str = "n1", limit_bytes: int = 64 * MIB, **texts: str) -> Inside:
        place = folder / name
        place.mkdir(exist_ok=True)
        make_pool(place / "pool", limit_bytes)

        def make(config: configs.NodeConfig, log: DaemonLog) -> Daemon:
            return put_together(config, {}, log, carrier=carrier)

        found = Inside(place, make, **texts)
        started.append(found)
        return found

    yield start
    for each in started:
        each.stop()
