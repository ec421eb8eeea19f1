"""A private Slurm on this machine: munged, slurmctld and a few slurmd, which end with whoever began them.

All of it runs in a process namespace of its own whose first process dies with its parent, so that a
killed test run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cachemgr.base.clock import SystemClock

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scontrol", "unshare", "setpriv")
UP_S = 60
DOWN_S = 20
CALL_S = 60
PREFIX = "sl-"
CPUS, MEMORY_MIB = 4, 2000

CONFIGURATION = """\
ClusterName=private
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
ReturnToService=1
SlurmdTimeout=5
KillWait=1
MinJobAge={min_job_age_s}
GresTypes=gpu
MessageTimeout=10
UnkillableStepTimeout=60
{more}
NodeName=n[1-{count}] NodeAddr=127.0.0.1 NodeHostname=localhost Port=[{first_port}-{last_port}] CPUs={cpus} \
RealMemory={memory_mib} State=UNKNOWN
PartitionName=main Nodes=n[1-{count}] Default=YES State=UP MaxTime=UNLIMITED
"""
ELSEWHERE = """\
set -e
mount --make-rprivate /
mount -t tmpfs none {root}/tmp
mkdir -p {folder} {root}{folder}
mount --bind {folder} {root}{folder}
mount -t proc none {root}/proc
mount --rbind /dev {root}/dev
mount -t tmpfs none {root}/run
mount -t tmpfs none {root}/var/log
mkdir -p {root}/run/munge {root}/var/log/slurm
exec chroot {root} sh {folder}/start
"""
START = """\
set -e
cd {folder}
munged --foreground --force --key-file={folder}/munge.key --socket={folder}/munge.socket \
--pid-file={folder}/munged.pid --log-file={folder}/munged.log --seed-file={folder}/munged.seed \
>{folder}/munged.out 2>&1 </dev/null &
i=0; while [ ! -S {folder}/munge.socket ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.05; done
slurmctld -D -f {folder}/slurm.conf >{folder}/slurmctld.out 2>&1 </dev/null &
for n in {names}; do slurmd -D -N $n -f {folder}/slurm.conf >{folder}/$n.out 2>&1 </dev/null & done
while :; do wait || :; sleep 1; done
"""


def missing() -> list[str]:
    """What has to be installed and is not."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class NotUp(Exception):
    """The private Slurm did not come up: its logs are in the message."""


@dataclass(kw_only=True)
class Cluster:
    """One that is up. With `root` its programs are those of another system, below that folder."""

    folder: Path
    nodes: tuple[str, ...]
    process: subprocess.Popen[bytes]
    root: str = ""
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def run(self, *argv: str, uid: int | None = None, text: str | None = None) -> str:
        """What a command of Slurm prints. Raises CalledProcessError."""
        as_user: Mapping[str, object] = {}
        if uid is not None and not self.root:
            as_user = {"user": uid, "group": uid, "extra_groups": ()}
        finished = subprocess.run(
            [*self.entering(uid), *argv],
            capture_output=True,
            input=text or "",
            text=True,
            timeout=CALL_S,
            check=True,
            cwd=self.folder,
            env={
                "PATH": PATH,
                "SLURM_CONF": str(self.configuration),
                "LC_ALL": "C.UTF-8",
                "SLURM_TIME_FORMAT": "%s",
            },
            **as_user,  # type: ignore[call-overload]
        )
        return str(finished.stdout)

    def entering(self, uid: int | None) -> list[str]:
        """What a command has to be started with to run in the other system, if there is one."""
        if not self.root:
            return []
        person = [] if uid is None else [f"--userspec={uid}:{uid}", f"--groups={uid}"]
        return ["nsenter", f"--target={self._init()}", "--mount", "--", "chroot", *person, self.root]

    def logs(self) -> str:
        parts = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            with contextlib.suppress(OSError):
                parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}")
        return "\n".join(parts)

    def wait_until_up(self) -> None:
        by_s = self.clock.monotonic_s() + UP_S
        while True:
            with contextlib.suppress(subprocess.SubprocessError, NotUp):
                lines = self.run("sinfo", "-h", "-N", "-o", "%N %t").split("\n")
                if sum(line.endswith(" idle") for line in lines) == len(self.nodes):
                    return
            if self.clock.monotonic_s() > by_s:
                raise NotUp(f"Slurm is not up after {UP_S} s\n{self.logs()}")
            self.clock.sleep(0.1)

    def wait_until_answering(self) -> None:
        """Until a controller that was started anew answers."""
        by_s = self.clock.monotonic_s() + UP_S
        while True:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scontrol", "ping")
                self.run("squeue", "-h")
                return
            if self.clock.monotonic_s() > by_s:
                raise NotUp(f"slurmctld does not answer after {UP_S} s\n{self.logs()}")
            self.clock.sleep(0.1)

    def pids_of_node(self, name: str) -> list[int]:
        """The slurmd of that node, as numbers in this process's own namespace."""
        return self._pids("slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        self._kill(self.pids_of_node(name))

    def start_node(self, name: str) -> None:
        """Starts its slurmd anew, inside the cluster's namespaces."""
        self._start("slurmd", "-D", "-N", name)

    def stop_controller(self) -> None:
        """As a restart by systemd begins: it writes down what it knows."""
        for pid in self._pids("slurmctld", "-D"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        by_s = self.clock.monotonic_s() + DOWN_S
        while self._pids("slurmctld", "-D"):
            if self.clock.monotonic_s() > by_s:
                raise NotUp(f"slurmctld does not end within {DOWN_S} s\n{self.logs()}")
            self.clock.sleep(0.1)

    def kill_controller(self) -> None:
        """It writes nothing down any more."""
        pids = self._pids("slurmctld", "-D")
        self._kill(pids)
        while self._pids("slurmctld", "-D"):
            self.clock.sleep(0.02)

    def start_controller(self) -> None:
        self._start("slurmctld", "-D")

    def _pids(self, *argv: str) -> list[int]:
        wanted = [*argv, "-f", str(self.configuration)]
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1] == wanted:
                    found.append(int(path.name))
        return found

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, *argv: str) -> None:
        elsewhere = ["chroot", self.root] if self.root else []
        with (self.folder / f"{argv[-1].lstrip('-')}.out").open("ab") as out:
            daemon = subprocess.Popen(
                ["nsenter", f"--target={self._init()}", "--pid", "--mount", "--", *elsewhere,
                 *argv, "-f", str(self.configuration)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={"PATH": PATH}, start_new_session=True,
            )  # fmt: skip
        self.daemons.append(daemon)

    def _init(self) -> int:
        """The first process of the namespace: the child of `unshare`."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children:
            raise NotUp("the private Slurm has not begun, or has ended")
        return int(children[0])


def sweep_folders() -> None:
    """Those of test runs that were killed: their daemons died with them, and their locks are free."""
    for lock in Path("/tmp").glob(f"{PREFIX}*/owner"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for _ in range(100):
        first = 20_000 + secrets.randbelow(20_000)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    each = stack.enter_context(socket.socket())
                    each.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise NotUp("no free ports on this machine")


@contextmanager
def cluster(
    *,
    count: int = 4,
    more: str = "",
    files: Mapping[str, str] | None = None,
    min_job_age_s: int = 300,
    root: str = "",
) -> Iterator[Cluster]:
    """Up on entry, gone on exit. `files` lie beside slurm.conf, `more` is added to it ({folder} known)."""
    sweep_folders()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    folder.chmod(0o755)
    owner = (folder / "owner").open("wb")
    fcntl.flock(owner, fcntl.LOCK_EX)
    names = tuple(f"n{number}" for number in range(1, count + 1))
    port = free_ports(count + 1)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder,
            controller_port=port,
            first_port=port + 1,
            last_port=port + count,
            count=count,
            cpus=CPUS,
            memory_mib=MEMORY_MIB,
            min_job_age_s=min_job_age_s,
            more=more.format(folder=folder),
        )
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if root else "CgroupAutomount=no\n")
    (folder / "start").write_text(START.format(folder=folder, names=" ".join(names)))
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    subprocess.run(
        ["mungekey", "--create", f"--keyfile={folder}/munge.key"],
        check=True,
        timeout=CALL_S,
        env={"PATH": PATH},
    )
    begin = ["-c", ELSEWHERE.format(root=root, folder=folder)] if root else [str(folder / "start")]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--mount-proc",
         "--kill-child=KILL", "sh", *begin],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}, start_new_session=True,
    )  # fmt: skip
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        made = Cluster(folder=folder, nodes=names, process=process, root=root, daemons=daemons)
        made.wait_until_up()
        yield made
    finally:
        process.kill()
        process.wait(DOWN_S)
        for each in daemons:
            each.kill()
            each.wait(DOWN_S)
        shutil.rmtree(folder, ignore_errors=True)
        owner.close()
