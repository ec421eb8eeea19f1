"""Live migration as the engine's program offers it: addresses, keys and rates as they are typed."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from dataclasses import asdict
from hashlib import blake2b

from cachemgr.base.errors import BadRequest, SourceFailed
from cachemgr.base.rate import RateLimit
from cachemgr.machines.live.crossing import OtherNode
from cachemgr.machines.live.landing import MachineLanding
from cachemgr.machines.live.migration import OtherFolder, migrate
from cachemgr.machines.qemu.saving import NO_LIMIT_BYTES_PER_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.live.migration import MachineTarget
    from cachemgr.machines.machine import Machine

KEY_BYTES, MOST_KEY_BYTES = 16, 4096


def to_folder(
    machine: Machine, target: Machine, paths: Mapping[str, str], rate: int | None
) -> dict[str, object]:
    """To another folder of this node."""
    return _migrated(machine, OtherFolder(target, paths), rate)


def to_node(machine: Machine, address: str, key: str, rate: int | None) -> dict[str, object]:
    """To where it is waited for."""
    limit = RateLimit(rate, machine.site.clock)
    with closing(OtherNode(read_address(address), read_key(key), limit)) as target:
        return _migrated(machine, target, rate)


def received(
    machine: Machine, address: str, key: str, paths: Mapping[str, str], wait_s: float
) -> MachineStatus:
    """Wait for a machine that comes."""
    found, landing = read_address(address), MachineLanding(machine, read_key(key), lambda offer: paths)
    try:
        kind = socket.getaddrinfo(*found, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server(found, family=kind)
    except OSError as error:
        raise SourceFailed(f"no machine can come to {address}: {error}") from error
    with closing(listener):
        return landing.wait(listener, wait_s)


def _migrated(machine: Machine, target: MachineTarget, rate: int | None) -> dict[str, object]:
    if rate is not None and rate < 1:
        raise BadRequest(f"--rate wants bytes a second, not {rate}")
    figures = migrate(machine, target, rate_bytes_per_s=rate or NO_LIMIT_BYTES_PER_S)
    return {"to": target.place, "figures": None if figures is None else asdict(figures)}


def read_address(text: str | None) -> tuple[str, int]:
    host, _, port = (text or "").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise BadRequest(f"--at wants HOST:PORT, not {text or 'nothing'!r}")
    return host.strip("[]"), int(port)


def read_key(path: str | None) -> bytes:
    """What both ends have made of a file that nobody else can read."""
    if not path:
        raise BadRequest("--key wants a file that both ends have, such as 32 random bytes")
    try:
        with open(path, "rb") as file:
            found, data = os.fstat(file.fileno()), file.read(MOST_KEY_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise BadRequest(f"{path} can be read by others: chmod 600 a file of your own")
    if not KEY_BYTES <= len(data) <= MOST_KEY_BYTES:
        raise BadRequest(f"{path} has {len(data)} bytes: a key has {KEY_BYTES} to {MOST_KEY_BYTES}")
    return blake2b(data, digest_size=32).digest()
