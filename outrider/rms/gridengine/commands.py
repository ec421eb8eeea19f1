"""Grid Engine's own commands: their environment, and what their complaints mean."""

from __future__ import annotations

import re
from collections.abc import Mapping

from outrider.rms.commands import MOST_BYTES, TIMEOUT_S, CommandLine, Dialect, Runner
from outrider.rms.gridengine.mending import Told, nobody

MOST_KNOWN = 1000

DIALECT = Dialect(
    product="Grid Engine",
    away=re.compile(
        r"unable to (contact|send message to) qmaster|can't connect|commlib error|got send error"
        r"|failed receiving gdi|communication error|timeout|no valid user|cell directory",
        re.IGNORECASE,
    ),
    missing=re.compile(
        r"does not exist|is invalid$|unknown (host|queue)|no such|not known|can't resolve hostname"
        r"|invalid (job|host|queue)",
        re.IGNORECASE | re.MULTILINE,
    ),
    remedy="see whether sge_qmaster runs",
    complains_in_output=True,
)


class GridEngineCommands(CommandLine):
    """Runs Grid Engine's commands. `variables` says which one: PATH, SGE_ROOT, SGE_CELL, ports if need be."""

    def __init__(
        self,
        run: Runner,
        *,
        variables: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        most_bytes: int = MOST_BYTES,
        own_uid: int = 0,
        told: Told = nobody,
    ) -> None:
        """`told` hears of each text that Grid Engine printed and nobody can read, once."""
        self._told = told
        self._known: dict[str, None] = {}
        super().__init__(
            run,
            DIALECT,
            shared=variables,
            # Times are printed without a zone: all of ours print UTC.
            own={"LC_ALL": "C.UTF-8", "TZ": "UTC"},
            timeout_s=timeout_s,
            most_bytes=most_bytes,
            own_uid=own_uid,
        )

    def told(self, lost: str) -> None:
        """Each look shows the same again: it is said once, and again when it has been forgotten."""
        if lost in self._known:
            return
        self._known[lost] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._told(lost)

    def read(self, *argv: str) -> str:
        """What a command prints, as a text. Raises RmsError."""
        return self.ask(*argv).decode(errors="replace")
