"""Sizes and shares as people write them: 600MB, 2GiB, 8GiB of memory, 60%."""

from __future__ import annotations

import re
from fractions import Fraction

from outrider.metadata.errors import TextError, shown

BYTES_PER_MIB = 2**20
MOST_CHARACTERS = 100
MOST_BYTES = 2**60 - 1
"""Below what a resource of the core may be, and an exbibyte, which is more than any image has."""

_DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_FACTORS = {
    "": 1,
    "B": 1,
    **_DECIMAL,
    **{f"{letter}B": factor for letter, factor in _DECIMAL.items()},
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,3})")
_SHARE = re.compile(r"([0-9]{1,3})%?")


def size_bytes(text: str | int) -> int:
    """A number of bytes, or one with a unit: SI units are powers of ten, those with an i of two."""
    amount, _ = _amount(str(text), "a size: write bytes, or one like 600MB or 2GiB")
    return amount


def memory_mib(text: str | int) -> int:
    """Memory in MiB, rounded up. The unit has to be written out.

    A bare 8G is 8 GiB to Slurm and 8 GB to most others, and a bare number is MiB to Slurm:
    whichever was taken, somebody would get another amount than meant.
    """
    forms = "an amount of memory: write one like 512MiB, 8GiB or 8GB"
    amount, unit = _amount(str(text), forms)
    if unit in ("", *_DECIMAL):
        raise TextError(f"{shown(str(text))} has no full unit: write KiB, MiB, GiB or KB, MB, GB after it")
    return -(-amount // BYTES_PER_MIB)


def share_percent(text: str | int) -> int:
    """A whole number from 0 to 100, with or without its sign."""
    found = _SHARE.fullmatch(str(text))
    if found is None or int(found[1]) > 100:
        raise TextError(f"{shown(str(text))} is not a share: write one from 0% to 100%")
    return int(found[1])


def _amount(text: str, forms: str) -> tuple[int, str]:
    found = _SIZE.fullmatch(text.strip()) if len(text) <= MOST_CHARACTERS else None
    factor = _FACTORS.get(found[2].upper()) if found else None
    if found is None or factor is None:
        raise TextError(f"{shown(text)} is not {forms}")
    amount = int(Fraction(found[1]) * factor)
    if not 0 < amount <= MOST_BYTES:
        raise TextError(f"{shown(text)} is not between 1 byte and 1 EiB")
    return amount, found[2].upper()
