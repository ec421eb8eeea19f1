"""What a job's lines say of its machine beside the image: scratch disk, rates, and whether it has a script.

plugins/slurm/outrider_metadata.lua reads the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.amounts import size_bytes

SCRATCH, DISK_RATE, NETWORK_RATE, LEASE = "scratch", "disk-rate", "network-rate", "lease"
INTERACTIVE = "interactive"
BOUNDS = {SCRATCH: (1 << 20, 1 << 44), DISK_RATE: (1 << 16, 1 << 40), NETWORK_RATE: (1 << 16, 1 << 40)}
"""The least and the most of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineLines:
    """What was not said is None, or False."""

    scratch_bytes: int | None = None
    """Of an empty disk that the guest finds at /scratch."""
    disk_rate_bytes_per_s: int | None = None
    network_rate_bytes_per_s: int | None = None
    """What each machine may send to the others of its job."""
    is_interactive: bool = False
    """Whether it has no script: it is there until its end, for its user to come in."""


def read_machine_lines(found: Mapping[str, str], *, is_machine: bool) -> MachineLines:
    """What these keys say. Raises TextError."""
    for key in (*BOUNDS, LEASE):
        if key in found and not is_machine:
            raise TextError(f"{key} has no effect without run: vm: write that, or leave {key} out")
    if found.get(LEASE, INTERACTIVE) != INTERACTIVE:
        raise TextError(f"lease is {shown(found[LEASE])}: write interactive, or leave it out")
    return MachineLines(
        scratch_bytes=_amount(found, SCRATCH),
        disk_rate_bytes_per_s=_amount(found, DISK_RATE),
        network_rate_bytes_per_s=_amount(found, NETWORK_RATE),
        is_interactive=LEASE in found,
    )


def write_machine_lines(lines: MachineLines) -> dict[str, str]:
    """The values by their keys; empty where nothing is said."""
    amounts = {
        SCRATCH: lines.scratch_bytes,
        DISK_RATE: lines.disk_rate_bytes_per_s,
        NETWORK_RATE: lines.network_rate_bytes_per_s,
    }
    found = {key: "" if amount is None else str(amount) for key, amount in amounts.items()}
    return {**found, LEASE: INTERACTIVE if lines.is_interactive else ""}


def _amount(found: Mapping[str, str], key: str) -> int | None:
    if key not in found:
        return None
    try:
        amount = size_bytes(found[key])
    except TextError as error:
        raise TextError(f"{key}: {error}") from error
    least, most = BOUNDS[key]
    if not least <= amount <= most:
        raise TextError(f"{key} is {shown(found[key])}: write one between {least} and {most} bytes")
    return amount
