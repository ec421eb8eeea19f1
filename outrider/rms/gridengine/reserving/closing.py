"""Hosts that are closed to jobs outside of reservations, for as long as reserved slots have no guard.

Grid Engine cannot change an advance reservation, and grants no second one on the same slots: a guard goes
before another takes its place, and a job that waits would start in between. So the work queue is disabled
there first. The scheduler hears of all that in order, so it never sees the guard gone from an open host.

Whoever is killed in between leaves a host disabled. Which ones are ours to enable again is told by advance
reservations that are never used: one a host, far ahead, made before and deleted afterwards. (A forced
resource of the host would be its own mark. But Grid Engine lets none come where reservations are, and
`qsub -w e` refuses jobs for it.) What an administrator has disabled stays so.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.rms.gridengine import parsing, seeing
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot

AHEAD_S = 365 * 86_400
DISABLED = "d"


class ClosedHosts:
    """Those that are closed, as a snapshot shows them and with what was done since."""

    def __init__(
        self, commands: GridEngineCommands, settings: GridEngineSettings, snapshot: Snapshot, now_s: int
    ) -> None:
        self._commands = commands
        self._settings = settings
        self._at_s = now_s + AHEAD_S
        self._marks = {each.name.removeprefix(seeing.CLOSED): each.number for each in snapshot.marks}
        self._disabled = {(each.queue, each.host) for each in snapshot.instances if DISABLED in each.state}

    def close(self, hosts: Iterable[str]) -> None:
        """Nothing of the work queue starts there any more. One that cannot be closed stays open."""
        work = self._settings.work_queue
        wanted = [
            host
            for host in sorted(hosts)
            if host not in self._marks and (work, host) not in self._disabled and self._mark(host)
        ]
        if wanted:
            self._commands.attempt("qmod", "-d", *(f"{work}@{host}" for host in wanted))

    def reopen_but(self, hosts: Iterable[str]) -> None:
        """All but these. Where somebody has disabled the other queue meanwhile, a node is drained."""
        done = sorted(self._marks.keys() - set(hosts))
        queue = self._settings.reservation_queue
        enabled = [host for host in done if (queue, host) not in self._disabled]
        if enabled:
            self._commands.attempt("qmod", "-e", *(f"{self._settings.work_queue}@{host}" for host in enabled))
        for host in done:
            self._commands.attempt("qrdel", str(self._marks.pop(host)))

    def _mark(self, host: str) -> bool:
        queue, forced = self._settings.reservation_queue, self._settings.reservation_complex
        span = ("-a", parsing.utc_text(self._at_s), "-d", "60")
        name = f"{seeing.CLOSED}{host}"
        done = self._commands.attempt(
            "qrsub", "-N", name, *span, "-q", f"{queue}@{host}", "-l", f"{forced}=TRUE"
        )
        granted = parsing.granted_number(done.text.decode(errors="replace"))
        if done.code == 0 and granted is not None:
            self._marks[host] = granted
        return host in self._marks
