"""What the doctor looks at on the head node. Each check is independent of the others."""

from __future__ import annotations

import glob
import os
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.errors import CommandError
from outrider.cli.installing.common.findings import Check, Finding, fault, of_rights, of_states, ok, warning
from outrider.cli.installing.common.placing import Json, carry_out
from outrider.cli.installing.common.running import Runner
from outrider.cli.installing.slurm import headfiles
from outrider.cli.installing.slurm.facts import Facts
from outrider.cli.installing.slurm.plan import Plan
from outrider.cli.installing.slurm.slurmconf import settings
from outrider.cli.installing.slurm.timeouts import timeouts

if TYPE_CHECKING:
    from outrider.service.answers import Status

HERE = "head"
OLDEST = (22, 5)
APPLY = "outrider init slurm --apply"
SERVICE_S = 2
SETTLES_S = 10
PAUSE_S = 0.5
_NEEDED = ("JobSubmitPlugins", "Prolog", "Epilog", "TaskProlog")
"""Without one of these jobs do not get their images; what else is in the plan is a choice of the site's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadChecks:
    """All checks, with what they look at."""

    facts: Facts
    plan: Plan
    files: Sequence[Json]
    runner: Runner
    socket: str

    def all(self) -> Sequence[Check]:
        return (
            self.slurm, self.plugins, self.lines, self.lua, self.shipped, self.key,
            self.configuration, self.munge, self.service, self.limits, self.deployment,
        )  # fmt: skip

    def slurm(self) -> list[Finding]:
        if not self.facts.version:
            return [
                fault(
                    HERE, "slurm", "scontrol is not here: this is no head node of Slurm's, or PATH lacks it"
                )
            ]
        if self.facts.version < OLDEST:
            return [fault(HERE, "slurm", f"{self.facts.version_text} is older than 22.05, which is needed")]
        if self.facts.silence:
            return [fault(HERE, "slurm", f"the controller does not answer: {self.facts.silence}")]
        return [ok(HERE, "slurm", f"{self.facts.version_text}, the controller answers")]

    def plugins(self) -> list[Finding]:
        """Whether Slurm was built with Lua."""
        folders = self.facts.running.get("plugindir", "").split(":")
        if not folders[0]:
            return []
        wanted = ["job_submit_lua.so"]
        if any(each.endswith("lua") for each in self.facts.site.words("CliFilterPlugins")):
            wanted.append("cli_filter_lua.so")
        missing = [name for name in wanted if not any(os.path.exists(f"{each}/{name}") for each in folders)]
        if missing:
            return [
                fault(HERE, "lua", f"{', '.join(missing)} not in {':'.join(folders)}: install Slurm with Lua")
            ]
        return [ok(HERE, "lua", f"{', '.join(wanted)} in {':'.join(folders)}")]

    def lines(self) -> list[Finding]:
        """What slurm.conf says, and what the controller goes by."""
        written = {
            each.key.lower(): each.value for file in self.facts.site.files for each in settings(file.present)
        }
        found = []
        for key, value in self.plan.settings:
            running = self.facts.running.get(key.lower(), "")
            told = fault if key in _NEEDED else warning
            if written.get(key.lower()) != value:
                found.append(told(HERE, "slurm.conf", f"has no {key}={value}: {APPLY}"))
            elif self.facts.running and not _agree(running, value):
                found.append(
                    told(
                        HERE,
                        "slurm.conf",
                        f"{key} is {running or 'not set'} for the controller: scontrol reconfigure",
                    )
                )
        return found or [ok(HERE, "slurm.conf", f"{len(self.plan.settings)} settings are in force")]

    def lua(self) -> list[Finding]:
        """Whether the filters are in the site's files, and all Lua can be read."""
        edits = [each.path for each in self.plan.edits if each.path.endswith(".lua")]
        found = [fault(HERE, "filter", f"{path} does not call Outrider's filter: {APPLY}") for path in edits]
        compiler = next((each for each in ("luac5.4", "luac5.3", "luac") if self._has(each)), None)
        paths = [f"{self.facts.site.folder}/job_submit.lua", *glob.glob("/usr/lib/outrider/slurm/*.lua")]
        if compiler is None:
            return [
                *found,
                *([] if found else [ok(HERE, "filter", "in job_submit.lua; no luac here to check it")]),
            ]
        for path in filter(os.path.exists, paths):
            done = self.runner.run([compiler, "-p", path])
            if not done.is_good:
                found.append(
                    fault(HERE, "filter", f"{path} is no good Lua, all jobs are refused: {done.reason}")
                )
        return found or [ok(HERE, "filter", f"job_submit.lua calls it, and {compiler} reads all of it")]

    def shipped(self) -> list[Finding]:
        return shipped_findings(self.files, APPLY)

    def key(self) -> list[Finding]:
        return key_findings(HERE, headfiles.KEY)

    def configuration(self) -> list[Finding]:
        return configuration_findings(self.runner)

    def munge(self) -> list[Finding]:
        done = self.runner.run(["munge", "-n"])
        if not done.is_good:
            return [fault(HERE, "munge", f"{done.reason}: start munged")]
        return [ok(HERE, "munge", "answers")]

    def service(self) -> list[Finding]:
        return service_findings(self.socket)

    def limits(self) -> list[Finding]:
        running = self.facts.running
        value = (lambda key: running.get(key.lower(), "")) if running else self.facts.site.value
        found = [warning(HERE, "timeouts", each) for each in timeouts(value)]
        return found or [ok(HERE, "timeouts", "a prolog has its time")]

    def deployment(self) -> list[Finding]:
        return deployment_findings(headfiles.nodes_of(self.facts.site))

    def _has(self, program: str) -> bool:
        return self.runner.run([program, "-v"]).code is not None


def configuration_findings(runner: Runner) -> list[Finding]:
    command = [sys.executable, "-m", "outrider.service", "--check", "--config", headfiles.CONFIG]
    done = runner.run(command, 60)
    if not done.is_good:
        return [fault(HERE, "outriderd.yaml", done.reason)]
    return [ok(HERE, "outriderd.yaml", done.output.strip().rpartition(": ")[2])]


def service_findings(path: str) -> list[Finding]:
    """Whether outriderd answers, and promises."""
    from cachemgr.base.clock import SystemClock
    from outrider.cli.asking.reading import read
    from outrider.cli.connection.client import Client
    from outrider.service.answers import Status

    clock = SystemClock()
    until_s = clock.monotonic_s() + SETTLES_S
    try:
        while True:
            answer = Client(path, clock, timeout_s=SERVICE_S).get("/v1/status")
            status = read(Status, answer)
            # One that was just started has not seen its nodes yet.
            if (status.is_promising and not status.nodes_away) or clock.monotonic_s() > until_s:
                break
            clock.sleep(PAUSE_S)
    except CommandError as error:
        return [fault(HERE, "outriderd", f"{error}: systemctl status outriderd")]
    if not status.is_promising:
        return [warning(HERE, "outriderd", f"answers, but promises nothing: {'; '.join(status.troubles)}")]
    if names := _lacking(path):
        return [
            fault(
                HERE,
                "outriderd",
                f"runs as root without {', '.join(names)}, so users' images and jobs fail: take User=root "
                "and CapabilityBoundingSet= out of its unit (systemctl cat outriderd), then systemctl "
                "restart outriderd",
            )
        ]
    away = f", {status.nodes_away} nodes are away" if status.nodes_away else ""
    told = warning if away else ok
    found = told(HERE, "outriderd", f"{status.version} promises on {status.nodes} nodes{away}")
    return [found, *link_findings(status)]


def link_findings(status: Status) -> list[Finding]:
    """Whether transfers get the rate that promises are made with."""
    return [warning(HERE, "link.rate", status.link_words)] if status.link_words else []


def _lacking(path: str) -> tuple[str, ...]:
    """The rights of root that the service at that socket lacks; none if it cannot be seen."""
    from outrider.service.daemon.capabilities import lacking
    from outrider.service.web.connections.protocol import peer_of

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.connect(path)
        peer = peer_of(connection)
        return () if peer is None else lacking(peer.pid)
    return ()


def deployment_findings(nodes: Sequence[str]) -> list[Finding]:
    from outrider.metadata.notation.hostlists import fold

    known = set(headfiles.deployed())
    missing = [each for each in nodes if each not in known]
    if missing:
        names = fold(missing)
        return [warning(HERE, "nodes", f"{names} have nothing of Outrider: outrider nodes deploy '{names}'")]
    return [ok(HERE, "nodes", f"all {len(nodes)} have been deployed to")]


def shipped_findings(files: Sequence[Json], remedy: str) -> list[Finding]:
    """The files of an installation. What an administrator has edited, or has to keep, is no finding."""
    looked = carry_out({"do": "look", "manifest": headfiles.MANIFEST, "files": list(files)})
    states = dict(looked["files"])
    if states.get(headfiles.CONFIG) in ("edited", "foreign"):
        del states[headfiles.CONFIG]
    states.pop(headfiles.KEY, None)
    too_open = [each for each in looked["too_open"] if each["path"] != headfiles.KEY]
    return [*of_states(HERE, states, remedy), *of_rights(HERE, too_open)]


def key_findings(where: str, path: str) -> list[Finding]:
    """The site's key: who has it controls every node."""
    from cachemgr.base.errors import CacheError
    from cachemgr.network.keys import read_keys

    try:
        about = os.stat(path)
        count = len(read_keys(path))
    except OSError as error:
        return [fault(where, "key", f"{path}: {error.strerror}: {APPLY}")]
    except CacheError as error:
        return [fault(where, "key", str(error))]
    if about.st_mode & 0o077:
        return [
            fault(
                where,
                "key",
                f"{path} can be read by others ({stat.S_IMODE(about.st_mode):04o}): chmod 600 it",
            )
        ]
    return [ok(where, "key", f"{count} in {path}, for its owner alone")]


def _agree(running: str, value: str) -> bool:
    """`105 sec` is 105; and a list of programs, as newer versions show it, has ours in it."""
    return value in (running, running.partition(" ")[0]) or value in running.split(",")
