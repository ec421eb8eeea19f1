"""A file of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.sources.served import CONTENT, Served


@contextmanager
def _file(folder: Path) -> Iterator[Served]:
    path = folder / "image.raw"
    path.write_bytes(CONTENT)

    def change() -> None:
        path.write_bytes(CONTENT[1:])

    yield Served(uri=f"file://{path}", change=change)


SOURCES = {"file": _file}
