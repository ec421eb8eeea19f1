"""Outrider's own files for a head and for nodes of Grid Engine."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.errors import MissingPartError
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.running import Runner
from outrider.cli.installing.common.shipped import GRIDENGINE, GUARD, package_file, shipped
from outrider.cli.installing.gridengine.plan import FOLDER, UNIT_PART
from outrider.cli.installing.slurm.headfiles import CONFIG, CONTROL_PORT, KEY, RELAY_PORT, UNIT, file, unit
from outrider.cli.installing.slurm.nodefiles import HOOK, PROGRAM, PYZ, Kit, Ports, as_folders, pyz
from outrider.cli.installing.slurm.nodefiles import UNIT as NODE_UNIT
from outrider.cli.installing.slurm.nodefiles import unit as node_unit

ON_HEAD = ("outrider_jsv.py", "outrider_client_jsv.py")
ON_NODES = ("prolog.sh", "epilog.sh", "pe-start.sh", "starter", "shepherd")
GUARDED = ("prolog", "epilog", "pe-start")
COMPILER = ("cc", "-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin")
FOLDERS = (FOLDER, "/etc/outrider", "/run/outrider")


@dataclass(frozen=True, kw_only=True, slots=True)
class GridHead:
    """What is particular to this head node."""

    user: str
    """As whom outriderd runs."""
    account: str
    work_queue: str
    reservation_queue: str
    environments: tuple[tuple[int, str], ...]
    duration_offset_s: int
    root: str
    cell: str
    commands: str
    has_systemd: bool
    key: bytes | None
    parts: frozenset[str]


def folders(head: GridHead) -> list[Json]:
    owner = "" if head.user == "root" else head.user
    return [*as_folders(FOLDERS), {"path": "/var/lib/outrider", "mode": 0o711, "owner": owner}]


def head_files(head: GridHead) -> list[Json]:
    """Everything, with its content."""
    owner = "" if head.user == "root" else head.user
    found = [file(f"{FOLDER}/{name}", shipped(GRIDENGINE[name]), mode=0o755) for name in ON_HEAD]
    if head.key is not None:
        found.append(file(KEY, head.key, mode=0o600, owner=owner, is_config=True))
    found.append(file(CONFIG, configuration(head).encode(), owner=owner, is_config=True))
    if head.has_systemd and UNIT_PART in head.parts:
        found.append(file(UNIT, unit(head.user)))
    return found


def configuration(head: GridHead) -> str:
    """outriderd.yaml for this site: few keys, all others have defaults."""
    environments = " ".join(f"{name}={slots}" for slots, name in head.environments)
    return "\n".join(
        [
            "# Written by outrider init gridengine. Keys: docs/reference/outriderd.md; check changes with",
            "# outriderd --check, then restart the service.",
            "version: 1",
            "site: gridengine",
            "# What all transfers together may take of the network, in bytes a second.",
            "link: {rate: 125MB}",
            "# How often the queue is looked at for jobs that name an image.",
            "timings: {look: 10s}",
            "backend:",
            "  kind: gridengine",
            "  gridengine:",
            f"    root: {head.root}",
            f"    cell: {head.cell}",
            f"    commands: {head.commands}",
            f"    account: {head.account}",
            f"    work_queue: {head.work_queue}",
            f"    reservation_queue: {head.reservation_queue}",
            f"    environments: {environments}",
            f"    duration_offset: {head.duration_offset_s}s",
            f"  key: {KEY}",
            f"  control_port: {CONTROL_PORT}",
            f"  relay_port: {RELAY_PORT}",
            "",
        ]
    )


def kit(ports: Ports, key: bytes, runner: Runner) -> Kit:
    """What each node gets. The guard is made on this machine, for nodes of its kind."""
    guard = _guard(runner)
    files = [
        file(PYZ, pyz(), mode=0o755, restarts=True),
        {"path": PROGRAM, "link": PYZ},
        file(HOOK, package_file("cachemgr", "hook.py")),
        *(file(f"{FOLDER}/{name}", shipped(GRIDENGINE[name]), mode=0o755) for name in ON_NODES),
        *(file(f"{FOLDER}/{name}", guard, mode=0o755) for name in GUARDED),
        file(KEY, key, mode=0o600, restarts=True),
        file(NODE_UNIT, node_unit(), restarts=True),
    ]
    return Kit(files=tuple(files), folders=as_folders(FOLDERS), ports=ports)


def _guard(runner: Runner) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "guard.c", Path(folder) / "guard"
        source.write_bytes(shipped(GUARD))
        done = runner.run([*COMPILER, str(source), "-o", str(target)], 60)
        if not done.is_good or not os.path.exists(target):
            raise MissingPartError(
                f"the guard of the hooks cannot be made: {done.reason}: install gcc on this machine"
            )
        return target.read_bytes()
