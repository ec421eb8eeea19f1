"""Slurm's own commands: their environment, and what their complaints mean."""

from __future__ import annotations

import re

from outrider.rms.commands import PATH, TIMEOUT_S, CommandLine, Dialect, Runner

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
