"""The sha256 of open files, each content read once: what is known is found by the file's times."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.disk import RealDisk, replace_file
from outrider.service.images.pacing import LOOK_S, Pacing
from outrider.service.images.reading import Reader, ReadingProgram, ReadingProgress, StartReader
from outrider.service.ports import ImageTrouble

Key = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of the record, in ns."""

VERSION = 1
MOST_KNOWN = 4_096
MOST_FILE_BYTES = 2 << 20
AT_ONCE = 2
"""So many files are read at the same moment."""
MOMENT_S = 0.25
STALL_S = 15
"""A file system that gives nothing for so long is not waited for."""
MOST_HANGING = 2
"""Programs of one user that hang in a file system: with so many no further one is begun."""
HASH_S = 900.0
SETTLED_NS = 2_000_000_000
"""A file changed so lately may be changed again without its times telling: they are coarse."""


class Hashes:
    """Digests of files, remembered in a bounded file (or only in memory). Any thread may ask.

    Files are read a moment at a time, and between these moments users take turns: so a file of many
    terabytes delays others by a moment, and a file system that does not answer delays nobody else.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Clock,
        *,
        most_known: int = MOST_KNOWN,
        hash_s: float = HASH_S,
        rate_bytes_per_s: int | None = None,
        start: StartReader = ReadingProgram,
    ) -> None:
        self._path = path
        self._clock = clock
        self._most_known = most_known
        self._hash_s = hash_s
        self._start = start
        self._guard = threading.Lock()
        self.pacing = Pacing(AT_ONCE, clock, rate_bytes_per_s=rate_bytes_per_s)
        self._hanging: dict[Hashable, list[Reader]] = {}
        """Programs that did not end when they were killed, by the users for whom they read."""
        self._under_way: dict[Key, threading.Event] = {}
        """What is being read; the event says that it is no longer."""
        self._known = _read(path, most_known)

    def known(self, file: int) -> str | None:
        """The digest of what is open, if it was read before."""
        key = key_of(file)
        with self._guard:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def digest_of(
        self, file: int, name: str, user: Hashable = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> str:
        """`sha256:…` of what is open. Raises ImageTrouble if it changes while it is read, or if it is
        not wanted any more before it has been read."""
        key = key_of(file)
        if (found := self._known_or_ours(key, is_wanted)) is not None:
            return found
        try:
            return self._read(file, name, key, user, is_wanted)
        finally:
            with self._guard:
                self._under_way.pop(key).set()

    def _known_or_ours(self, key: Key, is_wanted: Callable[[], bool]) -> str | None:
        """What is known once nobody else reads the same; None if it is ours to be read now."""
        while is_wanted():
            with self._guard:
                other = self._under_way.get(key)
                if other is None:
                    if key in self._known:
                        self._known.move_to_end(key)
                        return self._known[key]
                    self._under_way[key] = threading.Event()
                    return None
            other.wait(LOOK_S)
        raise ImageTrouble("the image is not wanted any more")

    def _read(self, file: int, name: str, key: Key, user: Hashable, is_wanted: Callable[[], bool]) -> str:
        is_settled = self._clock.now_s() * 1_000_000_000 - max(key[3], key[4]) > SETTLED_NS
        reader = self._reader(file, name, key[2], user)
        try:
            digest = self._read_through(reader, name, user, is_wanted)
        finally:
            if not reader.close():
                with self._guard:
                    self._hanging.setdefault(user, []).append(reader)
        if key_of(file) != key:
            raise ImageTrouble(f"the image {name} changes while it is read: ask again when it is done")
        if is_settled:
            self._remember(key, digest)
        return digest

    def _reader(self, file: int, name: str, size_bytes: int, user: Hashable) -> Reader:
        with self._guard:
            hanging = [each for each in self._hanging.pop(user, []) if not each.has_ended]
            if hanging:
                self._hanging[user] = hanging
        if len(hanging) >= MOST_HANGING:
            raise ImageTrouble(
                f"the image {name} is not read: {len(hanging)} others of yours hang in a file system that "
                "does not answer; repair it or unmount it"
            )
        try:
            return self._start(file, size_bytes)
        except OSError as error:
            raise ImageTrouble(
                f"the image {name} cannot be read: {sys.executable} cannot be run ({error.strerror}); tell "
                "the administrators"
            ) from error

    def _read_through(self, reader: Reader, name: str, user: Hashable, is_wanted: Callable[[], bool]) -> str:
        until_s = self._clock.monotonic_s() + self._hash_s
        while True:
            if not is_wanted():
                raise ImageTrouble(f"the image {name} is not wanted any more")
            if self._clock.monotonic_s() > until_s:
                raise ImageTrouble(
                    f"the image {name} could not be read within {self._hash_s:g} s: put it on a web server, "
                    "with its digest"
                )
            if not self.pacing.take(user):
                continue
            try:
                progress = self._moment(reader, name, user, is_wanted)
            except OSError as error:
                raise ImageTrouble(f"the image {name} cannot be read: {error}; ask again") from error
            verb, _, rest = progress.said.partition(" ")
            if verb == "done":
                return f"sha256:{rest}"
            if verb == "error":
                raise ImageTrouble(f"the image {name} cannot be read: {os.strerror(int(rest))}")
            if verb == "short":
                raise ImageTrouble(f"the image {name} becomes shorter while it is read: ask again")

    def _moment(
        self, reader: Reader, name: str, user: Hashable, is_wanted: Callable[[], bool]
    ) -> ReadingProgress:
        """Let it read for a moment. What takes longer waits without a place: it costs no processor."""
        began_s = self._clock.monotonic_s()
        progress = None
        try:
            reader.order(MOMENT_S)
            progress = reader.answer(2 * MOMENT_S)
        finally:
            read_bytes = 0 if progress is None else progress.read_bytes
            self.pacing.give(user, self._clock.monotonic_s() - began_s, read_bytes)
        waited = 0
        while progress is None:
            if waited >= STALL_S or not is_wanted():
                raise ImageTrouble(
                    f"the image {name} cannot be read: its file system has given nothing for {waited} s; is "
                    "it well?"
                )
            progress = reader.answer(1.0)
            waited += 1
            if progress is not None:
                self.pacing.note(progress.read_bytes)
        return progress

    def _remember(self, key: Key, digest: str) -> None:
        with self._guard:
            self._known[key] = digest
            while len(self._known) > self._most_known:
                self._known.popitem(last=False)
            if self._path is not None:
                rows = [[*each, found] for each, found in self._known.items()]
                data = json.dumps({"version": VERSION, "files": rows}, separators=(",", ":")).encode()
                # A full disk costs the next service a reading of the file, and nobody an answer.
                with suppress(OSError):
                    replace_file(RealDisk(), str(self._path), data)


def key_of(file: int) -> Key:
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path | None, most: int) -> OrderedDict[Key, str]:
    """What an earlier service has remembered; nothing, if that cannot be understood."""
    known: OrderedDict[Key, str] = OrderedDict()
    if path is None:
        return known
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError), path.open("rb") as file:
        found = json.loads(file.read(MOST_FILE_BYTES))
        if found["version"] != VERSION:
            return known
        for row in found["files"][-most:]:
            *numbers, digest = row
            device, inode, size, changed, recorded = map(_number, numbers)
            if isinstance(digest, str) and digest.startswith("sha256:"):
                known[device, inode, size, changed, recorded] = digest
    return known


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError("no number")
    return value
