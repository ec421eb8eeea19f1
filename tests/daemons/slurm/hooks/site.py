"""A Slurm of its own for the tests of its hooks: nodes with pools, in namespaces that end with the test.

Each node has its own /run, its own pool and daemon, and a slurmd; the head has its own /run, too.
All are in one process namespace, whose first process dies with whoever began it, and everything
with it. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import NoDaemon
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from testbed.waiting import awaited
from tests.daemons.node.daemons import CLOCK, MIB, make_pool, sha256
from tests.repository import ROOT

KEY = b"k" * 32
UID = 65534
SLURM_UID = 1
CONTENT = b"The image of this test.\n" * 1000
DIGEST = sha256(CONTENT)
UP_S, CALL_S, WAIT_S = 60, 60, 60
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip", "unshare", "setpriv", "timeout")
HOOKS = {
    "Prolog": "prolog/slurm-prolog",
    "TaskProlog": "prolog/slurm-task-prolog",
    "PrologSlurmctld": "prolog/slurm-prolog-slurmctld",
    "Epilog": "epilog/slurm-epilog",
}
CONFIGURATION = """\
ClusterName=hooks
SlurmctldHost=localhost
SlurmUser=daemon
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/state/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/state/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=10000
ReturnToService=2
PrologFlags={flags}
PrologEpilogTimeout=60
BatchStartTimeout=90
KillWait=2
{hooks}
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED OverSubscribe=YES
"""
START = """\
set -e
mount --make-rprivate /
mkdir outer; mount --bind /proc outer
mount -t proc proc /proc
ip link set lo up; ip link add slurm0 type veth peer name slurm1; ip address add 10.96.0.1/24 dev slurm0
ip link set slurm0 up; ip link set slurm1 up
munged --foreground --force --key-file=munge/key --socket={folder}/munge/socket \
  --pid-file={folder}/munge/pid --log-file={folder}/munge/log \
  --seed-file={folder}/munge/seed >munge/out 2>&1 </dev/null &
while ! munge -n -S {folder}/munge/socket >/dev/null 2>&1; do sleep 0.05; done
unshare --mount sh -c 'mount --bind head /run; exec slurmctld -D -f slurm.conf' >state/out 2>&1 </dev/null &
for node in {nodes}; do
  unshare --mount sh -c 'mount --bind '$node'/run /run
    {python} -m cachemgr.daemon --config '$node'/conf 2>>'$node'/log </dev/null &
    exec slurmd -D -N '$node' -f {folder}/slurm.conf' >$node/out 2>&1 </dev/null &
done
while :; do wait || :; sleep 1; done
"""


@dataclass(frozen=True)
class Answer:
    """What a command of Slurm ended with."""

    code: int
    printed: str
    said: str


@dataclass
class Site:
    """A Slurm that is up."""

    folder: Path
    nodes: tuple[str, ...]
    process: subprocess.Popen[bytes]
    numbers: dict[str, int] = field(default_factory=lambda: {"next": 0})

    def run(self, *argv: str, uid: int = UID, text: str = "") -> Answer:
        """A command of Slurm, as a user."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        enter = [
            "nsenter",
            f"--target={children[0]}",
            "--mount",
            "--net",
            "--pid",
            f"--wd={self.folder}/jobs",
        ]
        who = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        environment = {"PATH": PATH, "SLURM_CONF": f"{self.folder}/slurm.conf", "LC_ALL": "C"}
        done = subprocess.run(
            [*enter, "--", *who, *argv],
            input=text,
            capture_output=True,
            text=True,
            timeout=CALL_S,
            env=environment,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def submit(self, script: str, *options: str, ticket: str | None = "") -> str:
        """A held job with its own ticket, or another text, or none (None), then released; its number."""
        submitted = self.run(
            "sbatch",
            "--parsable",
            "--hold",
            "--output=out.%j",
            "--open-mode=append",
            *options,
            text=f"#!/bin/sh\n{script}\n",
        )
        assert submitted.code == 0, submitted.said
        job = submitted.printed.strip()
        if ticket is not None:
            array = any(each.startswith("--array") for each in options)
            self.update(job, f"Comment=mine outrider-ticket={ticket or self.ticket('-' if array else job)}")
        assert self.run("scontrol", "release", job, uid=0).code == 0
        return job

    def update(self, job: str, *changes: str) -> None:
        done = self.run("scontrol", "update", f"JobId={job}", *changes, uid=0)
        assert done.code == 0, done.said

    def ticket(self, job: str, **changes: Any) -> str:
        said = {"job": job, "uid": UID, "digest": DIGEST, "expires_s": CLOCK.now_s() + 600, **changes}
        return make_job_ticket(KEY, JobTicket(**said))

    def state(self, job: str) -> str:
        """The state of a job that Slurm still knows."""
        shown = self.run("scontrol", "-o", "show", "job", job, uid=0).printed
        return " ".join(
            word.partition("=")[2] for word in shown.split() if word.startswith(("JobState=", "ExitCode="))
        )

    def ended(self, job: str) -> str:
        """How a job has ended, once it has, its epilogs included."""
        self.eventually(
            f"job {job} has ended",
            lambda: self.state(job).split()[:1] and self.state(job).split()[0] in ENDED,
        )
        self.eventually("its epilogs are through", lambda: not self.run("squeue", "-h", "-j", job).printed)
        return self.state(job)

    def output(self, job: str) -> str:
        path = self.folder / "jobs" / f"out.{job}"
        return path.read_text() if path.exists() else ""

    def states_of_nodes(self) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-o", "%T").printed.split())

    def ask(self, node: str, verb: str, **fields: object) -> dict[str, Any]:
        with DaemonClient(self.socket(node)) as client:
            return client.ask(verb, fields)

    def socket(self, node: str) -> str:
        return str(self.folder / node / "run" / "outrider" / "cachemgr.sock")

    def instances(self) -> list[str]:
        return [
            f"{node} {each['owner']}"
            for node in self.nodes
            for each in self.ask(node, "instances")["instances"]
        ]

    def words(self) -> list[str]:
        """What hooks have left for one another on all nodes."""
        return [
            str(path.relative_to(self.folder))
            for node in self.nodes
            for kind in ("jobs", "failed")
            for path in (self.folder / node / "run" / "outrider" / kind).glob("*")
        ]

    def is_clean(self) -> bool:
        return not self.words() and not self.instances() and self.states_of_nodes() == {"idle"}

    def check_clean(self) -> None:
        """No file, no instance, and no node that is drained."""
        self.eventually(
            "nothing is left",
            self.is_clean,
            lambda: f"{self.words()} {self.instances()} {self.states_of_nodes()}",
        )

    def eventually(self, what: str, is_so: Callable[[], object], evidence: Callable[[], str] = str) -> None:
        if not awaited(is_so, WAIT_S, 0.1):
            pytest.fail(f"never: {what}: {evidence()}\n{self.logs()}")

    def logs(self) -> str:
        paths = [self.folder / "start", *self.folder.glob("state/*log"), *self.folder.glob("slurmd*.log")]
        paths += [*self.folder.glob("state/out"), *self.folder.glob("n?/out"), *self.folder.glob("n?/log")]
        paths += self.folder.glob("munge/[lo]*")
        shown = [f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths if path.exists()]
        return "\n".join([*shown, self.run("squeue", "-a", uid=0).printed])

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            return True
        try:
            for node in self.nodes:
                self.ask(node, "ping")
        except NoDaemon:
            return False
        return self.states_of_nodes() == {"idle"}


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def own_folder(kind: str) -> Path:
    """A folder with a short path; those of test runs that were killed go."""
    for path in Path("/tmp").glob(f"{kind}-*-*"):
        number = path.name.split("-")[1]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{kind}-{os.getpid()}-", dir="/tmp"))


def needs_slurm() -> None:
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    reason = f"these are missing: {', '.join(missing)}" if missing else "needs root"
    if missing or os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail(f"{reason}, and CI has them")
        pytest.skip(reason)


@contextmanager
def slurm(
    count: int = 2, *, flags: str = "Alloc,DeferBatch", hooks: Mapping[str, str] = HOOKS
) -> Iterator[Site]:
    """Up on entry with an image in every pool, gone on exit."""
    folder = own_folder("hk")
    nodes = tuple(f"n{number}" for number in range(1, count + 1))
    try:
        _lay_out(folder, nodes, flags, hooks)
        start = START.format(folder=folder, nodes=" ".join(nodes), python=sys.executable)
        # The kernel ends the first process with this one, however it ends, and that the others.
        argv = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            start,
        ]
        with (folder / "start").open("wb") as out:
            process = subprocess.Popen(
                argv,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={"PATH": PATH, "PYTHONPATH": str(ROOT)},
            )
        try:
            site = Site(folder, nodes, process)
            site.eventually("slurm is up", site.is_up)
            for node in nodes:
                add(site, node)
            yield site
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add(site: Site, node: str) -> None:
    """Put the image into a node's pool."""
    with DaemonClient(site.socket(node)) as client:
        client.ask(
            "add", {"uri": str(site.folder / "image"), "digest": DIGEST}, on_progress=lambda told: None
        )


def installed(folder: Path) -> dict[str, Path]:
    """The hooks as they would be installed below a folder."""
    lib = folder / "lib"
    (lib / "slurm").mkdir(parents=True)
    shutil.copy(ROOT / "cachemgr" / "hook.py", lib / "hook.py")
    found = {}
    for name, path in HOOKS.items():
        text = (ROOT / path).read_text()
        made = lib / "slurm" / Path(path).name.removeprefix("slurm-")
        made.write_text(text.replace("/usr/lib/outrider", str(lib)))
        made.chmod(0o755)
        found[name] = made
    return found


def _lay_out(folder: Path, nodes: tuple[str, ...], flags: str, hooks: Mapping[str, str]) -> None:
    folder.chmod(0o755)
    for name, owner, mode in (("state", SLURM_UID, 0o755), ("munge", 0, 0o755), ("jobs", 0, 0o1777)):
        (folder / name).mkdir()
        os.chown(folder / name, owner, owner)
        (folder / name).chmod(mode)
    (folder / "munge" / "key").write_bytes(os.urandom(1024))
    (folder / "munge" / "key").chmod(0o400)
    (folder / "site.key").write_bytes(KEY)
    (folder / "image").write_bytes(CONTENT)
    (folder / "head" / "outrider").mkdir(parents=True)
    os.chown(folder / "head" / "outrider", SLURM_UID, SLURM_UID)
    paths = installed(folder)
    lines = []
    for number, node in enumerate(nodes):
        (folder / node / "run" / "outrider").mkdir(parents=True)
        (folder / f"spool-{node}").mkdir()
        make_pool(folder / node / "pool", 64 * MIB)
        texts = {"pool": folder / node / "pool", "relay_key": folder / "site.key", "watchdog": 0}
        conf = "[cachemgr]\n" + "".join(f"{name} = {value}\n" for name, value in texts.items())
        (folder / node / "conf").write_text(conf)
        place = f"NodeAddr=127.0.0.1 NodeHostname=localhost Port={17001 + number}"
        lines.append(f"NodeName={node} {place} CPUs=4 State=UNKNOWN")
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder,
            flags=flags,
            hooks="\n".join(f"{name}={paths[name]}" for name in hooks),
            nodes="\n".join(lines),
        )
    )
    (folder / "cgroup.conf").write_text("")
