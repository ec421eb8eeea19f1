"""The fixtures with which the daemon's own tests start it: here the service tells it what to do."""

from __future__ import annotations

from tests.daemons.node.conftest import carrier, folder, inside

__all__ = ["carrier", "folder", "inside"]
