"""Eight hosts, an image server and a head with a Grid Engine in the trace's time; a pool on each host."""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.physical.scale import TraceClock
from cachemgr.network.client import DaemonClient
from testbed import hurry
from testbed.batchcluster import HEAD, IMAGES, IMAGES_FOLDER, IMAGES_PORT
from testbed.cluster import REPOSITORY
from testbed.gridengine import PROGRAMS, GridEngineCluster
from testbed.gridengineconf import DURATION_OFFSET_S
from testbed.records import TestbedError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from cachemgr.base.clock import Clock

HOSTS, SLOTS = 8, 2
RATE_BITS_PER_S = 100_000_000
HURRY = "/usr/lib/testbed/hurry.so"
DAEMONS = (f"{PROGRAMS}/sge_qmaster", f"{PROGRAMS}/sge_execd")
POOL, SOCKET, KEY = "/var/lib/outrider/pool", "/run/outrider/cachemgr.sock", "/etc/outrider/site.key"
RELAY_PORT = 7010
SCRATCH = "/var/lib/outrider/scratch"
START_S, EMPTY_S = 30, 15
# Grid Engine's defaults are 15 s and 40 s; the schedule is looked at more often, as the simulator does.
CONFIGURATION = {
    "load_report_time": "00:00:30",
    "max_unheard": "00:10:00",
    "reschedule_unknown": "00:00:00",
    # Otherwise every execution daemon looks at all processes once a second, of its own time.
    "execd_params": "ENABLE_ADDGRP_KILL=true PDC_INTERVAL=300",
}
SCHEDULER = {"schedule_interval": "0:0:3", "params": f"DURATION_OFFSET={DURATION_OFFSET_S}"}
POOL_CONFIGURATION = f"""[cachemgr]
pool = {POOL}
relay_listen = 0.0.0.0:{RELAY_PORT}
relay_key = {KEY}
node = %s
transfers = 64
sweep_interval = 600s
log_level = warning
"""


class HurriedCluster(GridEngineCluster):
    """A Grid Engine whose daemons live in the trace's time."""

    def __init__(self, scale: TraceClock, *, nodes: int, rate_bits_per_s: int, clock: Clock) -> None:
        self._scale = scale
        super().__init__(
            nodes=nodes,
            rate_bits_per_s=rate_bits_per_s,
            configuration=CONFIGURATION,
            scheduler=SCHEDULER,
            queues={"slots": str(SLOTS)},
            files={HURRY: hurry.compiled()},
            clock=clock,
        )

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        given: str = "",
        timeout_s: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        return super().run(
            host,
            self._hurried(argv),
            user=user,
            environment=environment,
            given=given,
            timeout_s=timeout_s,
            check=check,
        )

    def run_everywhere(self, hosts: Sequence[str], argv: Sequence[str], timeout_s: float = 60) -> None:
        super().run_everywhere(hosts, self._hurried(argv), timeout_s)

    def _hurried(self, argv: Sequence[str]) -> list[str]:
        words = list(argv)
        if words[0] == "env" and words[-1] in DAEMONS:
            words[1:1] = hurry.variables(HURRY, self._scale.factor, self._scale.origin_s)
        return words


@dataclass(frozen=True, kw_only=True)
class PhysicalImage:
    """A file on the image server."""

    name: str
    uri: str
    digest: str
    size_bytes: int


class PhysicalSite:
    """Use in a with statement: all hosts are there and serve, and in the end all are gone."""

    def __init__(
        self,
        *,
        factor: int,
        clock: Clock,
        pools: Sequence[int],
        policy: str = "lfu",
        rate_bits_per_s: int = RATE_BITS_PER_S,
    ) -> None:
        """`pools` has the bytes of each host's."""
        self.clock = clock
        self.scale = TraceClock.begun(factor, clock)
        self._pools, self._policy = pools, policy
        self.cluster = HurriedCluster(
            self.scale, nodes=len(pools), rate_bits_per_s=rate_bits_per_s, clock=clock
        )

    def __enter__(self) -> PhysicalSite:
        self.cluster.up()
        try:
            self._install()
        except BaseException:
            self.cluster.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.down()

    @property
    def nodes(self) -> list[str]:
        return self.cluster.nodes

    def path(self, host: str, path: str) -> Path:
        """A host's file, as this machine reaches it without starting anything there."""
        return Path("/proc", str(self.cluster.record.hosts[host].pid), "root", path.lstrip("/"))

    def client(self, node: str) -> DaemonClient:
        """A connection to the node's own daemon."""
        return DaemonClient(str(self.path(node, SOCKET)))

    def relay_of(self, node: str, digest: str) -> str:
        return f"relay://{self.cluster.address(node)}:{RELAY_PORT}/{digest}"

    def image(self, name: str, size_bytes: int, mark: str = "") -> PhysicalImage:
        """An image of its own content on the image server, where it takes no memory."""
        head = f"{mark or name}\n".encode().ljust(4096, b"\0")
        hashed = hashlib.sha256(head)
        hashed.update(bytes(size_bytes - len(head)))
        target = self.path(IMAGES, f"{IMAGES_FOLDER}/{name}")
        with target.open("wb") as file:
            file.write(head)
            file.truncate(size_bytes)
        return PhysicalImage(
            name=name,
            uri=f"http://{IMAGES}:{IMAGES_PORT}/{name}",
            digest=f"sha256:{hashed.hexdigest()}",
            size_bytes=size_bytes,
        )

    def served_bytes(self) -> int:
        """What the image server's link has sent, headers of packets and all."""
        text = self.cluster.run(IMAGES, ["ip", "-json", "-stats", "link", "show", "eth0"]).stdout
        return int(json.loads(text)[0]["stats64"]["tx"]["bytes"])

    def leftovers(self) -> tuple[str, ...]:
        """What jobs and reservations have left once Grid Engine has seen their ends; none is good."""
        with suppress(TestbedError):
            self.cluster.wait_for("Grid Engine to be empty", lambda: not self._known(), EMPTY_S)
        found = self._known()
        self.cluster.queue_states()
        for node in self.nodes:
            with self.client(node) as client:
                found += [
                    f"{node}: instance of {each['owner']}" for each in client.ask("instances")["instances"]
                ]
            found += [f"{node}: {path.name}" for path in self.path(node, SCRATCH).iterdir()]
        return tuple(found)

    def _known(self) -> list[str]:
        return [
            line
            for argv in (["qstat", "-u", "*"], ["qrstat", "-u", "*"])
            for line in self.cluster.run(HEAD, argv, check=False).stdout.splitlines()
        ]

    def _install(self) -> None:
        cluster, key = self.cluster, secrets.token_hex(32)
        for node in self.nodes:
            cluster.write(node, KEY, f"{key}\n", mode=0o600)
            cluster.write(node, "/etc/outrider/cachemgr.conf", POOL_CONFIGURATION % node)
        argv = [cluster.python, "-m", "cachemgr", "--no-daemon", "init"]
        path = f"PYTHONPATH={REPOSITORY}"
        for limit_bytes in sorted(set(self._pools)):
            limit = ["--limit", str(limit_bytes), "--policy", self._policy]
            alike = [node for node, room in zip(self.nodes, self._pools, strict=True) if room == limit_bytes]
            cluster.run_everywhere(alike, ["env", path, *argv, *limit])
        for node in self.nodes:
            self.path(node, SCRATCH).mkdir(parents=True, exist_ok=True)
            cluster.start(
                node,
                ["/bin/sh", "-c", 'mkdir -p /run/outrider && exec "$@"', "sh",
                 cluster.python, "-m", "cachemgr.daemon"],
                name="cachemgr",
                environment={"PYTHONPATH": str(REPOSITORY)},
            )  # fmt: skip
        for node in self.nodes:
            cluster.wait_for(
                f"the daemon of {node}",
                self.path(node, SOCKET).exists,
                START_S,
                partial(cluster.log, node, "cachemgr"),
            )
