"""The zone that a user's times are in: the environment's TZ, else the machine's, else UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outrider.metadata.errors import TextError, shown

MOST_CHARACTERS = 255
LOCALTIME = Path("/etc/localtime")


def user_zone(environment: Mapping[str, str], *, localtime: Path = LOCALTIME) -> tzinfo:
    """The zone of whoever has this environment."""
    name = environment.get("TZ", "").removeprefix(":")
    if not name:
        return _of_machine(localtime)
    try:
        if len(name) > MOST_CHARACTERS:
            raise ValueError("no zone has so long a name")
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise TextError(
            f"TZ={shown(name)} is not a zone that this machine knows: set it to one like Europe/Berlin or UTC"
        ) from error


def _of_machine(localtime: Path) -> tzinfo:
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (OSError, ValueError):
        # Without the file, as in many containers, a machine's clock shows UTC.
        return UTC
