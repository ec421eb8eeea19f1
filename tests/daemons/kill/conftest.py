"""Sites to be maltreated, on disks that a test can fill, and what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemons.kill.loopdisk import in_memory
from tests.daemons.kill.victim import Preloaded, Victim, short_folder

MIB = 1 << 20
Make = Callable[..., Victim]


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    found = Preloaded()
    yield found
    found.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        (path / "image").write_bytes(b"an image\n" * 1000)
        yield path


@pytest.fixture
def make(folder: Path, preloaded: Preloaded) -> Iterator[Make]:
    """Makes a site; `name` tells several in one folder apart."""
    made: list[Victim] = []

    def site(name: str = "a", state: Path | None = None, backend: Path | None = None) -> Victim:
        place = folder / name
        place.mkdir()
        found = Victim(place, preloaded=preloaded, nodes=1, state=state, backend=backend)
        made.append(found)
        return found

    yield site
    for each in made:
        each.end()


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A disk of some MiB."""
    with in_memory(folder / "disk", "4m") as place:
        yield place
