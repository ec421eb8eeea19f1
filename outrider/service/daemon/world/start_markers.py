"""A folder with an empty file for each reservation in which jobs may begin, for who cannot wait to be
answered: a hook of the batch system, before each start of a job (docs/reference/hooks.md)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cachemgr.base.errors import BadRequest
from cachemgr.base.ownfolder import OwnFolder
from outrider.service.daemon.errors import ServiceInputError
from outrider.service.meter import Log

FOLDER = "begin"
PURPOSE = "begin"
RESERVATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")


class StartMarkers(Protocol):
    """Where it is told in which reservations jobs may begin."""

    def clear(self) -> None:
        """Nothing is known any more."""

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        """Of each of these, whether a job in it finds its image wherever it starts."""


class NoStartMarkers:
    """Nobody looks."""

    def clear(self) -> None:
        pass

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        pass


class StartMarkerFolder:
    """Beside the service's socket. What cannot be written there is asked for, as before."""

    def __init__(self, socket: str, log: Log) -> None:
        self._path = f"{Path(socket).parent}/{FOLDER}"
        self._log = log
        self._own: OwnFolder | None = None

    def check(self) -> None:
        """Raises InputError if there is a folder of that name which is not ours."""
        try:
            self._folder()
        except BadRequest as error:
            raise ServiceInputError(str(error)) from error
        except OSError:
            """Said when it is to be written: without it, hooks ask."""

    def clear(self) -> None:
        try:
            folder = self._folder()
            for name in folder.left():
                folder.unlink(name)
        except (BadRequest, OSError) as error:
            self._log.warning("start markers cannot be cleared", folder=self._path, words=str(error))

    def tell(self, begins: Sequence[tuple[str, bool]]) -> None:
        for name, may_begin in begins:
            try:
                folder = self._folder()
                if may_begin:
                    folder.touch(name, 0o644)
                else:
                    folder.unlink(name)
            except (BadRequest, OSError) as error:
                # A word that is not true any more would be worse than none.
                if self._own is not None:
                    with suppress(OSError):
                        self._own.unlink(name)
                self._log.warning("start markers cannot be written", reservation=name, words=str(error))

    def _folder(self) -> OwnFolder:
        """The folder that hooks look at, which somebody may have replaced."""
        if self._own is None or not self._own.is_in_place:
            if self._own is not None:
                self._own.close()
                self._own = None
            self._own = OwnFolder(self._path, PURPOSE, mode=0o755, is_left=_is_word)
        return self._own


def _is_word(name: str, found: os.stat_result) -> bool:
    """Whether that is a file of ours: empty, with a reservation's name."""
    return stat.S_ISREG(found.st_mode) and found.st_size == 0 and RESERVATION.fullmatch(name) is not None
