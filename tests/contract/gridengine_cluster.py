"""A private Grid Engine: real daemons on hosts that are namespaces, optionally in a faster time.

Everything is below /media of a mount namespace of its own, and every process dies with the one
that made the cluster, so that nothing is left even after a kill.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed import hurry, line_runner
from testbed.cluster import REPOSITORY
from testbed.waiting import awaited

NODES = ("n1", "n2", "n3", "n4")
HEAD = "head"
SLOTS = 2
DURATION_OFFSET_S = 5
PEOPLE = {"alice": 61001, "bob": 61002, "outrider": 61003}
PROGRAMS = Path("/usr/lib/gridengine")
TEMPLATES = Path("/usr/share/gridengine")
VARIABLES = {"SGE_ROOT": "/media/root", "SGE_CELL": "default", "SGE_ARCH": "lx-amd64"}
COMMAND_S = 60.0
POLL_S = 0.05
SCHEDULED_EVERY_S = 4.0
NEEDED = (
    *(PROGRAMS / name for name in ("sge_qmaster", "sge_execd", "qsub")),
    TEMPLATES / "default-bootstrap",
)
INIT = "mount -t tmpfs -o size=256m tmpfs /media && echo ready; while :; do sleep 3600 & wait $!; done"
HOST = """
hostname "$1"
for name in hosts passwd group nsswitch.conf; do mount --bind "/media/etc/$name" "/etc/$name"; done
# A repository in /tmp stays where it is.
case $2 in /tmp/*) mkdir -p /media/repository; mount --bind "$2" /media/repository ;; esac
mount -t tmpfs tmpfs /tmp; chmod 1777 /tmp; ip link set lo up
case $2 in /tmp/*) mkdir -p "$2"; mount --bind /media/repository "$2" ;; esac
echo ready; while :; do sleep 3600 & wait $!; done
"""


class ClusterError(Exception):
    """The private cluster does not do what it should; the message quotes what it said."""


def missing() -> str:
    """What of it this machine does not have, or nothing."""
    absent = [str(path) for path in NEEDED if not path.exists()]
    absent += [name for name in ("ip", "nsenter", "unshare", "setpriv", "gcc") if shutil.which(name) is None]
    if os.geteuid() != 0:
        absent.append("root's rights")
    return " ".join(absent)


class Cluster:
    """A qmaster on `head` and four execution hosts. Use in a with statement."""

    def __init__(self, factor: int = 1) -> None:
        """`factor` is how many of the daemons' seconds pass in one."""
        self.factor = factor
        self.origin_s = int(time.clock_gettime(time.CLOCK_REALTIME))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._pids: dict[str, int] = {}
        self._runners: dict[str, subprocess.Popen[str]] = {}
        self.has_lost_nodes = False
        """Since its qmaster was started."""
        self.touched: set[str] = set()
        """Nodes that were taken away or drained, and are to be repaired."""

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def down(self) -> None:
        for process in reversed(self._processes.values()):
            process.kill()
            # Waits, and closes its pipes.
            with process:
                pass
        self._processes.clear()
        self._runners.clear()

    @property
    def disk(self) -> Path:
        """What the hosts call /media, seen from outside."""
        return Path("/proc") / str(self._pids["site"]) / "root" / "media"

    def now_s(self) -> int:
        now_s = time.clock_gettime(time.CLOCK_REALTIME)
        return int(self.origin_s + (now_s - self.origin_s) * self.factor)

    def pass_time(self, seconds: float) -> None:
        """Jobs are started, and time passes: never are they started between two calls of a test."""
        while seconds > 0:
            self.schedule()
            time.sleep(min(seconds, SCHEDULED_EVERY_S) / self.factor)
            seconds -= SCHEDULED_EVERY_S

    def stand_still(self, seconds: float) -> None:
        """Time passes, and no job is started."""
        time.sleep(seconds / self.factor)

    def schedule(self) -> None:
        self.run(["qconf", "-tsm"])

    def attempt(
        self, argv: Sequence[str], *, host: str = HEAD, user: str = "root", timeout_s: float = COMMAND_S
    ) -> tuple[int, str, str]:
        """Exit status, output and error of a command. `TimeoutError` if it takes too long."""
        process = self._runners.get(host) or self._new_runner(host)
        assert process.stdin is not None
        assert process.stdout is not None
        path = f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"
        plain = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "USER": user, "PATH": path, "HOME": f"/media/home/{user}"}
        uid = None if user == "root" else PEOPLE.get(user) or pwd.getpwnam(user).pw_uid
        told = {"argv": list(argv), "uid": uid, "variables": plain | VARIABLES, "timeout_s": timeout_s}
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        done = json.loads(process.stdout.readline())
        if done["status"] is None:
            raise TimeoutError(f"{' '.join(argv)} takes longer than {timeout_s} s")
        return done["status"], done["output"], done["error"]

    def run(self, argv: Sequence[str], *, host: str = HEAD, user: str = "root", check: bool = True) -> str:
        status, output, error = self.attempt(argv, host=host, user=user)
        if check and status != 0:
            raise ClusterError(f"{' '.join(argv)} on {host}: {output.strip()} {error.strip()}")
        return output

    def _new_runner(self, host: str) -> subprocess.Popen[str]:
        words = [*self.entering(host), *line_runner.command()]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd="/")
        self._processes[f"runner of {host}"] = self._runners[host] = process
        return process

    def entering(self, host: str = HEAD) -> list[str]:
        """What begins a command on a host."""
        words = ["nsenter", "-t", str(self._pids[host]), "-n", "-u", "-m", "-p", "--wdns=/media", "--"]
        return [*words, "setpriv", "--pdeathsig=KILL"]

    def write(self, path: str, text: str) -> str:
        """A file below /media; the name that hosts know it by."""
        target = self.disk / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return f"/media/{path}"

    def wait_for(self, what: str, is_so: Callable[[], bool], within_s: float = 20.0) -> None:
        if not awaited(is_so, within_s, POLL_S):
            shown = self.run(["qstat", "-f", "-u", "*"], check=False)
            raise ClusterError(f"waited {within_s} s for {what}\n{shown}\n{self.logs()}")

    def logs(self) -> str:
        files = sorted(self.disk.glob("spool/**/messages"))
        return "\n".join(f"--- {each}\n{each.read_text()[-2000:]}" for each in files)

    def start_execd(self, node: str) -> None:
        self.run([*self._hurried(), str(PROGRAMS / "sge_execd")], host=node)

    def crash(self, node: str) -> None:
        """Ends everything on a node at once, but what lets tests in."""
        self.has_lost_nodes = True
        self.touched.add(node)
        self.run(["sh", "-c", CRASH], host=node, check=False)

    def start_qmaster(self) -> None:
        self.run([*self._hurried(), str(PROGRAMS / "sge_qmaster")])
        self.wait_for("an answer of the qmaster", self._answers)

    def restart_qmaster(self) -> None:
        self.run(["qconf", "-km"])
        self.wait_for("the qmaster's end", lambda: "sge_qmaster" not in self.run(["ps", "ax"]))
        self.start_qmaster()
        self.has_lost_nodes = False

    def _answers(self) -> bool:
        return "head" in self.run(["qconf", "-sh"], check=False)

    def _hurried(self) -> list[str]:
        if self.factor == 1:
            return []
        return ["env", *hurry.variables("/media/hurry.so", self.factor, self.origin_s)]

    def _make(self) -> None:
        self._start("site", ["unshare", "--net", "--mount", "--pid"], INIT)
        for folder in ("etc", "home", "spool/qmaster/job_scripts", "spool/spooldb", "spool/execd", "bin"):
            (self.disk / folder).mkdir(parents=True)
        (self.disk / "root/default/common").mkdir(parents=True)
        self._write_identities()
        if self.factor != 1:
            (self.disk / "hurry.so").write_bytes(hurry.compiled())
        site = ["nsenter", "-t", str(self._pids["site"]), "-m", "--"]
        words = [*site, "unshare", "--net", "--uts", "--mount", "--pid"]
        self._batch("site", ["link add switch type bridge", "link set switch up"])
        for number, host in enumerate((HEAD, *NODES), 1):
            self._start(host, words, HOST)
            peer = f"peer name eth0 netns {self._pids[host]}"
            self._batch("site", [f"link add {host} type veth {peer}", f"link set {host} master switch up"])
            self._batch(host, [f"addr add 10.96.0.{number}/24 dev eth0", "link set eth0 up"])
        self._spool()
        self.start_qmaster()
        self._configure()

    def _start(self, name: str, words: Sequence[str], script: str) -> None:
        ends = ["--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        run = ["sh", "-c", script, "host", name, str(REPOSITORY)]
        argv = ["setpriv", "--pdeathsig=KILL", *words, *ends, *run]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._processes[name] = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise ClusterError(f"host {name} cannot be made")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self._pids[name] = int(children[0])

    def _batch(self, host: str, lines: Sequence[str]) -> None:
        words = ["nsenter", "-t", str(self._pids[host]), "-n", "--", "ip", "-batch", "-"]
        # The veth's peer is named by the number of a process outside.
        subprocess.run(words, input="\n".join(lines), text=True, check=True, timeout=COMMAND_S)

    def _write_identities(self) -> None:
        hosts = [f"10.96.0.{number} {host}\n" for number, host in enumerate((HEAD, *NODES), 1)]
        self.write("etc/hosts", "127.0.0.1 localhost\n" + "".join(hosts))
        people = [f"{name}:x:{uid}:{uid}::/media/home/{name}:/bin/sh\n" for name, uid in PEOPLE.items()]
        self.write("etc/passwd", Path("/etc/passwd").read_text() + "".join(people))
        groups = [f"{name}:x:{uid}:\n" for name, uid in PEOPLE.items()]
        self.write("etc/group", Path("/etc/group").read_text() + "".join(groups))
        self.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
        for name, uid in PEOPLE.items():
            (self.disk / "home" / name).mkdir()
            os.chown(self.disk / "home" / name, uid, uid)

    def _spool(self) -> None:
        for name in ("bin", "lib", "utilbin"):
            (self.disk / "root" / name).symlink_to(f"/var/lib/gridengine/{name}")
        self.write("root/util/arch", ARCHITECTURE)
        (self.disk / "root/util/arch").chmod(0o755)
        bootstrap = (TEMPLATES / "default-bootstrap").read_text()
        self.write(
            "root/default/common/bootstrap", bootstrap.replace("/var/spool/gridengine", "/media/spool")
        )
        self.write("root/default/common/act_qmaster", f"{HEAD}\n")
        plain = (TEMPLATES / "default-configuration").read_text()
        plain = plain.replace("/var/spool/gridengine", "/media/spool")
        self.write("etc/configuration", changed(plain, CONFIGURATION))
        self.run(["chown", "-R", "sgeadmin:sgeadmin", "/media/spool", "/media/root/default"])
        for argv in (
            ["spoolinit", "berkeleydb", "libspoolb", "/media/spool/spooldb", "init"],
            ["spooldefaults", "configuration", "/media/etc/configuration"],
            ["spooldefaults", "complexes", str(TEMPLATES / "util/resources/centry")],
            ["spooldefaults", "usersets", str(TEMPLATES / "util/resources/usersets")],
            ["spooldefaults", "managers", "sgeadmin"],
        ):
            self.run(argv, user="sgeadmin")

    def _configure(self) -> None:
        """The objects that docs/reference/adapters.md asks an administrator for, and test users' hosts."""
        lines = [f"qconf -as {HEAD}", "qconf -am outrider", "qconf -au outrider arusers"]
        lines += [f"qconf -ah {node}; qconf -as {node}" for node in NODES]
        lines += [
            f"qconf -A{option} {self.write(f'etc/{name}', text)}" for option, name, text in self._objects()
        ]
        complexes = self.run(["qconf", "-sc"]) + "outrider_reservation orsv BOOL == FORCED NO FALSE 0\n"
        lines += [f"qconf -Mc {self.write('etc/complexes', complexes)}"]
        scheduler = changed(self.run(["qconf", "-ssconf"]), SCHEDULER)
        lines += [f"qconf -Msconf {self.write('etc/scheduler', scheduler)}"]
        queue = changed(self.run(["qconf", "-sq"]), QUEUE)
        ours = {"slots": str(2 * SLOTS), "complex_values": "outrider_reservation=TRUE"}
        parts = changed(queue, {**ours, "qname": "parts.q"})
        whole = {**ours, "qname": "ar.q", "subordinate_list": "all.q=1,parts.q=1"}
        reserved = changed(queue, whole)
        lines += [
            f"qconf -Aq {self.write('etc/all.q', queue)}",
            f"qconf -Aq {self.write('etc/parts.q', parts)}",
            f"qconf -Aq {self.write('etc/ar.q', reserved)}",
        ]
        lines += [f"qconf -mattr queue subordinate_list ar.q=1 {name}" for name in ("all.q", "parts.q")]
        self.run(["sh", "-ec", "\n".join(lines)])
        for node in NODES:
            self.start_execd(node)
        self.wait_for(
            "all execution hosts", lambda: self.run(["qconf", "-sel"], check=False).count("\n") == 4
        )
        self.run(["qconf", "-aattr", "hostgroup", "hostlist", " ".join(NODES), "@allhosts"])
        self.wait_for("load reports", self.is_whole)

    def _objects(self) -> list[tuple[str, str, str]]:
        environment = (TEMPLATES / "util/resources/pe/make").read_text()
        two = changed(
            environment, {"pe_name": "two", "allocation_rule": str(SLOTS), "control_slaves": "FALSE"}
        )
        one = changed(environment, {"pe_name": "one", "allocation_rule": "1", "control_slaves": "FALSE"})
        saving = self.write("bin/save", SAVE)
        (self.disk / "bin/save").chmod(0o755)
        checkpoint = {**CHECKPOINT, "migr_command": f"{saving} $job_pid"}
        kept = "".join(f"{key} {value}\n" for key, value in checkpoint.items())
        return [
            ("hgrp", "allhosts", "group_name @allhosts\nhostlist NONE\n"),
            ("p", "make", environment),
            ("p", "two", two),
            ("p", "one", one),
            ("ckpt", "save", kept),
        ]

    def set_global(self, **values: str) -> None:
        """Other values in the global configuration; `NONE` takes one away."""
        text = changed(self.run(["qconf", "-sconf"]).replace("\\\n", " "), values)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        self.run(["qconf", "-Mconf", self.write("etc/global/global", "\n".join(lines) + "\n")])

    def is_whole(self) -> bool:
        """Whether every node reports and no queue is in trouble."""
        shown = self.run(["qstat", "-f"], check=False)
        lines = [line.split() for line in shown.splitlines() if "@" in line]
        return len(lines) == 3 * len(NODES) and all(len(line) == 5 and line[3] != "-NA-" for line in lines)


CONFIGURATION = {
    "load_report_time": "00:00:05",
    "max_unheard": "00:00:20",
    "reschedule_unknown": "00:00:30",
    "max_advance_reservations": "0",
    "finished_jobs": "1000",
    "execd_params": "ENABLE_ADDGRP_KILL=true",
    # Debian's wrapper of that name finds out the architecture first, as below.
    "shepherd_cmd": str(PROGRAMS / "sge_shepherd"),
}
# Each shepherd asks for it, twice: the original starts a dozen processes to answer, a compiler among them.
ARCHITECTURE = f"#!/bin/sh\necho {VARIABLES['SGE_ARCH']}\n"
SCHEDULER = {
    "schedule_interval": "1:0:0",
    "flush_submit_sec": "0",
    "flush_finish_sec": "0",
    "max_reservation": "100",
    "job_load_adjustments": "NONE",
    "params": f"DURATION_OFFSET={DURATION_OFFSET_S}",
}
QUEUE = {
    "qname": "all.q",
    "hostlist": "@allhosts",
    "slots": str(SLOTS),
    "pe_list": "make two one",
    "ckpt_list": "save",
    "load_thresholds": "NONE",
    "rerun": "TRUE",
    "shell": "/bin/sh",
    "shell_start_mode": "unix_behavior",
}
CHECKPOINT = {
    "ckpt_name": "save",
    "interface": "application-level",
    "ckpt_command": "NONE",
    "migr_command": "NONE",
    "restart_command": "NONE",
    "clean_command": "NONE",
    "ckpt_dir": "/tmp",
    "signal": "NONE",
    "when": "xsr",
}
# The runner is the shell's parent; a shepherd's processes are not its children.
CRASH = "for p in $(ps -e -o pid=); do case $p in 1|$$|$PPID) ;; *) kill -KILL $p 2>/dev/null;; esac; done"
SAVE = '#!/bin/sh\nkill -s KILL -- "-$1"\n'


def changed(text: str, values: dict[str, str]) -> str:
    """A configuration of lines `key value` with other values, new keys at its end."""
    lines = [line for line in text.splitlines() if line.split(None, 1)[:1] and line.split()[0] not in values]
    return "\n".join([*lines, *(f"{key} {value}" for key, value in values.items())]) + "\n"
