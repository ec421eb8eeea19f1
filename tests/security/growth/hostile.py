"""Hostile texts of every length: a beginning, a piece as often as fits, and an end that matches nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of text. The end is there for what gives up at the last byte and begins again."""

    head: bytes
    piece: bytes
    tail: bytes = b""

    def text(self, size: int) -> bytes:
        return (
            self.head + self.piece * ((size - len(self.head) - len(self.tail)) // len(self.piece)) + self.tail
        )


_GARBAGE = bytes(random.Random(20261123).choices(range(128, 256), k=61))

KINDS = {
    "blanks": Kind(b"x", b" ", b"y"),
    "blanks alone": Kind(b"", b" "),
    "tabs": Kind(b"x", b"\t", b"y"),
    "newlines": Kind(b"", b"\n", b"\x01"),
    "CRLF": Kind(b"x", b"\r\n", b"y"),
    "hashes": Kind(b"", b"#"),
    "remarks": Kind(b"x", b" #", b"\n"),
    "short comments": Kind(b"", b"#\n"),
    "metadata lines": Kind(b"", b"#OUTRIDER image: x\n"),
    "metadata lines of somebody else": Kind(b"", b"#OUTRIDERS\n"),
    "words that nearly match": Kind(b"", b"\n#OUTRIDE", b"x"),
    "comments that nearly match": Kind(b"", b"outrider", b"x"),
    "quotes": Kind(b'"', b"x '", b"'"),
    "backslashes": Kind(b'"', b'\\"', b"x"),
    "colons": Kind(b"", b":", b"\x01"),
    "keys": Kind(b"", b"a:", b"\x01"),
    "semicolons": Kind(b"", b";", b"\x01"),
    "pairs": Kind(b"", b"a=b;", b"\x01"),
    "percents": Kind(b"", b"%2e%", b"\x01"),
    "slashes": Kind(b"a", b"../", b"\x01"),
    "digits": Kind(b"1", b"0", b"x"),
    "digits and dots": Kind(b"", b"1.", b"x"),
    "letters": Kind(b"", b"a", b"/b"),
    "commas": Kind(b"{", b"a,", b"\x01"),
    "brackets": Kind(b"n", b"[", b"x"),
    "numbers in names": Kind(b"", b"a1", b"\x01"),
    "NULs and escapes": Kind(b"", b"\0\x1b[2J", b"x"),
    "UTF-8": Kind(b"", "ä€".encode(), b"x"),
    "broken UTF-8": Kind(b"", _GARBAGE, b"x"),
    "lines of words": Kind(b"", b"# the quick brown fox jumps over it\n"),
}
