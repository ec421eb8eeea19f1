"""By what a machine's files are known again: length and digest.

The digest is that of the sums of a file's pieces, in their order, so several processors work on one file, and
pieces that are being written are summed up in memory. A sum is a CRC-32: what is looked for is damage, and it
misses one damaged piece in four thousand million, as file systems do. Who can change a file on purpose can
change the record with its digest, too, so SHA-256 would find no more; it takes longer than the disk.
Older versions kept SHA-256 of the pieces, or that of the whole file, without a word before it.
"""

from __future__ import annotations

import hashlib
import zlib
from contextlib import closing

from cachemgr.base.errors import WrongBytes
from cachemgr.machines.qemu.pieces import PIECE_BYTES, PieceWorkers, read_piece
from cachemgr.machines.record import SavedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cachemgr.base.disk import Disk

SUM_BYTES = 4
FEW = 2
"""So many pieces are digested before threads for it are there."""
SUMMED, DIGESTED = "crc32:", "pieces:"
"""What stands before a digest: of which kind it is."""


class PieceDigests:
    """Sums of pieces, in whatever order they come."""

    def __init__(self, kind: str = SUMMED) -> None:
        self._kind = kind
        self._found: dict[int, bytes] = {}

    def take(self, offset: int, data: memoryview) -> None:
        if self._kind == SUMMED:
            self._found[offset] = zlib.crc32(data).to_bytes(SUM_BYTES, "big")
        else:
            self._found[offset] = hashlib.sha256(data).digest()

    def lacking(self, size_bytes: int) -> list[int]:
        """Where pieces of a file begin that have not come."""
        return [at for at in range(0, size_bytes, PIECE_BYTES) if at not in self._found]

    def of_file(self, size_bytes: int) -> SavedFile:
        whole = hashlib.sha256()
        for at in range(0, size_bytes, PIECE_BYTES):
            whole.update(self._found[at])
        return SavedFile(size_bytes, self._kind + whole.hexdigest())


def digest_file(disk: Disk, path: str) -> SavedFile:
    """The length and digest of a file that nobody writes to."""
    digests = PieceDigests()
    with closing(disk.open(path)) as handle:
        return digest_rest(handle.fileno(), handle.size(), digests)


def digest_rest(fd: int, size_bytes: int, digests: PieceDigests) -> SavedFile:
    """Digest of a file the pieces that have not been digested yet."""

    lacking = digests.lacking(size_bytes)
    if len(lacking) <= FEW:
        _digest(fd, lacking, digests)
    else:

        def work(offset: int, view: memoryview) -> None:
            digests.take(offset, read_piece(fd, view, offset))

        PieceWorkers(lacking, work).wait()
    return digests.of_file(size_bytes)


def digest_until(fd: int, end: int, digests: PieceDigests) -> None:
    """Digest the few pieces before that place."""
    _digest(fd, range(0, end, PIECE_BYTES), digests)


def _digest(fd: int, offsets: Iterable[int], digests: PieceDigests) -> None:
    view = memoryview(bytearray(PIECE_BYTES))
    for offset in offsets:
        digests.take(offset, read_piece(fd, view, offset))


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
        kind = kind_of(saved)
        if kind:
            return digest_rest(handle.fileno(), saved.size_bytes, PieceDigests(kind)) == saved
        return digest_whole(handle.fileno(), memoryview(bytearray(PIECE_BYTES))) == saved.digest


def kind_of(saved: SavedFile) -> str:
    """Of which kind its digest is; empty for that of the whole file."""
    return next((kind for kind in (SUMMED, DIGESTED) if saved.digest.startswith(kind)), "")


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
