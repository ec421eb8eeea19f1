"""What of Outrider goes to each node: folders, files, and how its daemon is started."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.errors import InputError
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.shipped import SLURM, package_file, shipped
from outrider.cli.installing.slurm.headfiles import DEPLOYED, KEY, deployed, file, hook_files
from outrider.cli.installing.slurm.hooks import FOLDER, HOOKS, WRAPPERS, composed
from outrider.cli.installing.slurm.plan import MANY_PROGRAMS, SPANK_FILE
from outrider.cli.installing.slurm.siteconf import SiteConf
from outrider.metadata.notation.hostlists import natural

PYZ = "/usr/lib/outrider/cachemgr.pyz"
PROGRAM = "/usr/sbin/cachemgr"
HOOK = "/usr/lib/outrider/hook.py"
CONF = "/etc/outrider/cachemgr.conf"
UNIT = "/etc/systemd/system/cachemgr.service"
POOL_MARKER = "/var/cache/outrider/pool.json"
NODE_PYTHON = "/usr/bin/python3"
ON_NODES = ("prolog", "epilog", "task-prolog", "cli_filter.lua", "outrider_cli.lua", "outrider_metadata.lua")
LEFTOVERS = tuple(
    f"/run/outrider/{name}" for name in ("cachemgr.sock", "cachemgr.sock.lock", "jobs", "failed")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Where the nodes' daemons listen."""

    control: int
    relay: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kit:
    """What all nodes get, made once."""

    files: tuple[Json, ...]
    folders: tuple[Json, ...]
    ports: Ports

    def of(self, node: str) -> list[Json]:
        """Everything for one node."""
        return [*self.files, file(CONF, conf(node, self.ports).encode(), is_config=True, restarts=True)]


FOLDERS = (FOLDER, WRAPPERS, "/run/outrider")


def kit(site: SiteConf, version: tuple[int, ...], ports: Ports, key: bytes) -> Kit:
    """Pack and compose everything. The same sources and the same slurm.conf give the same bytes."""
    files = [
        file(PYZ, pyz(), mode=0o755, restarts=True),
        {"path": PROGRAM, "link": PYZ},
        file(HOOK, package_file("cachemgr", "hook.py")),
        *(file(f"{FOLDER}/{name}", shipped(SLURM[name]), mode=_mode(name)) for name in ON_NODES),
        file(KEY, key, mode=0o600, restarts=True),
        file(UNIT, unit(), restarts=True),
    ]
    hooks = [
        composed(hook, site, can_be_several=version >= MANY_PROGRAMS) for hook in HOOKS if not hook.is_on_head
    ]
    files += hook_files(hooks)
    if os.path.exists(SPANK_FILE):
        files.append(file(SPANK_FILE, Path(SPANK_FILE).read_bytes()))
    return Kit(files=tuple(files), folders=as_folders(FOLDERS), ports=ports)


def as_folders(paths: Sequence[str]) -> tuple[Json, ...]:
    """Folders that all may look into."""
    return tuple({"path": path, "mode": 0o755} for path in paths)


def site_key() -> bytes:
    try:
        return Path(KEY).read_bytes()
    except OSError as error:
        raise InputError(
            f"{KEY} cannot be read ({error.strerror}): as root, run outrider init slurm --apply first, "
            "or outrider init gridengine --apply"
        ) from error


def pyz() -> bytes:
    """The node side as one file, with bytecode for nodes whose Python is this machine's."""
    from outrider.cli.installing.common.pyz import pack

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "cachemgr.pyz"
        pack(target, bytecode_of=NODE_PYTHON if os.access(NODE_PYTHON, os.X_OK) else "")
        return target.read_bytes()


def conf(node: str, ports: Ports) -> str:
    """cachemgr.conf of one node; what it does not say has its default."""
    return (
        "# Written by outrider nodes deploy; cachemgr config --example shows all that can be said. What is\n"
        "# changed here stays.\n"
        "[cachemgr]\n"
        f"node = {node}\n"
        f"relay_key = {KEY}\n"
        f"control_listen = 0.0.0.0:{ports.control}\n"
        f"relay_listen = 0.0.0.0:{ports.relay}\n"
    )


def unit() -> bytes:
    text = package_file("cachemgr", "units/cachemgr.service").decode()
    return re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={PROGRAM} serve", text).encode()


def note_deployed(added: Sequence[str], removed: Sequence[str]) -> None:
    """Remember which nodes have the hooks; without them slurm.conf is not changed."""
    from outrider.cli.installing.slurm.editing import write

    nodes, wrapped = (
        sorted((set(deployed(kind)) | set(added)) - set(removed), key=natural)
        for kind in ("nodes", "wrapped")
    )
    os.makedirs(os.path.dirname(DEPLOYED), exist_ok=True)
    write(DEPLOYED, f"{json.dumps({'version': 1, 'nodes': nodes, 'wrapped': wrapped})}\n".encode())
    if not nodes:
        os.unlink(DEPLOYED)


def _mode(name: str) -> int:
    return 0o644 if name.endswith(".lua") else 0o755
