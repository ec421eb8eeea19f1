"""Kernels that a site offers to machines: a folder each, named by `boot:`.

    /etc/outrider/boot/NAME/kernel      what QEMU's -kernel takes
    /etc/outrider/boot/NAME/initrd      if it needs one
    /etc/outrider/boot/NAME/append      its command line

Without a name, or with `disk`, a machine boots from its image.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest

FOLDER = "/etc/outrider/boot"
FROM_DISK = ("", "disk")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
MOST_APPEND_BYTES = 2000


@dataclass(frozen=True)
class BootFiles:
    """How a machine boots; from its first disk if there is no kernel."""

    kernel: str | None = None
    initrd: str | None = None
    append: str = ""


def boot_files(name: str, folder: str = FOLDER) -> BootFiles:
    """The kernel of that name on this node."""
    if name in FROM_DISK:
        return BootFiles()
    if NAME.fullmatch(name) is None:
        raise BadRequest(f"{name[:40]!r} is not the name of a kernel")
    kernel, initrd = f"{folder}/{name}/kernel", f"{folder}/{name}/initrd"
    if not os.path.isfile(kernel):
        raise BadRequest(f"this node offers no kernel {name}: there is no {kernel}; ask the administrator")
    append = ""
    with suppress(FileNotFoundError), open(f"{folder}/{name}/append", encoding="utf-8") as file:
        append = " ".join(file.read(MOST_APPEND_BYTES).split())
    return BootFiles(kernel, initrd if os.path.isfile(initrd) else None, append)
