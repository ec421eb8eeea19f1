"""Fixtures that start servers, and stop them again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.service.web.apiserver import ScriptedFront, Server


@pytest.fixture(scope="session")
def shared() -> Iterator[Server]:
    """One server for all tests that need no limits of their own."""
    folder = Path(tempfile.mkdtemp(prefix="api-"))
    folder.chmod(0o755)
    server = Server(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def api(shared: Server) -> Iterator[Server]:
    shared.front.reset()
    shared.tally.lines.clear()
    yield shared
    assert [line for line in shared.tally.lines if line[0] == "error"] == []


@pytest.fixture
def front(api: Server) -> ScriptedFront:
    return api.front


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers with limits or an identity of their own."""
    started: list[tuple[Server, Path]] = []

    def start(**options: Any) -> Server:
        folder = Path(tempfile.mkdtemp(prefix="api-"))
        folder.chmod(0o755)
        started.append((Server(folder, **options), folder))
        return started[-1][0]

    yield start
    for server, folder in started:
        server.stop()
        shutil.rmtree(folder)
