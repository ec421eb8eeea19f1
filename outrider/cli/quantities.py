"""Sizes, rates and sets of nodes as people write them on a command line."""

from __future__ import annotations

import argparse
import re

_UNITS = {
    "": 1, "B": 1,
    "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9, "T": 10**12, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_NODES = re.compile(r"([A-Za-z][A-Za-z0-9_-]*?)\[([0-9,-]+)\]")
MOST_NODES = 100_000


def size_bytes(text: str) -> int:
    """600MB, 2GiB, 1.5 G: SI units are powers of ten, those with an i are powers of two."""
    found = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(found[2].upper()) if found else None
    if found is None or factor is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write one like 600MB or 2GiB")
    if found[1].isdigit():
        return int(found[1]) * factor
    # It brings decimals and more, for which most command lines need not wait.
    from fractions import Fraction

    return int(Fraction(found[1]) * factor)


def link_bytes_per_s(text: str) -> int:
    """Megabits a second, as a link is sold, as bytes a second."""
    from fractions import Fraction

    try:
        rate = Fraction(text) * 10**6 / 8
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write megabits a second, for instance 100")
    return int(rate)


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def not_negative(text: str) -> int:
    """A whole number of 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def percent(text: str) -> int:
    """A whole number from 1 to 99, with or without its sign."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit() and 0 < int(number) < 100):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 1 to 99")
    return int(number)


def node_names(text: str) -> tuple[str, ...]:
    """The nodes of 8 (n1 to n8), n[1-64] or n[001-016,100]."""
    if text.isascii() and text.isdigit():
        text = f"n[1-{text}]"
    found = _NODES.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no nodes: write a number, or a set like n[1-64]")
    names: list[str] = []
    for part in found[2].split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not (low.isdigit() and high.isdigit() and int(low) <= int(high)):
            raise argparse.ArgumentTypeError(f"{part!r} in {text!r} is not a range: write one like 1-64")
        if len(names) + int(high) - int(low) >= MOST_NODES:
            raise argparse.ArgumentTypeError(f"{text!r} names more than {MOST_NODES} nodes")
        names += [f"{found[1]}{number:0{len(low)}}" for number in range(int(low), int(high) + 1)]
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} names a node twice")
    return tuple(names)


def in_gigabytes(amount_bytes: float) -> str:
    """A size for a report: 600 MB, 2.1 GB."""
    if amount_bytes >= 10**9:
        return f"{amount_bytes / 10**9:,.1f} GB"
    return f"{amount_bytes / 10**6:,.0f} MB"


def in_hours(seconds: float) -> str:
    """An amount of time for a report: 48 s, 12:20 min, 11:52:00 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s" if seconds != whole else f"{whole} s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{second:02} min"
    hour, minute = divmod(minutes, 60)
    return f"{hour:,}:{minute:02}:{second:02} h"


DELAYS = ("start", "end", "margin", "back")
"""What a simulated batch system takes time for."""


def node_fault(text: str) -> tuple[str, int, int]:
    """NODE:FROM:UNTIL, in seconds of the simulation: the node is away in between."""
    node, *times = text.split(":")
    if not node or len(times) != 2 or not all(each.isascii() and each.isdigit() for each in times):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a fault of a node: write NODE:FROM:UNTIL in seconds"
        )
    return node, int(times[0]), int(times[1])


def link_fault(text: str) -> tuple[int, int, int]:
    """FROM:UNTIL:PERCENT: transfers that begin in between take so much more time than planned."""
    numbers = text.split(":")
    if len(numbers) != 3 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a slow link: write FROM:UNTIL:PERCENT")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def delay(text: str) -> tuple[str, int]:
    """NAME=SECONDS: what a simulated batch system takes for itself."""
    name, _, seconds = text.partition("=")
    if name not in DELAYS or not (seconds.isascii() and seconds.isdigit()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a delay: write one of {', '.join(DELAYS)}, then = and seconds"
        )
    return name, int(seconds)


def disk_speed(text: str) -> tuple[tuple[str, ...], int]:
    """NODES=PERCENT: how fast some nodes' disks are."""
    names, _, share = text.rpartition("=")
    if not names or not (share.isascii() and share.isdigit() and int(share)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a speed of disks: write nodes, = and per cent, n[1-4]=50"
        )
    return node_names(names) if "[" in names else (names,), int(share)
