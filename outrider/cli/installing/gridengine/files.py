"""Outrider's own files for a head and for nodes of Grid Engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.errors import MissingPartError
from outrider.cli.installing.common import headfiles, nodefiles
from outrider.cli.installing.common.headfiles import file
from outrider.cli.installing.common.nodefiles import NodeKit
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.running import ProgramRunner
from outrider.cli.installing.common.shipped import shipped
from outrider.cli.installing.gridengine.plan import FOLDER

SHIPPED = {
    "prolog.sh": "prolog/gridengine-prolog",
    "epilog.sh": "epilog/gridengine-epilog",
    "pe-start.sh": "prolog/gridengine-pe-start",
    "starter": "prolog/gridengine-starter",
    "shepherd": "prolog/gridengine-shepherd",
    "suspend": "prolog/gridengine-suspend",
    "outrider_jsv_lines.py": "plugins/gridengine/outrider_jsv_lines.py",
    "outrider_jsv_machines.py": "plugins/gridengine/outrider_jsv_machines.py",
    "outrider_jsv_options.py": "plugins/gridengine/outrider_jsv_options.py",
    "outrider_jsv.py": "plugins/gridengine/outrider_jsv.py",
    "outrider_client_jsv.py": "plugins/gridengine/outrider_client_jsv.py",
}
"""What has which name in FOLDER, and where it is in Outrider."""
GUARD = "prolog/gridengine-guard.c"
ON_HEAD = (
    "outrider_jsv_lines.py", "outrider_jsv_machines.py", "outrider_jsv_options.py", "outrider_jsv.py",
    "outrider_client_jsv.py",
)  # fmt: skip
ON_NODES = ("prolog.sh", "epilog.sh", "pe-start.sh", "starter", "shepherd", "suspend")
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
    parts_queue: str
    environments: tuple[tuple[int, str], ...]
    duration_offset_s: int
    root: str
    cell: str
    commands: str
    key: bytes | None
    parts: frozenset[str]


def head_files(head: GridHead) -> list[Json]:
    """Everything, with its content."""
    return _shipped(ON_HEAD) + headfiles.service_files(configuration(head), head.user, head.key, head.parts)


def configuration(head: GridHead) -> str:
    """outriderd.yaml for this site."""
    environments = " ".join(f"{name}={slots}" for slots, name in head.environments)
    backend = [
        f"root: {head.root}",
        f"cell: {head.cell}",
        f"commands: {head.commands}",
        f"account: {head.account}",
        f"work_queue: {head.work_queue}",
        f"reservation_queue: {head.reservation_queue}",
        *([f"parts_queue: {head.parts_queue}"] if head.parts_queue else []),
        f"environments: {environments}",
        f"duration_offset: {head.duration_offset_s}s",
    ]
    return headfiles.configuration("gridengine", "gridengine", backend)


def kit(ports: Ports, key: bytes, runner: ProgramRunner) -> NodeKit:
    """What each node gets. The guard is made on this machine, for nodes of its kind."""
    guard = _guard(runner)
    guards = [file(f"{FOLDER}/{name}", guard, mode=0o755) for name in GUARDED]
    return nodefiles.kit(_shipped(ON_NODES) + guards, FOLDERS, ports, key)


def _shipped(names: Iterable[str]) -> list[Json]:
    return [file(f"{FOLDER}/{name}", shipped(SHIPPED[name]), mode=0o755) for name in names]


def _guard(runner: ProgramRunner) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "guard.c", Path(folder) / "guard"
        source.write_bytes(shipped(GUARD))
        done = runner.run([*COMPILER, str(source), "-o", str(target)], 60)
        if not done.is_good or not os.path.exists(target):
            raise MissingPartError(
                f"the guard of the hooks cannot be made: {done.reason}: install gcc on this machine"
            )
        return target.read_bytes()
