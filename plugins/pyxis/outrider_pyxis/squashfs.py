"""Whether a file is one that enroot can make a container of."""

from __future__ import annotations

import os

from cachemgr.base.errors import Unsuitable

MAGIC = b"hsqs"


def check_squashfs(path: str, *, is_link_followed: bool = True) -> None:
    """Pyxis would unpack anything: better a sentence here than a riddle there."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if is_link_followed else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
        try:
            head = os.pread(descriptor, len(MAGIC), 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Unsuitable(f"{path} cannot be opened: {error.strerror}") from error
    if head != MAGIC:
        raise Unsuitable(f"{path} is not a squashfs file: make one with `enroot import` or `mksquashfs`")
