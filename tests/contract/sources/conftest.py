"""The sources that have to keep the contract, each with an image that it has."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.contract.sources.served import Served

# What each file NAME_source.py beside this one serves, by the scheme of its addresses.
SOURCES: dict[str, Callable[[Path], AbstractContextManager[Served]]] = {}
for path in sorted(Path(__file__).parent.glob("*_source.py")):
    SOURCES |= importlib.import_module(f"tests.contract.sources.{path.stem}").SOURCES


@pytest.fixture(params=[*SOURCES])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with SOURCES[request.param](tmp_path) as found:
        yield found
