"""Slurm's own commands: their environment and version, and what their complaints mean."""

from __future__ import annotations

import re

from outrider.rms.commands import PATH, TIMEOUT_S, CommandLine, Dialect, Runner
from outrider.rms.slurm.fields import BadField

Version = tuple[int, int, int]
OLDEST: Version = (22, 5, 0)
_VERSION = re.compile(r"(\d{2})\.(\d{2})\.(\d+)")
DATA_PARSER = "v0.0.42"
"""The one that 24.11 and 26.05 have in common."""
HAS_PARSERS: Version = (24, 11, 0)
AWAY = (
    "Unable to contact slurm controller",
    "Unable to connect to slurm",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Transport endpoint is not connected",
    "in standby mode",
    "Protocol authentication error",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Communication connection failure",
    "Message receive failure",
    "Message send failure",
    "Slurm controller is not",
    "Munge",
)
MISSING = (
    "Invalid job id specified",
    "Invalid node name specified",
    "Requested reservation is invalid",
    "Invalid reservation name",
    "Reservation not found",
)
DIALECT = Dialect(
    product="Slurm",
    away=re.compile("|".join(map(re.escape, AWAY))),
    missing=re.compile("|".join(map(re.escape, MISSING))),
    remedy="ask again",
)


class SlurmCommands(CommandLine):
    """Runs Slurm's commands. `configuration` is the path of slurm.conf, or empty for Slurm's own."""

    def __init__(
        self,
        run: Runner,
        *,
        configuration: str = "",
        path: str = PATH,
        timeout_s: float = TIMEOUT_S,
        own_uid: int = 0,
    ) -> None:
        super().__init__(
            run,
            DIALECT,
            shared={"PATH": path, **({"SLURM_CONF": configuration} if configuration else {})},
            own={"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            timeout_s=timeout_s,
            own_uid=own_uid,
        )


def version_in(data: bytes) -> Version:
    """What `squeue --version` says. Raises BadField."""
    words = data.decode("utf-8", "replace").strip()
    found = _VERSION.search(words)
    if found is None:
        raise BadField(f"{words[:60]!r} names no version of Slurm")
    version = int(found[1]), int(found[2]), int(found[3])
    if version < OLDEST:
        raise BadField(f"this is Slurm {found[0]}: at least 22.05 is needed")
    return version


def json_option(version: Version) -> str:
    return f"--json={DATA_PARSER}" if version >= HAS_PARSERS else "--json"
