"""One site for the files of a unit: the first one's tests begin it, it ends with the last one's."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

import pytest

from tests.scheduling import unit_of

Site = TypeVar("Site")


class KeptSite(Generic[Site]):
    """A site takes longer to make than most files of tests take to use it."""

    def __init__(self) -> None:
        self._begun = ExitStack()
        self._there: dict[str, Site] = {}

    def of(self, node: pytest.Item, begin: Callable[[], AbstractContextManager[Site]]) -> Site:
        """The site of a file's unit."""
        unit = unit_of(node.nodeid)
        if unit not in self._there:
            self.end()
            self._there[unit] = self._begun.enter_context(begin())
            # Whoever interrupts the tests leaves no hosts behind.
            atexit.register(self.end)
        return self._there[unit]

    def end(self) -> None:
        """Now: nobody else wants it, or something has failed there."""
        atexit.unregister(self.end)
        self._there.clear()
        self._begun.close()

    def end_unless_wanted(self, following: pytest.Item | None) -> None:
        """The next test may be of another unit."""
        if self._there and (following is None or unit_of(following.nodeid) not in self._there):
            self.end()
