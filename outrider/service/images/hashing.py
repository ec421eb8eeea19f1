"""The sha256 of open files, each content read once: what is known is found by the file's times."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from cachemgr.disk import RealDisk, replace_file
from outrider.service.nodes.agent import Clock
from outrider.service.ports import ImageTrouble

Key = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of the record, in ns."""

VERSION = 1
MOST_KNOWN = 4_096
MOST_FILE_BYTES = 2 << 20
BLOCK_BYTES = 1 << 20
AT_ONCE = 2
HASH_S = 900.0
SETTLED_NS = 2_000_000_000
"""A file changed so lately may be changed again without its times telling: they are coarse."""


class Hashes:
    """Digests of files, remembered in a bounded file (or only in memory). Any thread may ask."""

    def __init__(
        self, path: Path | None, clock: Clock, *, most_known: int = MOST_KNOWN, hash_s: float = HASH_S
    ) -> None:
        self._path = path
        self._clock = clock
        self._most_known = most_known
        self._hash_s = hash_s
        self._guard = threading.Lock()
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._known = _read(path, most_known)

    def digest_of(self, file: int, name: str) -> str:
        """`sha256:…` of what is open. Raises ImageTrouble if it changes while it is read."""
        until_s = self._clock.monotonic_s() + self._hash_s
        if (found := self._remembered(key_of(file))) is not None:
            return found
        if not self._places.acquire(timeout=self._hash_s):
            raise ImageTrouble(f"too many images are being read: ask for {name} again in some minutes")
        try:
            # Somebody else may have read it while this waited.
            key = key_of(file)
            if (found := self._remembered(key)) is not None:
                return found
            is_settled = self._clock.now_s() * 1_000_000_000 - max(key[3], key[4]) > SETTLED_NS
            digest = self._read_through(file, name, key[2], until_s)
            if key_of(file) != key:
                raise ImageTrouble(f"the image {name} changes while it is read: ask again when it is done")
        finally:
            self._places.release()
        if is_settled:
            self._remember(key, digest)
        return digest

    def _read_through(self, file: int, name: str, size_bytes: int, until_s: float) -> str:
        found, offset = hashlib.sha256(), 0
        with memoryview(bytearray(BLOCK_BYTES)) as block:
            while offset < size_bytes:
                try:
                    count = os.preadv(file, [block], offset)
                except OSError as error:
                    raise ImageTrouble(f"the image {name} cannot be read: {error.strerror}") from error
                if count == 0:
                    raise ImageTrouble(f"the image {name} becomes shorter while it is read: ask again")
                found.update(block[:count])
                offset += count
                if self._clock.monotonic_s() > until_s:
                    raise ImageTrouble(
                        f"the image {name} could not be read within {self._hash_s:g} s: "
                        "put it on a web server, with its digest"
                    )
        return f"sha256:{found.hexdigest()}"

    def _remembered(self, key: Key) -> str | None:
        with self._guard:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

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
