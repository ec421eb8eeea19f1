"""Bringing blobs from a registry to the head: whole, with the right digest, or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cachemgr.base.clock import Clock
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.manifests import Blob
from outrider.service.images.containers.faults import ConversionFault

if TYPE_CHECKING:
    from cachemgr.fetch.ports import Stream

BLOCK = 1 << 20
OPEN_S = 30.0
SILENT_S = 30.0
MOST_FAILURES = 4
FIRST_WAIT_S = 0.5


class BlobSource(Protocol):
    """Asks a registry for a blob's bytes, as `Session` does."""

    def open(self, digest: str, offset: int, size_bytes: int, timeout_s: float) -> Stream: ...


def bring(
    blob: Blob,
    path: Path,
    source: BlobSource,
    clock: Clock,
    note: Callable[[int], None],
    is_wanted: Callable[[], bool],
) -> None:
    """Put a blob at a path, unless it is there. A line that breaks is taken up where it broke.

    Raises ConversionFault. What is not whole has another name, and is removed.
    """
    if path.exists():
        note(blob.size_bytes)
        return
    # Others may bring the same layer at the same time: whoever is whole last stays.
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            content = _Content(blob, file.fileno(), note)
            _fill(content, source, clock, is_wanted)
            if content.digest != blob.digest:
                raise ConversionFault(
                    f"the registry sends other bytes for {blob.digest[:19]}… than it should: push the "
                    "image again"
                )
            os.fsync(file.fileno())
        os.rename(part, path)
    finally:
        part.unlink(missing_ok=True)


class _Content:
    """What has come of a blob."""

    def __init__(self, blob: Blob, file: int, note: Callable[[int], None]) -> None:
        self.blob = blob
        self.offset = 0
        self._file = file
        self._note = note
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def add(self, data: memoryview) -> None:
        self._hash.update(data)
        while data:
            written = os.write(self._file, data)
            data = data[written:]
            self.offset += written
            self._note(written)


def _fill(content: _Content, source: BlobSource, clock: Clock, is_wanted: Callable[[], bool]) -> None:
    failures, wait_s = 0, FIRST_WAIT_S
    while content.offset < content.blob.size_bytes:
        before = content.offset
        try:
            _read(content, source, is_wanted)
            if content.offset < content.blob.size_bytes:
                raise SourceFault("the line breaks")
        except SourceFault as fault:
            failures = 1 if content.offset > before else failures + 1
            if fault.is_final or failures >= MOST_FAILURES:
                raise ConversionFault(
                    f"layer {content.blob.digest[:19]}… cannot be fetched: {fault}; ask again when the "
                    "registry "
                    "is well"
                ) from fault
            if not is_wanted():
                raise ConversionFault("it is not wanted any more") from fault
            clock.sleep(max(wait_s * failures, min(10, fault.retry_after_s or 0)))


def _read(content: _Content, source: BlobSource, is_wanted: Callable[[], bool]) -> None:
    blob = content.blob
    body = source.open(blob.digest, content.offset, blob.size_bytes, OPEN_S)
    try:
        if body.start_bytes not in (0, content.offset):
            raise SourceFault("the registry sends another part than it was asked for")
        skip = content.offset - body.start_bytes
        with memoryview(bytearray(BLOCK)) as block:
            while content.offset < blob.size_bytes:
                if not is_wanted():
                    raise SourceFault("it is not wanted any more", is_final=True)
                count = body.read_into(block, SILENT_S)
                if count is None:
                    raise SourceFault(f"the registry has sent nothing for {SILENT_S:g} s")
                if not count:
                    return
                fresh = block[min(skip, count) : count]
                skip = max(0, skip - count)
                content.add(fresh[: blob.size_bytes - content.offset])
    finally:
        body.close()
