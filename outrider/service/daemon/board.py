"""A folder with an empty file for each reservation in which jobs may begin, for who cannot wait to be
answered: a hook of the batch system, before each start of a job (docs/hooks.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from outrider.service.meter import Log

FOLDER = "begin"


class Board(Protocol):
    """Where it is told in which reservations jobs may begin."""

    def clear(self) -> None:
        """Nothing is known any more."""

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        """Of each of these, whether a job in it finds its image wherever it starts."""


class NoBoard:
    """Nobody looks."""

    def clear(self) -> None:
        pass

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        pass


class FolderBoard:
    """Beside the service's socket. What cannot be written there is asked for, as before."""

    def __init__(self, socket: str, log: Log) -> None:
        self._folder = Path(socket).parent / FOLDER
        self._log = log

    def clear(self) -> None:
        try:
            self._folder.mkdir(mode=0o755, exist_ok=True)
            for each in os.scandir(self._folder):
                os.unlink(each.path)
        except OSError as error:
            self._log.warning("board cannot be cleared", folder=str(self._folder), words=str(error))

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        for name, may_begin in begins:
            path = self._folder / name
            try:
                if may_begin:
                    path.touch(mode=0o644)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                # A word that is not true any more would be worse than none.
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                self._log.warning("board cannot be written", reservation=name, words=str(error))
