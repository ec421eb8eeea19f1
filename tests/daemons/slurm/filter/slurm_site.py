"""A Slurm of its own for the tests of its plugins: munged, slurmctld and one slurmd in own namespaces.

Ports, processes and mounts are private, so that several can run side by side, and all end
with the process that began them, however that ends. Of another version if a folder with
another system's tree is given. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cachemgr.base.clock import SystemClock
from testbed.waiting import awaited
from tests.repository import ROOT

PLUGINS = ROOT / "plugins" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip", "unshare", "nsenter", "setpriv")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
CACHE = Path("/var/cache/outrider-testbed")
SUITES = {"24.11": CACHE / "trixie", "26.05": CACHE / "sid"}
LOGS = ("munge/start", "munge/out", "state/out", "state/slurmctld.log", "slurmd.out", "slurmd.log")
ADA, BOB, SLURM_USER = 2, 3, 1
"""Users by number, such as every system has: bin, sys, and daemon as the one Slurm runs as."""
UP_S, CALL_S = 60, 60

CONFIGURATION = """\
ClusterName=filter
SlurmctldHost=localhost
SlurmUser=daemon
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/state/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/state/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=10000
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
MessageTimeout=30
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=localhost CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=n1 Default=YES State=UP MaxTime=UNLIMITED OverSubscribe=YES
{more}
"""
# The first process of the namespaces. It ends when its parent does, and the kernel ends the rest.
START = """\
set -e
PATH={path}; export PATH
mount --make-rprivate /
# Names are not looked up where there is no address but the loopback's.
ip link set lo up; ip link add slurm0 type veth peer name slurm1; ip address add 10.97.0.1/24 dev slurm0
ip link set slurm0 up; ip link set slurm1 up
[ -z "{tree}" ] || mount --bind {tree} {tree}
mount -t proc proc {tree}/proc
if [ -n "{tree}" ]; then
  mount -t tmpfs tmpfs {tree}/tmp
  for each in /dev {folder} {plugins}; do mkdir -p {tree}$each; mount --rbind $each {tree}$each; done
  cd {tree}; pivot_root . tmp; umount -l /tmp; mount -t tmpfs tmpfs /run; cd {folder}
fi
munged --foreground --force --key-file=munge/key --socket={folder}/munge/socket \
  --pid-file={folder}/munge/pid --log-file={folder}/munge/log --seed-file={folder}/munge/seed \
  >munge/out 2>&1 </dev/null &
while ! munge -n -S {folder}/munge/socket >/dev/null 2>&1; do sleep 0.05; done
slurmctld -D -f {folder}/slurm.conf >state/out 2>&1 </dev/null &
slurmd -D -N n1 -f {folder}/slurm.conf >slurmd.out 2>&1 </dev/null &
while :; do wait || :; sleep 1; done
"""


class NotUp(Exception):
    """The private Slurm did not come up: its logs are in the message."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command of Slurm ended with; `said` is what stood on stderr."""

    code: int
    printed: str
    said: str

    @property
    def job(self) -> str:
        """The job that `sbatch --parsable` has made."""
        assert self.code == 0, self.said
        return self.printed.strip().split(";")[0]


@dataclass(kw_only=True)
class Site:
    """A Slurm that is up, and the folder where its configuration and its users' files are."""

    folder: Path
    process: subprocess.Popen[bytes]
    clock: SystemClock = field(default_factory=SystemClock)

    def command(self, argv: Sequence[str], uid: int = 0) -> list[str]:
        """The argument list that runs a command inside, as a user."""
        init = self.init()
        if init is None:
            raise NotUp(f"the private Slurm has ended\n{self.logs()}")
        enter = ["nsenter", f"--target={init}", "--mount", "--net", "--pid", f"--wdns={self.folder}/jobs"]
        who = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        return [*enter, "--", *who, *argv]

    def init(self) -> str | None:
        """The first process of the namespaces, by its number outside of them."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return children[0] if children else None

    def run(
        self, *argv: str, uid: int = ADA, text: str = "", environment: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a command of Slurm as a user to its end, whatever that is."""
        known = {
            "PATH": PATH,
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "LC_ALL": "C",
            "SLURM_TIME_FORMAT": "%s",
        }
        done = subprocess.run(
            self.command(argv, uid), input=text.encode(), capture_output=True, timeout=CALL_S, check=False,
            env=known | dict(environment or {}),
        )  # fmt: skip
        return Answer(
            code=done.returncode,
            printed=done.stdout.decode(errors="replace"),
            said=done.stderr.decode(errors="replace"),
        )

    def submit(self, text: str, *options: str, uid: int = ADA) -> Answer:
        """Hand a script in through a file of its own."""
        script = self.folder / "jobs" / "script.sh"
        script.write_bytes(text.encode("utf-8", "surrogateescape"))
        return self.run("sbatch", "--parsable", "--output=out.%j", *options, str(script), uid=uid)

    def job(self, key: str) -> dict[str, str]:
        """What scontrol shows of a job; AdminComment and Comment whole, since blanks stand in them."""
        shown = self.run("scontrol", "show", "job", key, uid=0)
        assert shown.code == 0, shown.said
        fields: dict[str, str] = {}
        for line in shown.printed.splitlines():
            name, _, value = line.strip().partition("=")
            if name in ("AdminComment", "Comment"):
                fields[name] = value
            else:
                fields |= dict(word.split("=", 1) for word in line.split() if "=" in word)
        return fields

    def until(self, is_so: str, *argv: str, within_s: int = 30) -> str:
        """Ask until a text stands in the answer."""
        told: list[str] = []

        def is_told() -> bool:
            told[:] = [self.run(*argv, uid=0).printed]
            return is_so in told[0]

        if not awaited(is_told, within_s):
            raise AssertionError(f"no {is_so!r} within {within_s} s: {told}\n{self.logs()}")
        return told[0]

    def logs(self) -> str:
        paths = [self.folder / name for name in LOGS]
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in paths if path.exists()
        )

    def wait_until_up(self) -> None:
        by_s = self.clock.monotonic_s() + UP_S
        while self.init() is None or "idle" not in self.run("sinfo", "-h", "-o", "%t", uid=0).printed:
            if self.process.poll() is not None or self.clock.monotonic_s() > by_s:
                raise NotUp(f"Slurm is not up\n{self.logs()}")
            self.clock.sleep(0.1)


def missing() -> list[str]:
    """What has to be installed and is not."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


def loader(name: str, folder: Path = PLUGINS) -> str:
    """A file that Slurm loads, with another folder in the place of the installed one."""
    text = (PLUGINS / name).read_text()
    assert "/usr/lib/outrider/slurm/" in text
    return text.replace("/usr/lib/outrider/slurm/", f"{folder}/")


def remove_leftovers() -> None:
    """Take away the folders of processes that were killed; what ran there has ended with them."""
    for folder in Path("/tmp").glob("of-*-*"):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def site(
    *, tree: Path | None = None, files: Mapping[str, str] | None = None, more: str = ""
) -> Iterator[Site]:
    """Up on entry, gone on exit. `files` lie beside slurm.conf, `more` is added to it."""
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=f"of-{os.getpid()}-", dir="/tmp"))
    try:
        _lay_out(folder, tree, files or {}, more.replace("{folder}", str(folder)))
        start = START.format(path=PATH, tree=tree or "", folder=folder, plugins=PLUGINS)
        argv = [
            "setpriv",
            "--pdeathsig=KILL",
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
        with (folder / "munge" / "start").open("wb") as out, subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0,
            env={"PATH": PATH},
        ) as process:  # fmt: skip
            made = Site(folder=folder, process=process)
            try:
                made.wait_until_up()
                yield made
            finally:
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(folder: Path, tree: Path | None, files: Mapping[str, str], more: str) -> None:
    folder.chmod(0o755)
    for name, owner, mode in (
        ("state", SLURM_USER, 0o755),
        ("munge", 0, 0o755),
        ("spool", 0, 0o755),
        ("jobs", 0, 0o1777),
    ):
        (folder / name).mkdir()
        os.chown(folder / name, owner, owner)
        (folder / name).chmod(mode)
    (folder / "munge" / "key").write_bytes(os.urandom(1024))
    (folder / "munge" / "key").chmod(0o400)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, more=more))
    (folder / "cgroup.conf").write_text("" if tree is None else "CgroupPlugin=disabled\n")
    for name, text in files.items():
        (folder / name).write_text(text)
