"""Where the daemons of nodes listen."""

from __future__ import annotations

from dataclasses import dataclass

from cachemgr.protocol import CONTROL_PORT, RELAY_PORT


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Where the nodes' daemons listen."""

    control: int = CONTROL_PORT
    relay: int = RELAY_PORT
