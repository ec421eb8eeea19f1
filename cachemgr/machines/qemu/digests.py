"""By what a machine's files are known again: length and digest.

The digest is that of the digests of a file's pieces, in their order, so several processors work on one file,
and pieces that are being written are digested from memory. An older version kept the file's own SHA-256,
without a word before it.
"""

from __future__ import annotations

import hashlib
from contextlib import closing

from cachemgr.base.errors import WrongBytes
from cachemgr.machines.qemu.pieces import PIECE_BYTES, PieceWorkers, read_piece
from cachemgr.machines.record import SavedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.disk import Disk

KIND = "pieces:"


class PieceDigests:
    """Digests of pieces, in whatever order they come."""

    def __init__(self) -> None:
        self._found: dict[int, bytes] = {}

    def take(self, offset: int, data: memoryview) -> None:
        self._found[offset] = hashlib.sha256(data).digest()

    def lacking(self, size_bytes: int) -> list[int]:
        """Where pieces of a file begin that have not come."""
        return [at for at in range(0, size_bytes, PIECE_BYTES) if at not in self._found]

    def of_file(self, size_bytes: int) -> SavedFile:
        whole = hashlib.sha256()
        for at in range(0, size_bytes, PIECE_BYTES):
            whole.update(self._found[at])
        return SavedFile(size_bytes, KIND + whole.hexdigest())


def digest_file(disk: Disk, path: str) -> SavedFile:
    """The length and digest of a file that nobody writes to."""
    digests = PieceDigests()
    with closing(disk.open(path)) as handle:
        return digest_rest(handle.fileno(), handle.size(), digests)


def digest_rest(fd: int, size_bytes: int, digests: PieceDigests) -> SavedFile:
    """Digest of a file the pieces that have not been digested yet."""

    def work(offset: int, view: memoryview) -> None:
        digests.take(offset, read_piece(fd, view, offset))

    PieceWorkers(digests.lacking(size_bytes), work).wait()
    return digests.of_file(size_bytes)


def digest_whole(fd: int, view: memoryview) -> str:
    """The digest of a file that an older version kept."""
    digest, at = hashlib.sha256(), 0
    while True:
        data = read_piece(fd, view, at)
        if not len(data):
            return digest.hexdigest()
        digest.update(data)
        at += len(data)


def is_as_saved(disk: Disk, path: str, saved: SavedFile) -> bool:
    """Whether a file that nobody writes to is what was written down of it."""
    with closing(disk.open(path)) as handle:
        if handle.size() != saved.size_bytes:
            return False
        if is_by_pieces(saved):
            return digest_rest(handle.fileno(), saved.size_bytes, PieceDigests()) == saved
        return digest_whole(handle.fileno(), memoryview(bytearray(PIECE_BYTES))) == saved.digest


def is_by_pieces(saved: SavedFile) -> bool:
    return saved.digest.startswith(KIND)


def check_files(disk: Disk, folder: str, saved: Mapping[str, SavedFile]) -> None:
    """Compare files with what was written down of them; WrongBytes names the first that differs."""
    for name in sorted(saved):
        path = f"{folder}/{name}"
        try:
            check_length(disk.size(path), path, saved[name])
            if not is_as_saved(disk, path, saved[name]):
                raise wrong(path, DIFFERS)
        except FileNotFoundError as error:
            raise wrong(path, "it is missing") from error


DIFFERS = "its digest differs from that of what was saved"


def check_length(size_bytes: int, path: str, saved: SavedFile) -> None:
    if size_bytes != saved.size_bytes:
        raise wrong(path, f"it has {size_bytes} bytes and had {saved.size_bytes}")


def wrong(path: str, why: str) -> WrongBytes:
    return WrongBytes(
        f"the saved machine cannot go on: {path} is not what was saved, {why}; bring that file back from a "
        "copy, or start the job again"
    )
