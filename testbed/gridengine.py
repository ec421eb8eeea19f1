"""A private Grid Engine on a cluster of hosts: a head, nodes, and a server of images."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Unpack
from xml.etree import ElementTree

from testbed import gridengineconf as conf
from testbed.batchcluster import BOOT_S, HEAD, IMAGES, BatchCluster, BatchOptions, missing_tools, plain_file
from testbed.cluster import WAIT_S
from testbed.commands import PATH
from testbed.host_maker import Folder, InitialFile
from testbed.people import USERS
from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.base.clock import Clock

ROOT, CELL = "/var/lib/gridengine", "default"
COMMON = f"{ROOT}/{CELL}/common"
PROGRAMS = "/usr/lib/gridengine"
SPOOL = "/var/spool/gridengine"
DAEMONS = {"sge_qmaster": f"{SPOOL}/qmaster/qmaster.pid", "sge_execd": f"{SPOOL}/execd/$(hostname)/execd.pid"}
# Of sge_conf(5): what the commands need to know, and what Debian's wrappers would look up each time.
VARIABLES = {"SGE_ROOT": ROOT, "SGE_CELL": CELL, "SGE_ARCH": "lx-amd64"}
FINISHED = "finished"
# A number of a process may be another one's after a reboot.
SIGNALLED = 'read -r pid <"$1" && [ "$(cat "/proc/$pid/comm")" = "$2" ] && kill -s "$3" "$pid"'
SPOOLED = f"""set -e
[ ! -e {SPOOL}/spooldb/sge ] || exit 0
{PROGRAMS}/spoolinit berkeleydb libspoolb {SPOOL}/spooldb init
{PROGRAMS}/spooldefaults configuration {conf.FOLDER}/global
{PROGRAMS}/spooldefaults complexes {conf.TEMPLATES}/util/resources/centry
{PROGRAMS}/spooldefaults usersets {conf.TEMPLATES}/util/resources/usersets
{PROGRAMS}/spooldefaults managers sgeadmin
"""


class GridEngineCluster(BatchCluster):
    """`with GridEngineCluster(nodes=2) as cluster: job = cluster.qsub("#!/bin/sh\\nhostname\\n")`."""

    kind = "gridengine"

    def __init__(
        self,
        *,
        nodes: int,
        configuration: Mapping[str, str] | None = None,
        scheduler: Mapping[str, str] | None = None,
        queues: Mapping[str, str] | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        """
        `configuration`, `scheduler` and `queues` are settings of sge_conf(5), sched_conf(5) and (of
        both queues) queue_conf(5) that go over the testbed's own; `files` as for any cluster.
        """
        self._configuration = {**conf.CONFIGURATION, **(configuration or {})}
        self._scheduler = {**conf.SCHEDULER, **(scheduler or {})}
        self._queues = dict(queues or {})
        options["users"] = (*options.get("users", USERS), conf.ACCOUNT)
        super().__init__(nodes=nodes, **options)

    @classmethod
    def attached(cls, name: str, clock: Clock | None = None) -> GridEngineCluster:
        cluster = super().attached(name, clock)
        cluster._configuration, cluster._scheduler, cluster._queues = {}, {}, {}
        return cluster

    @property
    def version(self) -> str:
        """Grid Engine's own, such as 8.1.9."""
        return self.record.notes["version"]

    @property
    def system(self) -> str:
        return f"Grid Engine {self.version}"

    def command(
        self,
        host: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
    ) -> tuple[list[str], dict[str, str]]:
        found = {"PATH": f"{PROGRAMS}:{PATH}", **VARIABLES, **(environment or {})}
        return super().command(host, argv, user=user, environment=found)

    def files(self, host: str) -> list[InitialFile]:
        admin = self.people.of("sgeadmin")
        objects = conf.objects(self.nodes, self._configuration)
        bootstrap = (conf.TEMPLATES / "default-bootstrap").read_text()
        cell = {f"{COMMON}/bootstrap": bootstrap, f"{COMMON}/act_qmaster": f"{HEAD}\n"}
        return [
            *(
                InitialFile(path=path, content=text.encode(), uid=admin.uid, gid=admin.gid)
                for path, text in cell.items()
            ),
            plain_file(conf.SAVE, conf.SAVE_TEXT),
            *(plain_file(path, text) for path, text in objects.items() if host == HEAD),
            *super().files(host),
        ]

    def folders(self) -> list[Folder]:
        admin = self.people.of("sgeadmin")
        paths = ["", "/qmaster", "/qmaster/job_scripts", "/spooldb", "/execd"]
        return [
            *super().folders(),
            *(Folder(path=f"{SPOOL}{path}", uid=admin.uid, gid=admin.gid) for path in paths),
            *(Folder(path=path, uid=admin.uid, gid=admin.gid) for path in (f"{ROOT}/{CELL}", COMMON)),
        ]

    def boot(self, hosts: Sequence[str]) -> None:
        super().boot(hosts)
        if HEAD in hosts:
            is_new = self.run(HEAD, ["ls", f"{SPOOL}/spooldb/sge"], check=False).returncode != 0
            if is_new:
                self.run(HEAD, ["/bin/sh", "-c", SPOOLED], user="sgeadmin")
            self.start_qmaster()
            if is_new:
                self._configure()
                told = self.run(HEAD, ["qconf", "-help"]).stdout
                # The first line is "SGE 8.1.9".
                self._record(notes={**self.record.notes, "version": told.split()[1]})
        nodes = [host for host in hosts if host not in (HEAD, IMAGES)]
        if nodes:
            self.run_everywhere(nodes, self.starting("sge_execd"))
            self.wait_for("the nodes to be heard", lambda: self.are_heard(nodes), BOOT_S, self.logs)

    def is_qmaster_up(self) -> bool:
        return self.run(HEAD, ["qconf", "-sh"], check=False).returncode == 0

    def queue_states(self) -> dict[str, str]:
        """
        Each queue instance's state, such as {"all.q@n1": ""}, or S for one that is suspended by its
        subordination. Raises TestbedError if one is in error, which is nobody's wish, ever.
        """
        states = self._queue_states()
        if any("E" in state for state in states.values()):
            shown = self.run(HEAD, ["qstat", "-f", "-explain", "E", "-u", "*"], check=False).stdout
            raise TestbedError(f"queues are in error:\n{shown}\n{self.logs()}")
        return states

    def node_states(self) -> dict[str, str]:
        """Each node's state: idle, busy, unheard, error, disabled."""
        if not self.is_daemon_running(HEAD, "sge_qmaster"):
            return {}
        found: dict[str, str] = {}
        busy = {node for node, jobs in self.jobs_on().items() if jobs}
        for instance, state in self._queue_states().items():
            node = instance.partition("@")[2]
            words = {"u": "unheard", "E": "error", "d": "disabled"}
            told = next((word for letter, word in words.items() if letter in state), None)
            found[node] = told or found.get(node) or ("busy" if node in busy else "idle")
        return found

    def jobs_on(self) -> dict[str, list[str]]:
        """The jobs that each node has."""
        found: dict[str, list[str]] = {node: [] for node in self.nodes}
        for job in self._qstat("-f", "-u", "*", "-g", "t").iter("Queue-List"):
            node = (job.findtext("name") or "").partition("@")[2]
            found[node] += [each.findtext("JB_job_number") or "" for each in job.iter("job_list")]
        return found

    def are_heard(self, nodes: Sequence[str]) -> bool:
        """Whether the qmaster has a report of their load; they may be busy or disabled."""
        states = self._queue_states()
        found = [states.get(f"{queue}@{node}", "u") for node in nodes for queue in conf.QUEUES]
        return not any("u" in state for state in found)

    def wait_idle(self, timeout_s: float = BOOT_S) -> None:
        """Until all nodes are heard and have no jobs."""
        self.wait_for(
            "all nodes to be idle",
            lambda: set(self.node_states().values()) == {"idle"} and self.are_heard(self.nodes),
            timeout_s,
            self.logs,
        )

    def logs(self, lines: int = 30) -> str:
        """The ends of the daemons' messages and what the queues do, for an error's text."""
        told = []
        places = [(HEAD, "qmaster"), *((node, f"execd/{node}") for node in self.nodes[:2])]
        for host, place in places:
            argv = ["tail", "-n", str(lines), f"{SPOOL}/{place}/messages"]
            told.append(f"--- {place} on {host}\n{self.run(host, argv, check=False).stdout}")
        shown = self.run(HEAD, ["timeout", "10", "qstat", "-f", "-u", "*", "-explain", "aE"], check=False)
        return f"{shown.stdout}\n" + "".join(told)

    def starting(self, daemon: str) -> list[str]:
        """The command that starts sge_qmaster or sge_execd on its host."""
        variables = [f"{key}={value}" for key, value in VARIABLES.items()]
        return ["env", *variables, f"{PROGRAMS}/{daemon}"]

    def start_qmaster(self) -> None:
        self.run(HEAD, self.starting("sge_qmaster"))
        self.wait_for("the qmaster to answer", self.is_qmaster_up, BOOT_S, self.logs)

    def kill_qmaster(self, signal: str = "KILL") -> None:
        self._end(HEAD, "sge_qmaster", signal)

    def restart_qmaster(self) -> None:
        """
        Stop and start it as an administrator would; jobs go on. Nodes are heard again only up to
        30 s later, as anywhere, if their execds are not restarted, too.
        """
        self.kill_qmaster("TERM")
        self.start_qmaster()

    def start_execd(self, node: str) -> None:
        self.run(node, self.starting("sge_execd"))
        # It has written its number a little later, by which it is known.
        self.wait_for(f"the execd of {node}", lambda: self.is_daemon_running(node, "sge_execd"), BOOT_S)

    def kill_execd(self, node: str, signal: str = "KILL") -> None:
        """
        Its jobs go on. Of one that ends while there is no execd the next one tells at once; of one
        that ends later, only within a minute, as anywhere.
        """
        self._end(node, "sge_execd", signal)

    def restart_execd(self, node: str) -> None:
        self.kill_execd(node, "TERM")
        self.start_execd(node)

    def restart_execds(self) -> None:
        for node in self.nodes:
            self.restart_execd(node)
        self.wait_for("the nodes to be heard", lambda: self.are_heard(self.nodes), BOOT_S, self.logs)

    def is_daemon_running(self, host: str, daemon: str) -> bool:
        """Whether sge_qmaster, sge_execd lives on a host."""
        return self._signal_daemon(host, daemon, "0")

    def configure(self, kind: str, text: str) -> None:
        """Put an object in the place of the one that there is, by `qconf -M<kind> FILE`: q, p, c, conf …"""
        # A file of the global configuration has to have its name.
        path = f"{conf.FOLDER}/changed/global"
        self.write(HEAD, path, text)
        self.run(HEAD, ["qconf", f"-M{kind}", path])

    def set_global(self, **values: str) -> None:
        """Other values in the global configuration, such as prolog, jsv_url or load_report_time."""
        # A blank within a list of words would belong to the next one.
        text = re.sub(r", *\\\n *", ",", self.run(HEAD, ["qconf", "-sconf"]).stdout).replace("\\\n", " ")
        shown = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        self.configure("conf", conf.changed(shown, values))

    def set_queue(self, queue: str, **values: str) -> None:
        """Other values of a queue, such as starter_method."""
        words = [["qconf", "-rattr", "queue", key, value, queue] for key, value in values.items()]
        self.run(HEAD, ["/bin/sh", "-ec", "\n".join(map(shlex.join, words))])

    def qsub(self, script: str, *options: str, user: str = USERS[0]) -> str:
        """Submit a script as a user, by standard input; gives the job's number, also an array's."""
        done = self.run(HEAD, ["qsub", "-terse", *options], user=user, given=script)
        return done.stdout.strip().partition(".")[0]

    def job_state(self, job: str) -> str:
        """
        Such as qw, hqw, r, Rr, Eqw, or several of them for an array, in order; `finished`; empty for a
        job that is not known.
        """
        found = {
            each.findtext("state") or ""
            for each in self._qstat("-u", "*", "-s", "prs").iter("job_list")
            if each.findtext("JB_job_number") == job
        }
        if found:
            return " ".join(sorted(found))
        return FINISHED if self.accounts(job) else ""

    def accounts(self, job: str) -> list[dict[str, str]]:
        """What qacct tells of a job's ends, one for each task and each time that it was requeued."""
        shown = self.run(HEAD, ["qacct", "-j", job], check=False)
        if shown.returncode != 0:
            return []
        parts = re.split(r"^=+$", shown.stdout, flags=re.MULTILINE)
        pairs = [[line.split(None, 1) for line in part.splitlines() if line.strip()] for part in parts]
        return [{pair[0]: pair[1].strip() for pair in part if len(pair) == 2} for part in pairs if part]

    def wait_job(self, job: str, state: str = FINISHED, timeout_s: float = WAIT_S) -> None:
        """Until the job is in the state. Raises TestbedError with what Grid Engine knows of it."""
        self.wait_for(
            f"job {job} to be {state}",
            lambda: self.job_state(job) == state,
            timeout_s,
            lambda: self.run(HEAD, ["qstat", "-j", job], check=False).stdout + self.logs(),
        )

    def _queue_states(self) -> dict[str, str]:
        found = self._qstat("-f").iter("Queue-List")
        return {each.findtext("name") or "": each.findtext("state") or "" for each in found}

    def _qstat(self, *options: str) -> ElementTree.Element:
        done = self.run(HEAD, ["qstat", *options, "-xml"], check=False)
        if done.returncode != 0:
            return ElementTree.Element("nothing")
        return ElementTree.fromstring(done.stdout)

    def _configure(self) -> None:
        """The objects that docs/reference/adapters.md asks an administrator for, and the nodes."""
        shown = {
            word: self.run(HEAD, ["qconf", f"-s{word}"]).stdout.replace("\\\n", " ")
            for word in ("c", "sconf", "q")
        }
        queue = conf.changed(shown["q"], {**conf.WORK, **self._queues})
        for name, text in {
            "complexes": f"{shown['c']}{conf.COMPLEX}\n",
            "scheduler": conf.changed(shown["sconf"], self._scheduler),
            conf.WORK_QUEUE: queue,
            conf.RESERVATION_QUEUE: conf.changed(queue, {**conf.RESERVATIONS, **self._queues}),
            conf.PARTS_QUEUE: conf.changed(queue, {**conf.PARTS, **self._queues}),
        }.items():
            self.write(HEAD, f"{conf.FOLDER}/{name}", text)
        words = conf.additions(HEAD, self.nodes)
        self.run(HEAD, ["/bin/sh", "-ec", "\n".join(f"qconf {each}" for each in words)])

    def _end(self, host: str, daemon: str, signal: str) -> None:
        if self._signal_daemon(host, daemon, signal):
            self.wait_for(f"the end of {daemon} on {host}", lambda: not self.is_daemon_running(host, daemon))

    def _signal_daemon(self, host: str, daemon: str, signal: str) -> bool:
        argv = [
            "/bin/sh",
            "-c",
            SIGNALLED,
            "sh",
            DAEMONS[daemon].replace("$(hostname)", host),
            daemon,
            signal,
        ]
        return self.run(host, argv, check=False).returncode == 0


def missing() -> str | None:
    """What this machine lacks for a cluster with Grid Engine; None if it lacks nothing."""
    if lacking := missing_tools():
        return lacking
    wanted = [f"{PROGRAMS}/{name}" for name in ("sge_qmaster", "sge_execd", "qsub")]
    if not all(map(os.path.exists, [*wanted, f"{conf.TEMPLATES}/default-bootstrap"])):
        return (
            "no Grid Engine on this machine: apt install gridengine-master gridengine-exec gridengine-client"
        )
    return None
