"""What the doctor looks at on a node: its daemon over the network, its files by ssh where it may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest, CacheError, Unsuitable
from cachemgr.base.sizes import in_words
from cachemgr.base.steady import in_words as time_in_words
from outrider import __version__
from outrider.cli.installing.common.control import ask
from outrider.cli.installing.common.findings import DoctorFinding, fault, of_rights, of_states, ok, warning
from outrider.cli.installing.common.headfiles import without_content
from outrider.cli.installing.common.nodefiles import NodeKit
from outrider.cli.installing.common.remote import Remote, RemoteError

MOST_CLOCK_S = 2
FULL = 0.95
POOL = "/var/cache/outrider"
LEAST_FREE_BYTES = 1 << 30
OLDEST_PYTHON = (3, 9)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeChecks:
    """How nodes are reached, and what they should have."""

    keys: tuple[bytes, ...]
    port: int
    kit: NodeKit | None
    remote: Remote | None
    """None: no ssh, or it is not wanted."""
    clock: SystemClock
    site_files: Sequence[str] = ()
    """Files of the batch system of which nodes may have copies, and what is said of these."""
    copy_findings: Callable[[str, Mapping[str, str | None]], Sequence[DoctorFinding]] = lambda *copies: ()

    def of(self, node: str) -> list[DoctorFinding]:
        return [*self.daemon(node), *(self.files(node) if self.remote is not None else [])]

    def daemon(self, node: str) -> list[DoctorFinding]:
        """Version, name, pool."""
        try:
            found = ask(node, self.port, self.keys, "ping")
            numbers = ask(node, self.port, self.keys, "stats")
        except CacheError as error:
            return [fault(node, "daemon", str(error))]
        lines = self._time(node, found)
        if found["version"] != __version__:
            lines.append(
                warning(
                    node,
                    "daemon",
                    f"is {found['version']}, this is {__version__}: outrider nodes deploy {node}",
                )
            )
        else:
            lines.append(ok(node, "daemon", f"{found['version']}, up for {found['uptime_s']} s"))
        limit, used = (
            int(numbers.get("outrider_pool_limit_bytes", 0)),
            numbers.get("outrider_pool_used_bytes"),
        )
        if not found["is_index_ready"] or used is None:
            lines.append(warning(node, "pool", "is still being counted: look again in a moment"))
        elif limit and used > FULL * limit:
            lines.append(
                warning(
                    node, "pool", f"{in_words(int(used))} of {in_words(limit)} are used: images will give way"
                )
            )
        else:
            lines.append(
                ok(node, "pool", f"{found['pool']}, {in_words(int(used))} of {in_words(limit)} used")
            )
        return [*lines, *self._machines(node)]

    def _machines(self, node: str) -> list[DoctorFinding]:
        """Whether jobs can run in virtual machines there, by KVM or emulated; an older daemon is silent."""
        try:
            found = ask(node, self.port, self.keys, "machines")
        except Unsuitable:
            return [ok(node, "machines", "no QEMU is installed: jobs cannot run in virtual machines there")]
        except CacheError as error:
            return [] if isinstance(error, BadRequest) else [warning(node, "machines", str(error))]
        kind = "KVM" if found["accelerator"] == "kvm" else "emulation, which is slow"
        room = f"{in_words(int(found['free_bytes']))} beside the pool"
        return [ok(node, "machines", f"QEMU {found['version']} by {kind}: {found['reason']}; {room}")]

    def _time(self, node: str, found: Mapping[str, Any]) -> list[DoctorFinding]:
        """Whether a node doubts its clock, or has another time than the head; an older one does not say."""
        if found.get("clock_trouble"):
            return [fault(node, "clock", str(found["clock_trouble"]))]
        off_s = int(found.get("now_s", self.clock.now_s())) - self.clock.now_s()
        if abs(off_s) <= MOST_CLOCK_S:
            return []
        words = f"is {time_in_words(off_s)} of the head's: pins, tickets and MUNGE fail; start chrony"
        return [fault(node, "clock", words)]

    def files(self, node: str) -> list[DoctorFinding]:
        """What lies there, its clock, and its copies of the site's files."""
        assert self.remote is not None
        assert self.kit is not None
        request = {
            "do": "look",
            "files": without_content(self.kit.of(node)),
            "digests": list(self.site_files),
            "pool": POOL,
        }
        before_s = self.clock.now_s()
        try:
            looked = self.remote.call(node, request)
        except RemoteError as error:
            return [warning(node, "ssh", f"{error}; its files were not looked at")]
        after_s = self.clock.now_s()
        states = {
            path: state
            for path, state in looked["files"].items()
            if looked["has_systemd"] or not path.startswith("/etc/systemd/")
        }
        found = [
            *of_states(node, states, f"outrider nodes deploy {node}"),
            *of_rights(node, looked["too_open"]),
        ]
        off_s = max(before_s - looked["now_s"], looked["now_s"] - after_s - 1, 0)
        if off_s > MOST_CLOCK_S:
            found.append(
                fault(
                    node,
                    "clock",
                    f"differs by {off_s:.0f} s from the head's: MUNGE and tickets fail; start chrony",
                )
            )
        else:
            found.append(ok(node, "clock", "agrees with the head's"))
        if tuple(map(int, looked["python"].split("."))) < OLDEST_PYTHON:
            found.append(
                fault(node, "python", f"/usr/bin/python3 is {looked['python']}: 3.9 or later is needed")
            )
        return [*found, *of_disk(node, looked["pool"]), *self.copy_findings(node, looked["digests"])]


def of_disk(node: str, pool: dict[str, int]) -> Sequence[DoctorFinding]:
    """What instances cost on the pool's file system."""
    free = f"{in_words(pool['free_bytes'])} free"
    if pool["size_bytes"] < LEAST_FREE_BYTES:
        words = f"{POOL} is on a file system of {in_words(pool['size_bytes'])}: mount a larger one there"
        return [warning(node, "disk", words)]
    if pool["free_bytes"] < LEAST_FREE_BYTES:
        words = f"only {free} in {POOL}: see what takes it with du -x, and move away what is not the pool's"
        return [warning(node, "disk", words)]
    if pool["has_reflinks"]:
        return [ok(node, "disk", f"{free}; instances are reflinks and cost nothing")]
    copied = (
        "what is not a disk image is copied before its job is released, 2 to 7 s a GiB, and takes twice "
        "its bytes of the pool"
    )
    remedy = "name disk images raw (format:) if they are not recognised, or mount XFS there"
    return [ok(node, "disk", f"{free}; no reflinks: disk images get overlays of qcow2, {copied}: {remedy}")]
