"""Where the daemons of nodes listen."""

from __future__ import annotations

from dataclasses import dataclass

CONTROL_PORT = 7011
RELAY_PORT = 7010


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Where the nodes' daemons listen."""

    control: int = CONTROL_PORT
    relay: int = RELAY_PORT
