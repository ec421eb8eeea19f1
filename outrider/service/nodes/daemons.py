"""The nodes' pools through their daemons' sockets, which this machine can reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cachemgr.base.clock import Clock
from cachemgr.base.errors import NoDaemon
from cachemgr.network.client import DaemonClient
from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.agent import NO_NAMES, RelayOf, no_relay, tell_daemon
from outrider.service.ports import NodeReport, NodeTrouble, TellNode


class SocketNodes:
    """Nodes whose daemons listen at these paths. Each call has a connection of its own."""

    def __init__(
        self,
        sockets: Mapping[str, str],
        *,
        clock: Clock,
        relay_of: RelayOf = no_relay,
        catalogue: Catalogue = NO_NAMES,
        connect: Callable[[str], DaemonClient] = DaemonClient,
    ) -> None:
        self._sockets = dict(sockets)
        self._clock = clock
        self._relay_of = relay_of
        self._catalogue = catalogue
        self._connect = connect

    def tell(self, call: TellNode) -> NodeReport:
        path = self._sockets.get(call.node)
        if path is None:
            raise NodeTrouble(
                f"node {call.node} has no pool that this service knows: add it to the configuration",
                is_away=False,
            )
        try:
            client = self._connect(path)
        except NoDaemon as error:
            raise NodeTrouble(f"node {call.node} does not answer: {error}") from error
        with client:
            return tell_daemon(
                client, call, clock=self._clock, relay_of=self._relay_of, catalogue=self._catalogue
            )
