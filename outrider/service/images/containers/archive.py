"""The entries of a layer's tar archive, read from a stream and bounded in every size.

Python's own reader takes a whole extended header into memory however long it says that it is, so
this one knows the forms that registries have, counts what it reads, and refuses all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from outrider.service.images.containers.faults import ConversionFault

BLOCK = 512
MOST_HEADER_BYTES = 1 << 20
"""Of one extended header."""
MOST_PATH = 4_096
MOST_NAME = 255
MOST_DEPTH = 255
MOST_FILE_BYTES = 1 << 50
SKIP_BYTES = 1 << 20
KINDS = {
    "\0": "file",
    "0": "file",
    "7": "file",
    "1": "link",
    "2": "symlink",
    "3": "device",
    "4": "device",
    "5": "folder",
    "6": "device",
}
"""What an entry's letter means. Pipes are put with devices: neither is of use in a read-only image."""


class LayerStream(Protocol):
    def read(self, count: int, /) -> bytes:
        """So many bytes; fewer only at the end."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `parts` is its path without empty parts and dots; `target` is as it was written."""

    number: int
    kind: str
    parts: tuple[str, ...]
    target: str
    mode: int
    mtime_s: int
    size_bytes: int


class Archive:
    """A layer's entries, one after the other; the content of the one at hand can be read once."""

    def __init__(self, stream: LayerStream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._left = 0
        """Bytes of the entry at hand that are not read yet, its padding included."""
        self._content = 0
        """The same without padding."""
        self._general: dict[str, str] = {}

    def __iter__(self) -> Iterator[Entry]:
        number = 0
        special: dict[str, str] = {}
        while (header := self._header()) is not None:
            letter = chr(header[156])
            size_bytes = self._number(header[124:136])
            if letter in "xgLK":
                special.update(self._special(letter, size_bytes))
                continue
            yield self._entry(header, letter, size_bytes, {**self._general, **special}, number)
            number += 1
            special = {}
            self.skip()
        # What follows the end belongs to the layer, whose digest is that of everything.
        while self._stream.read(SKIP_BYTES):
            pass

    def read(self, most: int) -> bytes:
        """Some of the content of the entry at hand; nothing at its end."""
        wanted = min(most, self._content)
        data = self._exactly(wanted) if wanted else b""
        self._content -= wanted
        self._left -= wanted
        return data

    def skip(self) -> None:
        while self._left:
            count = min(SKIP_BYTES, self._left)
            self._exactly(count)
            self._left -= count
        self._content = 0

    def _header(self) -> bytes | None:
        header = self._stream.read(BLOCK)
        if not header or (len(header) == BLOCK and not any(header)):
            return None
        if len(header) < BLOCK:
            raise self._fault("ends in the midst of an entry")
        blanked = header[:148] + b" " * 8 + header[156:]
        try:
            checksum = int(header[148:156].strip(b" \0"), 8)
        except ValueError:
            checksum = -1
        if sum(blanked) != checksum:
            raise self._fault("is not a tar archive, or is damaged")
        return header

    def _special(self, letter: str, size_bytes: int) -> dict[str, str]:
        """What an entry says of the next one, or of all that follow."""
        if size_bytes > MOST_HEADER_BYTES:
            raise self._fault(f"has a header of {size_bytes} bytes: at most {MOST_HEADER_BYTES} are read")
        data = self._exactly(size_bytes)
        self._exactly(-size_bytes % BLOCK)
        if letter in "LK":
            return {"path" if letter == "L" else "linkpath": _text(data.partition(b"\0")[0])}
        found = self._records(data)
        if letter == "x":
            return found
        self._general.update(found)
        return {}

    def _records(self, data: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        at = 0
        while at < len(data):
            digits, blank, _ = data[at : at + 20].partition(b" ")
            length = int(digits) if blank and digits.isdigit() else 0
            record = data[at + len(digits) + 1 : at + length]
            key, equals, value = record.partition(b"=")
            if length < 5 or at + length > len(data) or not equals or not value.endswith(b"\n"):
                raise self._fault("has a damaged extended header")
            if key.startswith(b"GNU.sparse"):
                raise self._fault("has a sparse file: pack it without (tar without --sparse)")
            if key in (b"path", b"linkpath", b"size", b"mtime"):
                found[key.decode()] = _text(value[:-1])
            at += length
        return found

    def _entry(
        self, header: bytes, letter: str, size_bytes: int, special: dict[str, str], number: int
    ) -> Entry:
        path = special.get("path") or self._path(header)
        kind = KINDS.get(letter)
        if kind is None:
            raise self._fault(
                f"has an entry of the unknown kind {letter!r}, {path[:100]!r}: build the image again"
            )
        if kind == "file" and path.endswith("/"):
            kind = "folder"
        if "size" in special:
            size_bytes = self._decimal(special["size"])
        # As other readers do it: only files have a content, whatever the header says.
        size_bytes = size_bytes if kind == "file" else 0
        if not 0 <= size_bytes <= MOST_FILE_BYTES:
            raise self._fault(f"has an entry of {size_bytes} bytes: {path[:100]!r}")
        self._content = size_bytes
        self._left = size_bytes + -size_bytes % BLOCK
        target = special.get("linkpath") or _text(header[157:257].partition(b"\0")[0])
        if len(target) > MOST_PATH or "\0" in target:
            raise self._fault(f"has a link to a path of {len(target)} characters: {path[:100]!r}")
        mtime_s = self._decimal(special["mtime"]) if "mtime" in special else self._number(header[136:148])
        return Entry(
            number=number,
            kind=kind,
            parts=parts_of(path, self._name),
            target=target,
            mode=self._number(header[100:108]) & 0o7777,
            mtime_s=min(max(0, mtime_s), (1 << 32) - 1),
            size_bytes=size_bytes,
        )

    def _path(self, header: bytes) -> str:
        name = header[:100].partition(b"\0")[0]
        prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
        return _text(prefix + b"/" + name if prefix else name)

    def _number(self, field: bytes) -> int:
        if field[0] & 0x80:
            value = int.from_bytes(field, "big", signed=True)
            return value if field[0] == 0xFF else value + (1 << (8 * len(field) - 1))
        text = field.strip(b" \0")
        try:
            return int(text, 8) if text else 0
        except ValueError as error:
            raise self._fault("has an entry whose number cannot be read") from error

    def _decimal(self, text: str) -> int:
        whole = text.partition(".")[0]
        if len(whole) > 20 or not whole.lstrip("-").isascii() or not whole.lstrip("-").isdigit():
            raise self._fault(f"has an entry with {text[:40]!r} for a number")
        return int(whole)

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise self._fault("ends in the midst of an entry")
        return data

    def _fault(self, words: str) -> ConversionFault:
        return ConversionFault(f"{self._name} {words}")


def parts_of(path: str, layer: str) -> tuple[str, ...]:
    """A path's parts. One that leads out of the image is refused rather than bent."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in path:
        raise ConversionFault(f"{layer} has the path {path[:100]!r}, which leads out of the image")
    if len(path) > MOST_PATH or len(parts) > MOST_DEPTH or any(len(part) > MOST_NAME for part in parts):
        raise ConversionFault(f"{layer} has a path that is too long: {path[:100]!r}…")
    return parts


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
