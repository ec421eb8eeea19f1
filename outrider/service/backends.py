"""What the service is really made of: the desk, the batch systems it knows, and the outer world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cachemgr.clock import SystemClock
from outrider.rms.base import BatchSystem
from outrider.service.config import Config
from outrider.service.errors import BackendError
from outrider.service.log import TracingLog
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.virtual import EmbeddedError, Shape
from outrider.service.ports import World


class VirtualBackend:
    """Nodes with real pools on this machine, and a batch system in this process."""

    def __init__(self, nodes: EmbeddedNodes, world: World) -> None:
        self._nodes = nodes
        self._world = world

    @property
    def world(self) -> World:
        return self._world

    def start(self) -> None:
        try:
            self._nodes.start()
        except EmbeddedError as error:
            raise BackendError(str(error)) from error

    def stop(self) -> None:
        self._nodes.stop()
