"""What the submit filter says of a job's machines, in a script's first line or in the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.machines.wish import MIB, MachineDisk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "run=vm"
INTERACTIVE = "interactive"
SCRATCH = "scratch"
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
    )


def _amount(found: Mapping[str, str], key: str) -> int | None:
    if key not in found:
        return None
    if AMOUNT.fullmatch(found[key]) is None:
        raise BadRequest(f"the submit filter says {key}={found[key]}, no amount: submit the job again")
    return int(found[key])


def _not_understood(text: str) -> BadRequest:
    return BadRequest(f"{text[:80]!r} is not what the submit filter says of a machine: submit the job again")
