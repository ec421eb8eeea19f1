"""Replaces a file at once, or not at all."""

from __future__ import annotations

import os

from outrider.cli.errors import OutputError

NEW = ".outrider-new"


def write(path: str, content: bytes, *, like: str = "", mode: int = 0o644) -> None:
    """Beside, synced, renamed; mode and owner are those of `like`."""
    final = os.path.realpath(path)
    beside = f"{final}{NEW}"
    try:
        with open(
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb"
        ) as file:
            file.write(content)
            if like:
                found = os.stat(like)
                os.fchown(file.fileno(), found.st_uid, found.st_gid)
                mode = found.st_mode & 0o7777
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, final)
        folder = os.open(os.path.dirname(final), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
