"""An image as a source has it, for the contract's tests.

A kind of sources joins by a file NAME_source.py beside this one, with a dictionary SOURCES of the scheme
and a context manager that gets an empty folder: conftest.py finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

CONTENT = bytes(range(256)) * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """`change` gives the image another size, where the source's images can change."""

    uri: str
    content: bytes = CONTENT
    change: Callable[[], None] | None = None
