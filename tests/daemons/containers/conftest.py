"""A real registry for all tests of a file, and a head that converts, in a folder that others can enter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.containers.container_images import Head
from tests.daemons.node.conftest import folder
from tests.daemons.registries.conftest import registry
from tests.daemons.registries.registry_server import Registry, need

__all__ = ["folder", "registry"]


@pytest.fixture
def head(folder: Path, registry: Registry) -> Iterator[Head]:
    need("sqfstar")
    found = Head(folder / "conversions", registry.address)
    yield found
    found.converter.close()
