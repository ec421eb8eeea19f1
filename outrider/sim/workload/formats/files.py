"""Workload files as bytes and lines: opened, unpacked, limited, replaced whole.

Every reader of this package takes its bytes from here, so that a missing file, a damaged
archive or an endless line is the same `WorkloadError` whatever the format.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from outrider.sim.workload.trace import WorkloadError

GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 1 << 16
LONGEST_LINE_BYTES = 1 << 24


@contextmanager
def open_workload(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if they are gzip: the content decides, not the name."""
    try:
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] == GZIP_MAGIC:
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, io.BufferedReader(unpacked, 2 * BLOCK_BYTES))
            else:
                yield raw
    except EOFError as error:
        raise WorkloadError(
            f"{os.fspath(path)}: the gzip data end too early; fetch the file again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WorkloadError(
            f"{os.fspath(path)}: the gzip data are damaged ({error}); fetch the file again"
        ) from error
    except OSError as error:
        raise WorkloadError(
            f"{os.fspath(path)}: cannot be read ({error.strerror}); check the path and who may read it"
        ) from error


def blocks(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Blocks of whole lines, only the last of which may lack its newline.

    A block is small enough for its parts to stay in the processor's cache, which makes
    splitting it much cheaper than splitting a whole log at once.
    """
    line = 1
    while block := file.read(BLOCK_BYTES):
        block += file.readline(LONGEST_LINE_BYTES)
        line += block.count(b"\n")
        if not block.endswith(b"\n") and file.read(1):
            raise WorkloadError(
                f"{os.fspath(path)}, line {line}: longer than {LONGEST_LINE_BYTES} bytes; "
                "this is not a workload file"
            )
        yield block


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The text lines of a file without their newlines, counted from 1."""
    number = 0
    with open_workload(path) as file:
        for block in blocks(file, path):
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                try:
                    yield number, line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise WorkloadError(
                        f"{os.fspath(path)}, line {number}: byte {error.start + 1} is not "
                        "UTF-8; convert the file to UTF-8"
                    ) from error


@contextmanager
def replace_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A text file that appears under its name only when it is complete.

    A name that ends in .gz is packed, without a time stamp: the same text gives the same
    bytes. When the body fails, what was there before stays, and nothing is left beside it.
    """
    final = Path(path)
    beside = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as raw:
            with _text(raw, is_packed=final.suffix == ".gz") as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(beside, final)
    except OSError as error:
        raise WorkloadError(
            f"{final}: cannot be written ({error.strerror}); check the folder and its space"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _text(raw: BinaryIO, *, is_packed: bool) -> Iterator[TextIO]:
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if is_packed else None
    # The surrogate escape gives back the bytes of headers that were never UTF-8.
    text = io.TextIOWrapper(
        cast(BinaryIO, packed) if packed else raw,
        encoding="utf-8",
        errors="surrogateescape",
        newline="\n",
    )
    try:
        yield text
    finally:
        text.detach()  # flushes, and leaves `raw` open for its fsync
        if packed:
            packed.close()
