"""A real Grid Engine with Outrider's hooks and daemons on its nodes, and an image in their pools.

Nobody serves on the head: these tests say themselves what a job may have, by tickets and pins.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cachemgr.base.errors import NoDaemon
from cachemgr.network.client import SOCKET as NODE_SOCKET
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from testbed.batchcluster import HEAD
from testbed.cluster import REPOSITORY
from testbed.clustersite import CACHEMGR, IN_ITS_FOLDER, KEY, LIBRARY, NODE_CONFIGURATION, NODE_DAEMON
from testbed.gridengine import GridEngineCluster
from testbed.gridenginesite import PE_START, PROLOG, QUEUES, SHEPHERD, site_cluster
from tests.daemons.gridengine.hooks.node import needs_compiler
from tests.daemons.node.daemons import CLOCK, sha256
from tests.daemons.testbed.clusters import needs_gridengine
from tools.pyz import pack

RATE_BITS_PER_S = 10**9
CONTENT = b"The image of this test.\n" * 1000
DIGEST = sha256(CONTENT)
IMAGE = "/srv/image"
SITE_KEY = b"0123456789abcdef" * 2
ENVIRONMENTS = ("make", "each4")
# Tells what it has been given, and changes it.
READS = 'echo "has $OUTRIDER_IMAGE"; sha256sum <"$OUTRIDER_IMAGE"; echo changed >"$OUTRIDER_IMAGE"\n'
LEFT = "cd /run/outrider && ls -d jobs/* nodes/* 2>/dev/null"


class Site:
    """A cluster on which the hooks are installed. Everything on it is asked for by these methods."""

    def __init__(self, cluster: GridEngineCluster) -> None:
        self.cluster = cluster
        self.user = "ada"

    def install(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gehooks-") as folder:
            packed = Path(folder, "cachemgr.pyz")
            pack(packed, bytecode_of="/usr/bin/python3")
            for node in self.cluster.nodes:
                self._install_node(node, packed.read_bytes())
        self.cluster.run_everywhere(self.cluster.nodes, [CACHEMGR, "--no-daemon", "init", "--limit", "64MiB"])
        for node in self.cluster.nodes:
            self.start_node(node)
        self.cluster.set_global(shepherd_cmd=SHEPHERD)
        # Otherwise they hear of it with their next report.
        self.cluster.restart_execds()
        self.cluster.set_queue("all.q", prolog=PROLOG, **QUEUES)
        for environment in ENVIRONMENTS:
            self.cluster.run(HEAD, ["qconf", "-rattr", "pe", "start_proc_args", PE_START, environment])
        for node in self.cluster.nodes:
            self.bring(node)

    def start_node(self, node: str) -> None:
        self.cluster.start(node, [*IN_ITS_FOLDER, CACHEMGR, "serve"], name=NODE_DAEMON)
        self.cluster.wait_for(f"the daemon of {node}", lambda: self._tried(node, "ping") is not None)

    def bring(self, node: str) -> None:
        self.cluster.run(node, [CACHEMGR, "add", IMAGE, "--digest", f"sha256:{DIGEST}"])

    def evict(self, node: str) -> None:
        self.cluster.run(node, [CACHEMGR, "evict", f"sha256:{DIGEST}"])

    def pin(self, job: str, *nodes: str) -> None:
        """What the service does before it lets a job go."""
        for node in nodes or self.cluster.nodes:
            owner = ["--owner", f"reservation:job-{job}"]
            self.cluster.run(node, [CACHEMGR, "pin", f"sha256:{DIGEST}", *owner, "--for", "1h"])

    def unpin(self, job: str, *nodes: str) -> None:
        """What the service does when a job has ended."""
        for node in nodes or self.cluster.nodes:
            self.cluster.run(node, [CACHEMGR, "release", f"reservation:job-{job}"])

    def ticket(self, job: str, **changes: Any) -> str:
        uid = self.cluster.people.of(self.user).uid
        said = {"job": job, "uid": uid, "digest": DIGEST, "expires_s": CLOCK.now_s() + 600, **changes}
        return make_job_ticket(SITE_KEY, JobTicket(**said))

    def held(self, script: str, *options: str) -> str:
        """A job that waits until it is let go."""
        given = ["-h", "-j", "y", "-o", "out.$JOB_ID.$TASK_ID", *options]
        return self.cluster.qsub(f"#!/bin/sh\n{script}\n", *given, user=self.user)

    def let_go(self, job: str, **variables: str) -> None:
        """With these variables in its environment, and no others."""
        words = ",".join(f"{name}={text}" for name, text in variables.items())
        self.cluster.run(HEAD, ["qalter", *(["-v", words] if words else []), "-h", "n", job])

    def submit(self, script: str, *options: str, ticket: str = "", **variables: str) -> str:
        """With its own ticket, or with that text in place of one."""
        job = self.held(script, *options)
        self.let_go(job, OUTRIDER_TICKET=ticket or self.ticket(job), **variables)
        return job

    def output(self, job: str, task: str = "0") -> str:
        path = f"{self.cluster.people.of(self.user).home}/out.{job}.{task}"
        return self.cluster.run(HEAD, ["cat", path], check=False).stdout

    def ended(self, *jobs: str) -> None:
        for job in jobs:
            self.cluster.wait_job(job)

    def refused(self, *jobs: str) -> None:
        """Until they are in error, which their users and administrators see, and nobody else is hurt by."""
        for job in jobs:
            self.cluster.wait_job(job, "Eqw")

    def reason(self, job: str) -> str:
        """Why a job is in error, as its user is told."""
        shown = self.cluster.run(HEAD, ["qstat", "-j", job], user=self.user).stdout
        lines = [line for line in shown.splitlines() if line.startswith("error reason")]
        return lines[0].partition(":")[2].strip() if lines else ""

    def owners(self, node: str) -> list[str]:
        return sorted(each["owner"] for each in self._shown(node, "instances"))

    def left(self) -> list[str]:
        """What hooks and daemons still have of jobs."""
        found = []
        for node in self.cluster.nodes:
            told = self.cluster.run(node, ["sh", "-c", LEFT], check=False).stdout.split()
            pinned = [each["digest"] for each in self._shown(node, "ls", "images") if each["pins"]]
            found += [f"{node}: {each}" for each in (*told, *self.owners(node), *pinned)]
        return found

    def check_clean(self) -> None:
        """No queue instance in error, no instance, no pin, no file."""
        self.cluster.queue_states()
        self.cluster.wait_for("nothing to be left", lambda: not self.left(), 20, lambda: f"{self.left()}")
        self.cluster.queue_states()

    def _shown(self, node: str, verb: str, name: str = "") -> list[dict[str, Any]]:
        shown = self._tried(node, verb)
        assert shown is not None, self.cluster.log(node, NODE_DAEMON)
        found: list[dict[str, Any]] = shown[name or verb]
        return found

    def _tried(self, node: str, verb: str) -> dict[str, Any] | None:
        with suppress(NoDaemon), DaemonClient(self.cluster.from_outside(node, NODE_SOCKET)) as daemon:
            return daemon.ask(verb)
        return None

    def _install_node(self, node: str, packed: bytes) -> None:
        write = self.cluster.write
        write(node, CACHEMGR, packed, mode=0o755)
        write(node, f"{LIBRARY}/hook.py", (REPOSITORY / "cachemgr" / "hook.py").read_bytes())
        write(node, KEY, SITE_KEY + b"\n", mode=0o600)
        write(node, "/etc/outrider/cachemgr.conf", NODE_CONFIGURATION % node)
        write(node, IMAGE, CONTENT)


@contextmanager
def site(nodes: int) -> Iterator[Site]:
    needs_gridengine()
    needs_compiler()
    with site_cluster(nodes, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = Site(cluster)
        made.install()
        yield made
