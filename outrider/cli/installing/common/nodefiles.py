"""What of Outrider goes to each node: folders, files, and how its daemon is started."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.errors import InputError
from outrider.cli.installing.common.headfiles import DEPLOYED, KEY, as_folders, deployed, file
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.shipped import package_file, shipped
from outrider.cli.installing.common.writing import write
from outrider.cli.installing.systems import SYSTEMS
from outrider.metadata.notation.hostlists import natural

PYZ = "/usr/lib/outrider/cachemgr.pyz"
PROGRAM = "/usr/sbin/cachemgr"
HOOK = "/usr/lib/outrider/hook.py"
MACHINE = "/usr/lib/outrider/machine"
"""What runs a job's script in a virtual machine; the submit filters name it."""
CONF = "/etc/outrider/cachemgr.conf"
UNIT = "/etc/systemd/system/cachemgr.service"
POOL_MARKER = "/var/cache/outrider/pool.json"
NODE_PYTHON = "/usr/bin/python3"
LEFTOVERS = tuple(
    f"/run/outrider/{name}"
    for name in ("cachemgr.sock", "cachemgr.sock.lock", "jobs", "failed", "machines.json")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKit:
    """What all nodes get, made once."""

    files: tuple[Json, ...]
    folders: tuple[Json, ...]
    ports: Ports

    def of(self, node: str) -> list[Json]:
        """What one node gets."""
        return [*self.files, file(CONF, conf(node, self.ports).encode(), is_config=True, restarts=True)]


def kit(files: Iterable[Json], folders: Iterable[str], ports: Ports, key: bytes) -> NodeKit:
    """The daemon, the site's key, and the files and folders of a batch system's hooks."""
    own = [
        file(PYZ, pyz(), mode=0o755, restarts=True),
        {"path": PROGRAM, "link": PYZ},
        file(HOOK, package_file("cachemgr", "hook.py")),
        file(MACHINE, shipped("prolog/machine"), mode=0o755),
        *files,
        file(KEY, key, mode=0o600, restarts=True),
        file(UNIT, unit(), restarts=True),
    ]
    return NodeKit(files=tuple(own), folders=as_folders(folders), ports=ports)


def site_key() -> bytes:
    try:
        return Path(KEY).read_bytes()
    except OSError as error:
        first, *others = (f"outrider init {name} --apply" for name in SYSTEMS)
        commands = ", or ".join([f"{first} first", *others])
        raise InputError(f"{KEY} cannot be read ({error.strerror}): as root, run {commands}") from error


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
        "# Written by outrider nodes deploy; cachemgr config --example shows every option. What is\n"
        "# changed here stays.\n"
        "[cachemgr]\n"
        f"node = {node}\n"
        f"relay_key = {KEY}\n"
        f"control_listen = 0.0.0.0:{ports.control}\n"
        f"relay_listen = 0.0.0.0:{ports.relay}\n"
    )


def unit() -> bytes:
    text = package_file("cachemgr.daemon", "units/cachemgr.service").decode()
    return re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={PROGRAM} serve", text).encode()


def note_deployed(added: Sequence[str], removed: Sequence[str]) -> None:
    """Remember which nodes have the hooks; without them slurm.conf is not changed."""
    nodes, wrapped = (
        sorted((set(deployed(kind)) | set(added)) - set(removed), key=natural)
        for kind in ("nodes", "wrapped")
    )
    os.makedirs(os.path.dirname(DEPLOYED), exist_ok=True)
    write(DEPLOYED, f"{json.dumps({'version': 1, 'nodes': nodes, 'wrapped': wrapped})}\n".encode())
    if not nodes:
        os.unlink(DEPLOYED)
