"""What the submit filter says of a job's machines, in a script's first line or in the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.instances.context import MOST_BYTES
from cachemgr.machines.wish import MIB, MachineDisk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "run=vm"
INTERACTIVE = "interactive"
SCRATCH = "scratch"
ROLE, DATA = "#!role ", "#!data "
"""Before a role in the script, and before a data image's name, as the submit filter writes them."""
NAME = "vm"
"""Machines of no role are called so, with a number behind it."""
SECTOR = 512
OPTION = re.compile(r"[a-z]{1,16}=[A-Za-z0-9._-]{1,64}")
AMOUNT = re.compile(r"[1-9][0-9]{0,15}")


@dataclass(frozen=True)
class WrapperOptions:
    """The same for all machines of a job. What was not said is empty, or None."""

    text: str
    memory_bytes: int
    boot: str = ""
    scratch_bytes: int | None = None
    disk_rate_bytes_per_s: int | None = None
    network_rate_bytes_per_s: int | None = None
    is_interactive: bool = False
    data: int = 0
    roles: int = 0
    """So many lines about data images, and then about roles, stand below the first one of the script."""

    @property
    def scratch(self) -> tuple[MachineDisk, ...]:
        """The empty disk, if there is to be one."""
        if self.scratch_bytes is None:
            return ()
        return (MachineDisk(SCRATCH, size_bytes=-(-self.scratch_bytes // SECTOR) * SECTOR),)


def understood(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[WrapperOptions, str, Sequence[str]]:
    """The options, the script's path, and its arguments. Where a script's first line cannot be changed, the
    options are in the environment."""
    given = list(arguments)
    text = given.pop(0) if given and given[0].startswith(PREFIX) else environment.get("OUTRIDER_MACHINE", "")
    if not given:
        raise _not_understood(text)
    return read_options(text), given[0], given[1:]


def read_options(text: str) -> WrapperOptions:
    pairs = text.split(",")
    if pairs[0] != PREFIX or any(OPTION.fullmatch(each) is None for each in pairs):
        raise _not_understood(text)
    found = dict(each.split("=", 1) for each in pairs[1:])
    memory = found.get("memory", "")
    if not memory.isdigit():
        raise BadRequest("the submit filter names no memory for the machine: submit the job again")
    return WrapperOptions(
        text=text,
        memory_bytes=int(memory) * MIB,
        boot=found.get("boot", ""),
        scratch_bytes=_amount(found, "scratch"),
        disk_rate_bytes_per_s=_amount(found, "disk"),
        network_rate_bytes_per_s=_amount(found, "network"),
        is_interactive=found.get("lease") == INTERACTIVE,
        data=_amount(found, "data") or 0,
        roles=_amount(found, "roles") or 0,
    )


@dataclass(frozen=True)
class JobInstance:
    """One machine of a job that has several, or whose user has said what it is called."""

    name: str
    memory_bytes: int
    cpus: int = 0
    """As many as the job has on the node, if 0."""
    user_data: str = ""
    """The file of the working folder with what it is handed at its first boot."""
    image: int = 0
    """The number of its image among the job's further ones; the job's own, if 0."""

    def context(self, folder: str) -> dict[str, object] | None:
        """What it is told of itself beside its place among the others."""
        if not self.user_data:
            return None
        path = f"{folder}/{self.user_data}"
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(MOST_BYTES + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"the user data of {self.name}, {path}, cannot be read: {error}") from error
        return {"hostname": self.name, "user_data": text}


@dataclass(frozen=True)
class WrappedScript:
    """What stands in the script that the batch system has."""

    instances: tuple[JobInstance, ...]
    data: tuple[str, ...]
    """The names of its data images, whose numbers are their places, from 1 on."""
    text: str
    """Its user's own script."""


def read_script(text: str, options: WrapperOptions, count: int) -> WrappedScript:
    """The machines of a job of so many nodes, and its user's own script, without the lines above it."""
    first, _, rest = text.partition("\n")
    text = rest if first.startswith("#!") and PREFIX in first else text
    data: list[str] = []
    for _ in range(options.data):
        line, _, text = text.partition("\n")
        if not line.startswith(DATA):
            raise _not_understood(line)
        data.append(line[len(DATA) :])
    found: list[JobInstance] = []
    for _ in range(options.roles):
        line, _, text = text.partition("\n")
        found += _role(line)
    if found and len(found) != count:
        raise BadRequest(
            f"the roles have {len(found)} machines, and the job has {count} nodes: submit it again, without "
            "a number of nodes"
        )
    if not found:
        found = [JobInstance(f"{NAME}{number}", options.memory_bytes) for number in range(1, count + 1)]
    text = text if text.startswith("#!") else f"#!/bin/sh\n{text}"
    return WrappedScript(tuple(found), tuple(data), text)


def _role(line: str) -> list[JobInstance]:
    _, *parts = line[len(ROLE) :].split(" ")
    said = dict(part.partition("=")[::2] for part in parts)
    memory, cpus, image = said.get("memory", ""), said.get("cpus", "0"), said.get("image", "0")
    numbers = (memory, cpus, image)
    if not line.startswith(ROLE) or not all(map(str.isdigit, numbers)) or not said.get("hosts"):
        raise _not_understood(line)
    return [
        JobInstance(host, int(memory) * MIB, int(cpus), said.get("user-data", ""), int(image))
        for host in said["hosts"].split(",")
    ]


def _amount(found: Mapping[str, str], key: str) -> int | None:
    if key not in found:
        return None
    if AMOUNT.fullmatch(found[key]) is None:
        raise BadRequest(
            f"the submit filter says {key}={found[key]}, which is not an amount: submit the job again"
        )
    return int(found[key])


def _not_understood(text: str) -> BadRequest:
    return BadRequest(f"{text[:80]!r} is not what the submit filter says of a machine: submit the job again")
