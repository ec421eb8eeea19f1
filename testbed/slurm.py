"""A private Slurm on a cluster of hosts: a head, nodes, and a server of images."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from testbed import suites
from testbed.batchcluster import (
    BOOT_S,
    HEAD,
    IMAGES,
    IMAGES_FOLDER,
    IMAGES_PORT,
    SERVER,
    BatchCluster,
    BatchOptions,
    missing_tools,
    plain_file,
)
from testbed.cluster import WAIT_S
from testbed.commands import CommandFailed
from testbed.host_maker import Folder, InitialFile
from testbed.people import USERS
from testbed.records import TestbedError
from testbed.slurmconf import CGROUPS_OFF, CGROUPS_V1, PLUGSTACK, slurm_conf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.clock import Clock

__all__ = ["HEAD", "IMAGES", "IMAGES_FOLDER", "IMAGES_PORT", "SERVER", "SlurmCluster", "missing"]
CONF = "/etc/slurm/slurm.conf"
MUNGED = "setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged --num-threads=2"
# Asks a daemon by its own file: it may have another number after a reconfiguration.
SIGNALLED = 'read -r pid <"/run/slurm/$1.pid" && kill -s "$2" "$pid"'


class SlurmCluster(BatchCluster):
    """`with SlurmCluster(nodes=2) as cluster: cluster.run("head", ["sbatch", …], user="ada")`."""

    kind = "slurm"

    def __init__(
        self,
        *,
        nodes: int,
        version: str | None = None,
        slurm_conf_lines: Sequence[str] = (),
        cache: Path = suites.CACHE,
        **options: Unpack[BatchOptions],
    ) -> None:
        """
        `version` is that of Slurm, None for whatever this machine has; `files` are contents by path
        that every host has before its daemons start, such as /etc/slurm/job_submit.lua; what
        begins with #! can be executed.
        """
        self._munge_key = secrets.token_bytes(128)
        self._conf = slurm_conf(nodes, slurm_conf_lines)
        tree = suites.tree_of(version, cache)
        super().__init__(
            nodes=nodes,
            tree=tree,
            notes={"version": suites.version_in(tree) or ""},
            **options,
        )

    @classmethod
    def attached(cls, name: str, clock: Clock | None = None) -> SlurmCluster:
        cluster = super().attached(name, clock)
        cluster._munge_key, cluster._conf = b"", ""
        return cluster

    @property
    def version(self) -> str:
        """Slurm's own, such as 22.05.8."""
        return self.record.notes["version"]

    @property
    def system(self) -> str:
        return f"Slurm {self.version}"

    def files(self, host: str) -> list[InitialFile]:
        munge = self.people.of("munge")
        plain: dict[str, str | bytes] = {
            CONF: self._conf,
            "/etc/slurm/plugstack.conf": PLUGSTACK,
            "/etc/slurm/cgroup.conf": CGROUPS_V1 if self.version.startswith("22.05.") else CGROUPS_OFF,
        }
        return [
            *(plain_file(path, content) for path, content in plain.items()),
            # After these, since the caller may have files of his own in their places.
            *super().files(host),
            InitialFile(
                path="/etc/munge/munge.key", content=self._munge_key, mode=0o400, uid=munge.uid, gid=munge.gid
            ),
        ]

    def folders(self) -> list[Folder]:
        munge, slurm = self.people.of("munge"), self.people.of("slurm")
        return [
            *super().folders(),
            *(
                Folder(path=path, uid=munge.uid, gid=munge.gid, mode=mode)
                for path, mode in (
                    ("/run/munge", 0o755),
                    ("/var/log/munge", 0o700),
                    ("/var/lib/munge", 0o711),
                )
            ),
            Folder(path="/etc/munge", uid=munge.uid, gid=munge.gid, mode=0o700),
            *(
                Folder(path=path, uid=slurm.uid, gid=slurm.gid)
                for path in ("/run/slurm", "/var/log/slurm", "/var/lib/slurm", "/var/lib/slurm/slurmctld")
            ),
            Folder(path="/var/lib/slurm/slurmd"),
            Folder(path="/etc/slurm/plugstack.conf.d"),
        ]

    def boot(self, hosts: Sequence[str]) -> None:
        super().boot(hosts)
        if HEAD in hosts:
            self.run(HEAD, ["/bin/sh", "-c", f"{MUNGED} && exec slurmctld"])
            self.wait_for("slurmctld to answer", self.is_controller_up, BOOT_S, self.logs)
        nodes = [host for host in hosts if host not in (HEAD, IMAGES)]
        try:
            self.run_everywhere(nodes, ["/bin/sh", "-c", f"{MUNGED} && exec slurmd"])
        except CommandFailed as error:
            raise TestbedError(f"{error}\n{self.logs()}") from error
        self.wait_for("the nodes to register", lambda: self.are_up(nodes), BOOT_S, self.logs)

    def is_controller_up(self) -> bool:
        return self.run(HEAD, ["scontrol", "ping"], check=False).returncode == 0

    def node_states(self) -> dict[str, str]:
        """Each node's state as sinfo names it, such as idle, mixed, down*."""
        done = self.run(HEAD, ["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False)
        return dict(line.split() for line in done.stdout.splitlines())

    def are_idle(self, nodes: Sequence[str]) -> bool:
        """Whether jobs can start on them at once."""
        states = self.node_states()
        return all(states.get(node) == "idle" for node in nodes)

    def are_up(self, nodes: Sequence[str]) -> bool:
        """Whether the controller hears them; they may be busy or drained."""
        states = self.node_states()
        found = [states.get(node, "unknown") for node in nodes]
        return not any(state.startswith(("unknown", "down")) or state.endswith("*") for state in found)

    def wait_idle(self, timeout_s: float = BOOT_S) -> None:
        self.wait_for("all nodes to be idle", lambda: self.are_idle(self.nodes), timeout_s, self.logs)

    def logs(self, lines: int = 30) -> str:
        """The ends of the daemons' logs, for an error's text."""
        told = []
        for host, daemon in ((HEAD, "slurmctld"), *((node, "slurmd") for node in self.nodes[:2])):
            argv = ["tail", "-n", str(lines), f"/var/log/slurm/{daemon}.log"]
            told.append(f"--- {daemon} on {host}\n{self.run(host, argv, check=False).stdout}")
        return f"{self.node_states()}\n" + "".join(told)

    def start_slurmctld(self) -> None:
        self.run(HEAD, ["slurmctld"])
        self.wait_for("slurmctld to answer", self.is_controller_up, BOOT_S, self.logs)

    def kill_slurmctld(self, signal: str = "KILL") -> None:
        self._end(HEAD, "slurmctld", signal)

    def restart_slurmctld(self) -> None:
        """Stop and start it as an administrator would; jobs go on."""
        self.kill_slurmctld("TERM")
        self.start_slurmctld()

    def start_slurmd(self, node: str) -> None:
        self.run(node, ["slurmd"])

    def kill_slurmd(self, node: str, signal: str = "KILL") -> None:
        self._end(node, "slurmd", signal)

    def restart_slurmd(self, node: str) -> None:
        self.kill_slurmd(node, "TERM")
        self.start_slurmd(node)

    def is_daemon_running(self, host: str, daemon: str) -> bool:
        """Whether slurmctld, slurmd lives on a host."""
        return self._slurm_signal(host, daemon, "0")

    def reconfigure(self, slurm_conf_lines: Sequence[str] | None = None) -> None:
        """Write slurm.conf anew on all hosts, if lines are given, and let the daemons read it."""
        if slurm_conf_lines is not None:
            text = slurm_conf(len(self.nodes), slurm_conf_lines)
            for host in (HEAD, *self.nodes):
                self.write(host, CONF, text)
        heard = [node for node in self.nodes if self.are_up([node])]
        self.run(HEAD, ["scontrol", "reconfigure"])
        self.wait_for("slurmctld to answer", self.is_controller_up, BOOT_S, self.logs)
        # Newer ones forget their nodes until these answer again.
        self.wait_for("the nodes to register", lambda: self.are_up(heard), BOOT_S, self.logs)

    def sbatch(self, script: str, *options: str, user: str = USERS[0]) -> str:
        """Submit a script as a user, by standard input; gives the job's number."""
        return self.run(HEAD, ["sbatch", "--parsable", *options], user=user, given=script).stdout.strip()

    def job_state(self, job: str) -> str:
        """Such as PENDING, RUNNING, COMPLETED; empty for a job that is not known."""
        argv = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        return self.run(HEAD, argv, check=False).stdout.strip()

    def wait_job(self, job: str, state: str = "COMPLETED", timeout_s: float = WAIT_S) -> None:
        """Until the job is in the state. Raises TestbedError with what Slurm knows of it."""
        show = ["scontrol", "show", "job", job]
        self.wait_for(
            f"job {job} to be {state}",
            lambda: self.job_state(job) == state,
            timeout_s,
            lambda: self.run(HEAD, show, check=False).stdout + self.logs(),
        )

    def _end(self, host: str, daemon: str, signal: str) -> None:
        if self._slurm_signal(host, daemon, signal):
            self.wait_for(f"the end of {daemon} on {host}", lambda: not self.is_daemon_running(host, daemon))

    def _slurm_signal(self, host: str, daemon: str, signal: str) -> bool:
        argv = ["/bin/sh", "-c", SIGNALLED, "sh", daemon, signal]
        return self.run(host, argv, check=False).returncode == 0


def missing(version: str | None = None, cache: Path = suites.CACHE) -> str | None:
    """What this machine lacks for a cluster with this Slurm; None if it lacks nothing."""
    if lacking := missing_tools():
        return lacking
    own = suites.version_in(Path("/"))
    if own is not None and (version is None or own.startswith(f"{version}.")):
        return None if shutil.which("munged") else "Slurm needs munge: apt install munge"
    if version is None:
        return "no Slurm on this machine: apt install slurmctld slurmd slurm-client munge"
    if (cache / suites.SUITES[version]).exists() or shutil.which("debootstrap"):
        return None
    return f"Slurm {version} needs debootstrap: apt install debootstrap"
