"""What the doctor looks at on every head node, whichever batch system it has."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from outrider.cli.errors import CommandError
from outrider.cli.installing.common import findings
from outrider.cli.installing.common.findings import DoctorFinding, of_rights, of_states
from outrider.cli.installing.common.headfiles import CONFIG, KEY, MANIFEST, deployed, without_content
from outrider.cli.installing.common.placing import Json, carry_out
from outrider.cli.installing.common.running import ProgramRunner

if TYPE_CHECKING:
    from outrider.service.answers.site import Status

HERE = "head"
SERVICE_S = 2
SETTLES_S = 10
PAUSE_S = 0.5
ok, warning, fault = (partial(each, HERE) for each in (findings.ok, findings.warning, findings.fault))
"""What is found on the head: what was looked at, and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadChecks:
    """Checks of every head, with what they look at. Each is independent of the others."""

    runner: ProgramRunner
    socket: str
    files: Sequence[Json]
    """What an installation puts on the head."""
    nodes: Sequence[str]
    remedy: str
    """The command that puts right what an installation has to do."""

    def shipped(self) -> list[DoctorFinding]:
        """What an administrator has edited, or has to keep, is no finding."""
        wanted = without_content(self.files)
        looked = carry_out({"do": "look", "manifest": MANIFEST, "files": wanted})
        states = dict(looked["files"])
        if states.get(CONFIG) in ("edited", "foreign"):
            del states[CONFIG]
        states.pop(KEY, None)
        too_open = [each for each in looked["too_open"] if each["path"] != KEY]
        return [*of_states(HERE, states, self.remedy), *of_rights(HERE, too_open)]

    def key(self) -> list[DoctorFinding]:
        """The site's key: who has it controls every node."""
        from cachemgr.base.errors import CacheError
        from cachemgr.network.keys import read_keys

        try:
            about = os.stat(KEY)
            count = len(read_keys(KEY))
        except OSError as error:
            return [fault("key", f"{KEY}: {error.strerror}: {self.remedy}")]
        except CacheError as error:
            return [fault("key", str(error))]
        if about.st_mode & 0o077:
            mode = f"{stat.S_IMODE(about.st_mode):04o}"
            return [fault("key", f"{KEY} can be read by others ({mode}): chmod 600 it")]
        return [ok("key", f"{count} in {KEY}, for its owner alone")]

    def configuration(self) -> list[DoctorFinding]:
        command = [sys.executable, "-m", "outrider.service", "--check", "--config", CONFIG]
        done = self.runner.run(command, 60)
        if not done.is_good:
            return [fault("outriderd.yaml", done.reason)]
        return [ok("outriderd.yaml", done.output.strip().rpartition(": ")[2])]

    def service(self) -> list[DoctorFinding]:
        return service_findings(self.socket)

    def deployment(self) -> list[DoctorFinding]:
        from outrider.metadata.notation.hostlists import fold

        known = set(deployed())
        missing = [each for each in self.nodes if each not in known]
        if missing:
            names = fold(missing)
            words = f"{names} have nothing of Outrider: outrider nodes deploy '{names}'"
            return [warning("nodes", words)]
        return [ok("nodes", f"all {len(self.nodes)} have been deployed to")]


def service_findings(path: str) -> list[DoctorFinding]:
    """Whether outriderd answers, and promises."""
    from cachemgr.base.clock import SystemClock
    from outrider.service.answers.site import Status
    from outrider_client.reading import read
    from outrider_client.transport import Transport

    clock = SystemClock()
    until_s = clock.monotonic_s() + SETTLES_S
    try:
        while True:
            answer = Transport(path, clock, timeout_s=SERVICE_S).get("/v1/status")
            status = read(Status, answer)
            # One that was just started has not seen its nodes yet.
            if (status.is_promising and not status.nodes_away) or clock.monotonic_s() > until_s:
                break
            clock.sleep(PAUSE_S)
    except CommandError as error:
        return [fault("outriderd", f"{error}: systemctl status outriderd")]
    if not status.is_promising:
        return [warning("outriderd", f"answers, but promises nothing: {'; '.join(status.troubles)}")]
    if names := _lacking(path):
        return [
            fault(
                "outriderd",
                f"runs as root without {', '.join(names)}, so users' images and jobs fail: take User=root "
                "and CapabilityBoundingSet= out of its unit (systemctl cat outriderd), then systemctl "
                "restart outriderd",
            )
        ]
    away = f", {status.nodes_away} nodes are away" if status.nodes_away else ""
    told = warning if away else ok
    found = told("outriderd", f"{status.version} promises on {status.nodes} nodes{away}")
    return [found, *link_findings(status), *turns_findings(status)]


def link_findings(status: Status) -> list[DoctorFinding]:
    """Whether transfers get the rate that promises are made with."""
    return [warning("link.rate", status.link_words)] if status.link_words else []


def turns_findings(status: Status) -> list[DoctorFinding]:
    """Whether Outrider starts the jobs of the queues that the configuration names."""
    return [warning("jobs.schedule", status.turns_words)] if status.turns_words else []


def _lacking(path: str) -> tuple[str, ...]:
    """The rights of root that the service at that socket lacks; none if it cannot be seen."""
    from outrider.service.daemon.capabilities import lacking
    from outrider.service.web.connections.protocol import peer_of

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.connect(path)
        peer = peer_of(connection)
        return () if peer is None else lacking(peer.pid)
    return ()
