"""Clusters whose hosts are machines with a real systemd: their daemons, and ours, run as units.

They are made and used like `SlurmCluster` and `GridEngineCluster`, for as long as a `with` statement, and are
neither kept nor rebooted. A site's daemons are the units that Debian's packages bring, where there are any.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import host_maker
from testbed.batchcluster import BOOT_S, HEAD, IMAGES, BatchCluster
from testbed.booted import BootedMachine
from testbed.gridengine import DAEMONS, PROGRAMS, VARIABLES, GridEngineCluster
from testbed.people import HOMES
from testbed.records import HostProcess, TestbedError
from testbed.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

UNIT = """[Unit]
Description={daemon} of a site's
[Service]
Type=forking
PIDFile={pid}
Environment={variables}
ExecStart={program}
KillMode=process
TasksMax=infinity
[Install]
WantedBy=multi-user.target
"""


class BootedCluster(BatchCluster):
    """Hosts that have booted, on a switch. A batch system's derives from this and from its own cluster."""

    _machines: contextlib.ExitStack

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def down(self) -> None:
        machines, self._machines = getattr(self, "_machines", None), contextlib.ExitStack()
        try:
            if machines is not None:
                machines.close()
        finally:
            super().down()

    def units(self, host: str, verb: str, *names: str) -> None:
        """`systemctl start munge slurmd` and the like. Raises CommandFailed with what the units have said."""
        done = self.run(host, ["systemctl", verb, *names], check=False, timeout_s=BOOT_S)
        if done.returncode != 0:
            said = self.run(host, ["journalctl", "--no-pager", "--lines=40"], check=False).stdout
            raise TestbedError(f"systemctl {verb} {' '.join(names)} on {host}: {done.stderr}\n{said}")

    def _make(self, hosts: Sequence[str]) -> None:
        site, _ = host_maker.make(self.record, [], {}, [])
        self._record(site=site)
        self._machines = contextlib.ExitStack()
        homes = self.record.folder / "homes"
        homes.mkdir(mode=0o755)
        shared = [Path(path) for path, _ in self.record.binds]
        made = {}
        for host in hosts:
            machine = BootedMachine(
                Path(self.record.tree), shared, elsewhere={homes: HOMES}, empty=host_maker.PRIVATE
            )
            self._machines.enter_context(machine)
            made[host] = HostProcess.of(machine.pid)
        self._record(hosts=made)
        host_maker.join(self.record, hosts)
        for host in hosts:
            self._furnish(host)

    def _furnish(self, host: str) -> None:
        self.run(host, ["hostname", host])
        # Users walk down to programs also where this machine's own may not. What is shared cannot be changed.
        above = dict.fromkeys(
            str(each) for path in host_maker.programs(self.record) for each in Path(path).parents
        )
        self.run(host, ["sh", "-c", 'chmod -f o+x "$@" || :', "sh", *above])
        for folder in self.folders():
            owner = ["-o", str(folder.uid), "-g", str(folder.gid)]
            self.run(host, ["install", "-d", "-m", f"{folder.mode:o}", *owner, folder.path])
        for file in self.files(host):
            self.write(host, file.path, file.content, mode=file.mode, owner=f"{file.uid}:{file.gid}")


class BootedSlurm(BootedCluster, SlurmCluster):
    """Debian's munge.service, slurmctld.service and slurmd.service."""

    def boot(self, hosts: Sequence[str]) -> None:
        BatchCluster.boot(self, hosts)
        if HEAD in hosts:
            self.units(HEAD, "start", "munge", "slurmctld")
            self.wait_for("slurmctld to answer", self.is_controller_up, BOOT_S, self.logs)
        nodes = [host for host in hosts if host not in (HEAD, IMAGES)]
        for node in nodes:
            self.units(node, "start", "munge", "slurmd")
        self.wait_for("the nodes to register", lambda: self.are_up(nodes), BOOT_S, self.logs)


class BootedGridEngine(BootedCluster, GridEngineCluster):
    """Its daemons are units of the site's: Debian has scripts of System V for them."""

    def files(self, host: str) -> list[host_maker.InitialFile]:
        variables = " ".join(f"{key}={value}" for key, value in VARIABLES.items())
        units = [
            host_maker.InitialFile(
                path=f"/etc/systemd/system/{_unit(daemon)}.service",
                content=UNIT.format(
                    daemon=daemon,
                    pid=pid.replace("$(hostname)", host),
                    variables=variables,
                    program=f"{PROGRAMS}/{daemon}",
                ).encode(),
            )
            for daemon, pid in DAEMONS.items()
        ]
        return [*units, *super().files(host)]

    def starting(self, daemon: str) -> list[str]:
        return ["systemctl", "start", _unit(daemon)]


def _unit(daemon: str) -> str:
    """Not the daemon's own name, which the script of Debian's package gives itself as a second one."""
    return f"site-{daemon}"
