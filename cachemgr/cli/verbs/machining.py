"""`cachemgr machines`: what this node has for jobs in virtual machines."""

from __future__ import annotations

import os

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import in_words
from cachemgr.base.tables import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

STATES = "/var/tmp"


def add(commands: VerbParsers) -> None:
    machines = commands.add(
        "machines",
        _machines,
        "tell what this node has for jobs in virtual machines",
        "machines",
        "machines --folder /scratch/machines --json",
    )
    machines.add_argument(
        "--folder", default=STATES, metavar="FOLDER", help=f"where machines are kept (default: {STATES})"
    )
    machines.add_argument(
        "--again", action="store_true", help="boot the test again, whatever was found out before"
    )


def _machines(session: VerbSession, arguments: argparse.Namespace) -> None:
    """Root's answer is written down for all users until the node boots again."""
    from dataclasses import asdict

    from cachemgr.base.disk import RealDisk
    from cachemgr.machines.keeper import PROGRAM
    from cachemgr.machines.qemu.accelerator import find_facts

    disk = RealDisk()
    try:
        free_bytes = disk.free_bytes(arguments.folder)
    except OSError as error:
        raise BadRequest(f"{arguments.folder} cannot be looked at: {error.strerror}") from error
    found = find_facts(PROGRAM, session.clock, disk, is_new=arguments.again)
    result: dict[str, object] = {
        **asdict(found), "folder": os.path.abspath(arguments.folder), "free_bytes": free_bytes
    }  # fmt: skip
    text = facts(
        [
            ("QEMU", found.version),
            ("accelerator", f"{found.accelerator}: {found.reason}"),
            ("processor", found.processor),
            ("room", f"{in_words(free_bytes)} in {result['folder']}, for the memory and disks of machines"),
        ]
    )
    session.show(result, text)
