"""Virtual nodes on this machine: folders with pools, each with a real daemon.

For trying things out, for demonstrations and for tests of the whole: whatever happens on a real
node happens here, but for the network between them. The daemons end with the service, however
that ends, and begin again when they die.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.machines.batch.kept import listed_machines
from outrider.service.images.catalogue import Catalogue
from outrider.service.meter import Log
from outrider.service.nodes.agent import NO_NAMES
from outrider.service.nodes.daemons import SocketNodes
from outrider.service.nodes.listed_machines import times_of
from outrider.service.nodes.moving import ARRIVE, DROP, TAKEN
from outrider.service.nodes.virtual import LOOPBACK, EmbeddedError, Shape, VirtualNode
from outrider.service.ports import MachineTime, Move, NodeReport, OrderResult, TellNode

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MOST_NODES = 256
KEY_BYTES = 32
START_S = 30.0
STOP_S = 10.0
LOOK_S = 0.5
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 60.0
CALM_S = 600.0
"""A daemon that has lived so long is not thought to be one that dies again and again."""


@dataclass(slots=True)
class _Care:
    """How a node's daemon fares: it is started again at once, and then ever more slowly."""

    started_s: float
    pause_s: float = FIRST_PAUSE_S
    due_s: float | None = None
    """When a daemon that has died is started again."""


class EmbeddedNodes(SocketNodes):
    """Virtual nodes as the service's `Nodes`, and their daemons' lives.

    Only one service may use a folder at a time. `tell` may be called by any thread.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        shape: Shape,
        *,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        catalogue: Catalogue = NO_NAMES,
        machines: Path | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`machines`: the folder of jobs' machines, if there are any."""
        self._folder = folder
        self._machines = machines
        self._log = log
        self._environment = dict(environment)
        self._random_bytes = random_bytes
        self._key = folder / "relay.key"
        self._nodes = {
            name: VirtualNode(name, folder / name, key=self._key, shape=shape) for name in _checked(names)
        }
        self._care: dict[str, _Care] = {}
        self._lock: int | None = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_after_all, name="embedded nodes", daemon=True)
        super().__init__(self.sockets, clock=clock, relay_of=self.relay_of, catalogue=catalogue)

    @property
    def sockets(self) -> dict[str, str]:
        """Where each node's daemon listens."""
        return {name: node.socket for name, node in self._nodes.items()}

    @property
    def pids(self) -> dict[str, int | None]:
        return {name: node.pid for name, node in self._nodes.items()}

    def relay_of(self, node: str) -> str | None:
        found = self._nodes.get(node)
        return f"{LOOPBACK}:{found.port}" if found is not None and found.port else None

    def tell(self, call: TellNode) -> NodeReport:
        """Jobs' machines are no daemon's here: they are in one folder for all nodes. So a machine that is to
        go to another node is there already."""
        moves = tuple(order for order in call.orders if isinstance(order, Move))
        others = tuple(order for order in call.orders if not isinstance(order, Move))
        report = super().tell(replace(call, orders=others, wants_machines=False))
        here = tuple(OrderResult(order=each, words=TAKEN if each.step == ARRIVE else DROP) for each in moves)
        return replace(report, results=(*report.results, *here), times=self._times(call))

    def _times(self, call: TellNode) -> tuple[MachineTime, ...] | None:
        """What all machines have had of processors, each node's and others': a job says on which it is."""
        if self._machines is None or not call.wants_machines:
            return None
        at_us = int(self._clock.monotonic_s() * 1_000_000)
        return times_of(listed_machines(at_us, str(self._machines)))

    def start(self, timeout_s: float = START_S) -> None:
        """All daemons, serving; or none, and an EmbeddedError that shows what one of them said."""
        try:
            self._prepare()
            for node in self._nodes.values():
                node.prepare()
                self._begin(node)
            self._await_all(timeout_s)
        except BaseException:
            self.stop()
            raise
        self._thread.start()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End all daemons; what has arrived of images stays."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        for node in self._nodes.values():
            node.stop()
        until_s = self._clock.monotonic_s() + timeout_s
        for node in self._nodes.values():
            node.wait(max(0.1, until_s - self._clock.monotonic_s()))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def look_after(self) -> None:
        """Start again what has died and has paused long enough."""
        now_s = self._clock.monotonic_s()
        for node in self._nodes.values():
            care = self._care[node.name]
            if node.is_alive():
                node.shorten_log()
            elif care.due_s is None:
                if now_s - care.started_s > CALM_S:
                    care.pause_s = FIRST_PAUSE_S
                care.due_s = now_s + care.pause_s
                self._log.warning("node's daemon ended", node=node.name, again_in_s=care.pause_s)
                care.pause_s = min(2 * care.pause_s, LONGEST_PAUSE_S)
            elif care.due_s <= now_s:
                self._begin(node)

    def _prepare(self) -> None:
        """The folder, this service's alone, and the key by which nodes trust each other."""
        try:
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._key.exists():
                replace_file(RealDisk(), str(self._key), self._random_bytes(KEY_BYTES).hex().encode())
        except BlockingIOError as error:
            raise EmbeddedError(
                f"another service runs virtual nodes in {self._folder}: stop it, or choose another folder"
            ) from error
        except OSError as error:
            raise EmbeddedError(f"virtual nodes cannot live in {self._folder}: {error}") from error

    def _begin(self, node: VirtualNode) -> None:
        node.wait(0.0)
        care = self._care.setdefault(node.name, _Care(started_s=0.0))
        care.started_s, care.due_s = self._clock.monotonic_s(), None
        try:
            node.start(self._environment)
        except OSError as error:
            raise EmbeddedError(f"the daemon of node {node.name} cannot be started: {error}") from error
        self._log.info("node's daemon started", node=node.name, pid=node.pid, relay_port=node.port)

    def _await_all(self, timeout_s: float) -> None:
        """Until every daemon answers. An orphan of a service that was killed may first have to end."""
        until_s = self._clock.monotonic_s() + timeout_s
        silent = list(self._nodes.values())
        while silent := [node for node in silent if not node.answers()]:
            if self._clock.monotonic_s() > until_s:
                raise EmbeddedError(
                    f"the daemon of node {silent[0].name} does not answer after {timeout_s:g} s; "
                    f"its log ends with: {silent[0].last_words()}"
                )
            self.look_after()
            self._is_stopping.wait(0.05)

    def _look_after_all(self) -> None:
        while not self._is_stopping.wait(LOOK_S):
            try:
                self.look_after()
            except EmbeddedError as error:
                self._log.error("node's daemon not started", reason=str(error))


def _checked(names: Sequence[str]) -> list[str]:
    """Names that can be those of folders, each once."""
    found = list(dict.fromkeys(names))
    if not 1 <= len(found) <= MOST_NODES:
        raise EmbeddedError(f"{len(found)} virtual nodes: run between 1 and {MOST_NODES}")
    for name in found:
        if not NAME.fullmatch(name) or name in ("lock", "relay.key"):
            raise EmbeddedError(f"{name!r} cannot be the name of a virtual node: use letters, digits, . _ -")
    return found
