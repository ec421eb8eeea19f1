"""Files of jobs' suspended machines, which the relay gives to other nodes beside images.

    GET /v1/machines/UID/JOB/FILE

A ticket names one machine and is for no image, since what a user's own record says of digests proves
nothing. The daemon is root and the folders are users': a file is opened step by step, without following a
link, and only if it is that user's.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from cachemgr.base.steady import past_s
from cachemgr.machines.batch import kept
from cachemgr.relay.conversation import Conversation
from cachemgr.relay.request import RequestRefused
from cachemgr.relay.tickets import refusal

if TYPE_CHECKING:
    from cachemgr.fetch.ports import Held
    from cachemgr.relay.request import RelayRequest

ROOT = "/v1/machines/"
PATH = re.compile(ROOT + r"([1-9][0-9]{0,9})/([0-9]{1,10}(?:-[0-9]{1,10})?)/([a-z][a-z0-9.]{0,39})")
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def machine_path(uid: int, key: str) -> str:
    """Where the files of a machine are, below a relay."""
    return f"{ROOT}{uid}/{key}"


def thing_of(uid: int, key: str) -> str:
    """What a ticket for a machine's files is for."""
    return f"machine:{uid}/{key}"


class HeldFile:
    """A file of a machine, open for reading."""

    is_public = False

    def __init__(self, uid: int, key: str, name: str, folder: str = "") -> None:
        """Raises OSError if there is none, or if it is not that user's."""
        self._file: int | None = None
        at = os.open(folder or kept.FOLDER, FLAGS & ~os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            for part in (f"outrider-{uid}", f"job-{key}"):
                at, before = _opened(part, at, FLAGS | os.O_DIRECTORY, uid), at
                os.close(before)
            self._file = _opened(name, at, FLAGS, uid)
        finally:
            os.close(at)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise FileNotFoundError(name)
        self.size_bytes = found.st_size
        self.tag = f'"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"'

    def valid_bytes(self) -> int:
        return self.size_bytes

    def wait(self, offset: int, timeout_s: float) -> int:
        return self.size_bytes

    def read(self, offset: int, most: int) -> bytes:
        return b"" if self._file is None else os.pread(self._file, most, offset)

    def fileno(self) -> int | None:
        return self._file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class NodeConversation(Conversation):
    """Requests of other nodes: for images, and for files of machines."""

    def _find(self, request: RelayRequest) -> Held:
        if not request.target.startswith(ROOT):
            return super()._find(request)
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "only GET and HEAD are known")
        found = PATH.fullmatch(request.target)
        if found is None:
            raise RequestRefused(404, f"there are only {ROOT}UID/JOB/FILE")
        uid, key, name = int(found[1]), found[2], found[3]
        shown = request.headers.get("authorization", "")
        reason = refusal(self._settings.keys, thing_of(uid, key), shown, past_s(self._clock))
        if reason is not None:
            raise RequestRefused(401, reason)
        self._let_in(has_ticket=True)
        held = None
        with suppress(OSError):
            held = HeldFile(uid, key, name)
        if held is None:
            raise RequestRefused(404, "this node has no such file of that machine")
        return held

    def _described(self, request: RelayRequest, held: Held) -> tuple[str, dict[str, str]]:
        if isinstance(held, HeldFile):
            return held.tag, {"Content-Type": "application/octet-stream"}
        return super()._described(request, held)


def _opened(name: str, folder: int, flags: int, uid: int) -> int:
    found = os.open(name, flags, dir_fd=folder)
    if os.fstat(found).st_uid != uid:
        os.close(found)
        raise PermissionError(name)
    return found
