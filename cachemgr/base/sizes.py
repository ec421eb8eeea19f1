"""Sizes and rates as people write them: `600MB` is SI, `2GiB` is IEC, a bare number is bytes."""

from __future__ import annotations

import re

from cachemgr.base.errors import BadRequest

UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}{tail}": 1000**power for power, letter in enumerate("kmgtp", 1) for tail in ("", "b")},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}
SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))?\s*([a-zA-Z]*)")
MOST_BYTES = 1 << 60
MOST_CHARACTERS = 100


def read_size(text: str) -> int:
    """Bytes from `600MB`, `2GiB`, `1.5T` or `4096`."""
    found = SIZE.fullmatch(text.strip()) if len(text) <= MOST_CHARACTERS else None
    unit = UNITS.get(found[3].lower()) if found else None
    if found is None or unit is None:
        raise BadRequest(f"{text[:MOST_CHARACTERS]!r} is not a size: write 4096, 600MB (SI) or 2GiB (IEC)")
    fraction = found[2] or ""
    size_bytes = int(found[1] + fraction) * unit // int("1" + "0" * len(fraction))
    if size_bytes > MOST_BYTES:
        raise BadRequest(f"{text!r} is more than any disk holds")
    return size_bytes


def read_rate(text: str) -> int:
    """Bytes a second from `100Mbit`, `1Gbit/s`, or a size a second such as `12.5MB/s`."""
    # One character more than a size has, which is refused with the others.
    whole = text.strip()[: MOST_CHARACTERS + 1]
    amount, slash, unit = whole.rpartition("/")
    bare = amount.rstrip() if slash and unit.strip().lower() in ("s", "sec") else whole
    bits = re.fullmatch(r"(?i)(.*?)([kmgt]?)bit", bare)
    rate = read_size(bits[1] + bits[2]) // 8 if bits else read_size(bare)
    if rate <= 0:
        raise BadRequest(f"{text[:MOST_CHARACTERS]!r} is not a rate: write 100Mbit or 12.5MB/s, above 0")
    return rate


def in_words(size_bytes: int) -> str:
    """A size in IEC units for people, with as many digits as help."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    unit = "KiB"
    value = size_bytes / 1024
    for larger in ("MiB", "GiB", "TiB"):
        if abs(value) < 1023.95:
            break
        unit, value = larger, value / 1024
    return f"{value:.1f} {unit}"
