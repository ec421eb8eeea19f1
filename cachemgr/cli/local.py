"""The daemon's verbs in this process: for root and the pool's user, when no daemon runs.

It is the same code with the same effects; only what a daemon does meanwhile (transfers that
go on, expiries on time) does not happen. Several such processes and a daemon may use one
pool at once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from cachemgr.base.disk import RealDisk
from cachemgr.base.message import plain
from cachemgr.base.sizes import in_words
from cachemgr.cli.identity import acting_as, user_name
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import put_together
from cachemgr.daemon.network.peer import NodeCaller
from cachemgr.daemon.parts import make_maker
from cachemgr.daemon.verbs.requests import Listener, VerbRequest
from cachemgr.daemon.verbs.table import VerbTable
from cachemgr.pool.layout import PoolLayout, disk_errors, read_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.base.message import ProtocolMessage
    from cachemgr.cli.answers import Result
    from cachemgr.config import NodeConfig
    from cachemgr.daemon.node import NodeContext
    from cachemgr.pool.instance_book import InstanceWish, MadeInstance, Maker
    from cachemgr.pool.records import PoolImage
    from cachemgr.protocol import CopyProgress, TransferProgress

STOP_S = 10.0


class LocalAsker:
    """The verbs on a pool of this process' own, as the pool's user."""

    opens_files = False

    def __init__(self, config: NodeConfig, clock: Clock, *, is_verbose: bool) -> None:
        with disk_errors(f"reading the pool {config.pool}"):
            read_settings(RealDisk(), PoolLayout(config.pool))
            self._uid = os.stat(f"{config.pool}/pool.json").st_uid
        log = DaemonLog(sys.stderr, level="info" if is_verbose else "error")
        maker = _LaterMaker(lambda: make_maker(config, self._node.pool, log))
        with acting_as(self._uid):
            self._node: NodeContext = put_together(config, os.environ, log, clock=clock, maker=maker).node

    @property
    def where(self) -> str:
        return f"this process, as {user_name(self._uid)}, on the pool {self._node.pool.layout.root}"

    def ask(
        self,
        verb: str,
        request: ProtocolMessage,
        on_progress: Callable[[Result], None] | None = None,
        file: int | None = None,
    ) -> Result:
        caller = NodeCaller(uid=os.getuid(), real_uid=os.getuid(), pid=os.getpid(), is_privileged=True)
        with acting_as(self._uid):
            if verb == "stats":
                self._open_index()
            request_here = VerbRequest(verb, plain(request), listener=_Listener(on_progress))
            return VerbTable(self._node)(caller, request_here)

    def interrupted(self, last: Result) -> str:
        """Lets the transfer note how far it has come, and says what that is worth."""
        with acting_as(self._uid):
            self._node.transfers.stop(STOP_S)
            kept = [each for each in self._node.pool.ingests() if each.image.uri == self._uri(last)]
            arrived_bytes = max((each.arrived_bytes() for each in kept), default=0)
        if not arrived_bytes:
            return "interrupted; nothing had arrived"
        if not kept[0].image.digest:
            return (
                "interrupted; the same command starts over: without --digest nobody can tell whether the "
                "source has changed meanwhile"
            )
        return (
            f"interrupted; {in_words(arrived_bytes)} of {in_words(kept[0].size_bytes)} are kept for a day, "
            "and the same command continues there"
        )

    def close(self) -> None:
        self._node.pool.close()

    def _uri(self, last: Result) -> str:
        transfer = last.get("transfer")
        return self._node.transfers.get(str(transfer)).uri if transfer else ""

    def _open_index(self) -> None:
        with self._node.pool.changing("looking at the pool"):
            self._node.is_index_ready = True


@dataclass(frozen=True)
class _Listener(Listener):
    """Where a verb tells how far it is, in place of a connection."""

    on_progress: Callable[[Result], None] | None

    def progress(self, message: TransferProgress | CopyProgress) -> None:
        if self.on_progress is not None:
            self.on_progress(plain(message))


class _LaterMaker:
    """What makes instances, put together when first asked for: trying what a disk can do takes time."""

    def __init__(self, make: Callable[[], Maker]) -> None:
        self._make = make
        self._made: Maker | None = None

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        return self._real().choose(image, wanted, is_writable=is_writable)

    def hand_over(self, folder: str, other: str) -> None:
        self._real().hand_over(folder, other)

    def taken_bytes(self, method: str, image: PoolImage) -> int:
        return self._real().taken_bytes(method, image)

    def make(self, wish: InstanceWish, image_path: str, folder: str) -> MadeInstance:
        return self._real().make(wish, image_path, folder)

    def remove(self, folder: str) -> None:
        self._real().remove(folder)

    def _real(self) -> Maker:
        if self._made is None:
            self._made = self._make()
        return self._made
