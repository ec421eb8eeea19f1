"""Which rights of root a process lacks although it is root: a unit can take single ones away."""

from __future__ import annotations

from pathlib import Path

NEEDED = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}
"""What a service of root does for its users: it becomes them, opens files as them, and ends their jobs."""


def lacking(pid: int | str = "self") -> tuple[str, ...]:
    """The capabilities that a process of root's should have and has not; none of any other user's.

    Raises OSError if there is no such process.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    effective_uid, effective = int(fields["Uid"][1]), int(fields["CapEff"][0], 16)
    if effective_uid != 0:
        return ()
    return tuple(name for name, bit in NEEDED.items() if not effective >> bit & 1)
