"""The nodes' pools over the network: nodes of a batch system, each with its daemon.

Calls come from the service's few worker threads. A connection is kept for the next call to the
same node, up to a bounded number; no thread and no timer belongs to a node, so there may be
thousands.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cachemgr.base.clock import Clock
from cachemgr.base.errors import CacheError, NoDaemon
from cachemgr.network.channel import NODE
from cachemgr.network.remote import RemoteClient
from cachemgr.protocol import CONTROL_PORT, RELAY_PORT, PingAnswer
from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.agent import NO_NAMES, tell_daemon
from outrider.service.nodes.asking import read_from_node
from outrider.service.ports import NodeReport, NodeTrouble, TellNode

CONNECT_S = 5.0
PING_S = 10.0
MOST_KEPT = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Where nodes are: at their names in the batch system, or what `hosts` says in place of one."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    control_port: int = CONTROL_PORT
    relay_port: int | None = RELAY_PORT

    def control_of(self, node: str) -> tuple[str, int]:
        return self._host(node), self.control_port

    def relay_of(self, node: str) -> str | None:
        """host:port of a node's relay; None if nodes pass nothing on."""
        host = self._host(node)
        return (
            None if self.relay_port is None else f"{f'[{host}]' if ':' in host else host}:{self.relay_port}"
        )

    def _host(self, node: str) -> str:
        return self.hosts.get(node, node)


class Placing(Protocol):
    """Where the daemon and the relay of a node listen."""

    def control_of(self, node: str) -> tuple[str, int]: ...

    def relay_of(self, node: str) -> str | None: ...


class Connect(Protocol):
    """How a connection is made: `RemoteClient`, or a test's."""

    def __call__(
        self, host: str, port: int, keys: Sequence[bytes], *, node: str, connect_s: float
    ) -> RemoteClient: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Connection:
    client: RemoteClient
    uid: int
    """As whom the node knows the service."""
    is_kept: bool = False


class RemoteNodes:
    """The service's `Nodes`, on other machines. `tell` may be called by any thread."""

    def __init__(
        self,
        addresses: Placing,
        keys: Sequence[bytes],
        *,
        clock: Clock,
        catalogue: Catalogue = NO_NAMES,
        most_kept: int = MOST_KEPT,
        connect: Connect = RemoteClient,
    ) -> None:
        self._addresses = addresses
        self._keys = tuple(keys)
        self._clock = clock
        self._catalogue = catalogue
        self._most_kept = most_kept
        self._connect = connect
        self._guard = threading.Lock()
        self._kept: dict[str, _Connection] = {}
        self._is_closed = False

    @property
    def kept(self) -> int:
        return len(self._kept)

    def tell(self, call: TellNode) -> NodeReport:
        connection = self._taken(call.node) or self._made(call.node)
        try:
            return self._told(call, connection)
        except NodeTrouble as trouble:
            if not (connection.is_kept and trouble.is_away):
                raise
        # The daemon has begun anew since the last call, or the machine has.
        return self._told(call, self._made(call.node))

    def close(self) -> None:
        """Hang up. Calls under way end with their own connection."""
        with self._guard:
            self._is_closed = True
            kept, self._kept = list(self._kept.values()), {}
        for connection in kept:
            connection.client.close()

    def _told(self, call: TellNode, connection: _Connection) -> NodeReport:
        try:
            report = tell_daemon(
                connection.client,
                call,
                clock=self._clock,
                relay_of=self._addresses.relay_of,
                catalogue=self._catalogue,
                our_uid=connection.uid,
            )
        except BaseException:
            # Half an answer may still be on its way.
            connection.client.close()
            raise
        self._keep(call.node, connection)
        return report

    def _taken(self, node: str) -> _Connection | None:
        """A connection that was kept, and on which the node has not hung up meanwhile."""
        with self._guard:
            found = self._kept.pop(node, None)
        if found is None or found.client.is_lively:
            return found
        found.client.close()
        return None

    def _made(self, node: str) -> _Connection:
        if NODE.fullmatch(node) is None:
            raise NodeTrouble(
                f"{node!r} is not the name of a node: letters, digits, . _ - are", is_away=False
            )
        host, port = self._addresses.control_of(node)
        try:
            client = self._connect(host, port, self._keys, node=node, connect_s=CONNECT_S)
        except NoDaemon as error:
            raise NodeTrouble(f"node {node} cannot be reached: {error}") from error
        try:
            me = read_from_node(PingAnswer, "ping", client.ask("ping", timeout_s=PING_S))
            return _Connection(client=client, uid=me.caller_uid)
        except CacheError as error:
            client.close()
            raise NodeTrouble(f"node {node} does not answer: {error}") from error
        except BaseException:
            client.close()
            raise

    def _keep(self, node: str, connection: _Connection) -> None:
        """For the next call. Of too many, the one that was not used for longest is given up."""
        surplus = [connection]
        with self._guard:
            if not self._is_closed:
                kept = _Connection(client=connection.client, uid=connection.uid, is_kept=True)
                surplus = [each for each in [self._kept.pop(node, None)] if each is not None]
                self._kept[node] = kept
                while len(self._kept) > self._most_kept:
                    surplus.append(self._kept.pop(next(iter(self._kept))))
        for each in surplus:
            each.client.close()
