"""Carries out changes to a site's own files: beside, synced, renamed, with a copy of what the site had."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from outrider.cli.errors import OutputError
from outrider.cli.installing.common.writing import write
from outrider.cli.installing.slurm.marking import LUA, SLURM, Marks, is_marked, restored
from outrider.cli.installing.slurm.plan import FileEdit
from outrider.cli.installing.slurm.siteconf import decoded, encoded

BACKUP = ".before-outrider"
SECOND_NS = 1_000_000_000


def read_text(path: str) -> str | None:
    """A file's text, from which its bytes can be made again; None if there is none."""
    try:
        return decoded(Path(path).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror}") from error


def apply(edits: Sequence[FileEdit]) -> None:
    """Make each change, unless the file has become another since it was read."""
    for edit in edits:
        if read_text(edit.path) != edit.present:
            raise OutputError(f"{edit.path} was changed by somebody else just now: look at it, and try again")
    for edit in edits:
        if edit.present is not None:
            own = restored(edit.present, _marks(edit.path), edit.path)
            write(f"{edit.path}{BACKUP}", encoded(own), like=edit.path)
        write(edit.path, encoded(edit.after), like=edit.path if edit.present is not None else "")


def take_out(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take our lines out of these files. What was changed, and what an administrator has to know."""
    done, remarks = [], []
    for path in dict.fromkeys(paths):
        text = read_text(path)
        if text is None or not is_marked(text, _marks(path)):
            continue
        own = restored(text, _marks(path), path)
        backup = read_text(f"{path}{BACKUP}")
        if backup is None and not own:
            os.unlink(path)
        else:
            write(path, encoded(own), like=path)
        if backup is not None and backup == own:
            os.unlink(f"{path}{BACKUP}")
        elif backup is not None:
            remarks.append(
                f"{path} was edited since: our lines are out, the edits are kept; the site's file as it was "
                f"is {path}{BACKUP}"
            )
        done.append(path)
    return done, remarks


def touch(path: str) -> None:
    """Have whoever watches a file read it again, if it is there.

    slurmctld does if the file is younger than the second in which it read it last, so this is a second
    ahead: what was read in this very second is read again.
    """
    if os.path.exists(path):
        os.utime(path)
        next_ns = os.stat(path).st_mtime_ns + SECOND_NS
        os.utime(path, ns=(next_ns, next_ns))


def _marks(path: str) -> Marks:
    return LUA if path.endswith(".lua") else SLURM
