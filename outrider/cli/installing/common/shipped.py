"""What an installation takes from Outrider itself: hooks, filters, and the node side as one file."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import outrider
from outrider.cli.errors import MissingPartError


def shipped(name: str) -> bytes:
    """A file of Outrider's, from a checkout or from where pip puts a package's data."""
    for folder in folders():
        path = folder / name
        if path.is_file():
            return path.read_bytes()
    looked = " or ".join(str(each) for each in folders())
    raise MissingPartError(f"{name} is neither in {looked}: install it again with pip")


def folders() -> tuple[Path, ...]:
    checkout = Path(outrider.__file__).resolve().parents[1]
    return (checkout, Path(sysconfig.get_path("data")) / "share" / "outrider")


def package_file(package: str, name: str) -> bytes:
    """A file that is inside of one of the packages, such as a unit of systemd."""
    from importlib.resources import files

    return (files(package) / name).read_bytes()
