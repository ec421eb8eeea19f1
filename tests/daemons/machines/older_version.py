"""The engine as a program of an older version: QEMU keeps the guest's memory to itself."""

from __future__ import annotations

import sys

import cachemgr.machines.keeper as keeper
from cachemgr.machines.__main__ import main
from cachemgr.machines.qemu import memory
from cachemgr.machines.qemu.command import CommandParts, command_line
from cachemgr.machines.wish import MachineWish


def older_line(wish: MachineWish, parts: CommandParts) -> list[str]:
    line = command_line(wish, parts)
    at = next(number for number, each in enumerate(line) if each.startswith("memory-backend-file"))
    del line[at - 1 : at + 1]
    return [each.replace(",memory-backend=pc.ram", "") for each in line]


assert hasattr(keeper, "command_line")
setattr(keeper, "command_line", older_line)  # noqa: B010 - it is not exported
# What QEMU inherits all the same is not found by that name.
memory.NAME = "older"

if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], "--node", "node"]))
