"""What a user's home says of the machine of one of their jobs, since nodes see nothing of each other."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from cachemgr.base.disk import RealDisk, replace_file

HOLD = "hold"
"""How a holder job's program is called."""
HOLDER_NAME = "outrider-{}-{}"
"""What the service reads of a holder job: how far it is, and of which job the machine is."""
WAITS, READY, HAS = "waits", "ready", "has"
FOLDER_PREFIX = "job-"
"""Of the folder of a job's machine on its node; a holder job has one for a note of whose machine it has."""
HOLDS = "holds"
ENDED, DOOR, OUTPUTS, HOLDER = ".ended", ".door", ".outputs", "holder "
MOST_MARK_BYTES = 4096


@dataclass(frozen=True)
class Door:
    """Where a holder job waits for a running machine."""

    host: str
    port: int
    key: str = field(repr=False)
    """Made by the holder job, for this one journey."""
    rate: int
    """Bytes a second, at most."""


class SavedMark:
    """Where a job's machine is, noted in its user's home: another node cannot know otherwise.

    Whose home is not shared among the nodes is led back to the right one by the service alone.
    """

    def __init__(self, home: str, key: str) -> None:
        self._folder = f"{home}/.outrider/machines" if home.startswith("/") else ""
        self._path = f"{self._folder}/{key}"

    def write(self, place: str) -> None:
        if self._folder:
            with suppress(OSError):
                self._keep(self._path, f"{place}\n")

    def elsewhere(self, place: str) -> str:
        """Another place at which it is saved."""
        with suppress(OSError):
            noted = RealDisk().read(self._path, MOST_MARK_BYTES).decode(errors="replace").strip()
            at = noted.partition("\n")[0]
            return at if at != place else ""
        return ""

    def write_holder(self, place: str, holder: str) -> None:
        """It runs there, in a holder job."""
        if self._folder:
            self._keep(self._path, f"{place}\n{HOLDER}{holder}\n")

    def holder(self) -> str:
        """The holder job in which it runs, or ran last; nothing if it is in none."""
        with suppress(OSError):
            noted = RealDisk().read(self._path, MOST_MARK_BYTES).decode(errors="replace")
            return next((line[len(HOLDER) :] for line in noted.splitlines() if line.startswith(HOLDER)), "")
        return ""

    def write_outputs(self) -> None:
        """Its job's output is where this process' is. The job's next run may not open those files by itself:
        Slurm would empty them. Nor does the holder job to which a machine goes know them by itself."""
        paths = [_file_behind(number) for number in (1, 2)]
        if all(paths) and self._folder:
            self._keep(f"{self._path}{OUTPUTS}", json.dumps(paths))

    def open_outputs(self) -> None:
        """Have this process' output go where the job's was."""
        with suppress(OSError, ValueError, TypeError):
            paths = json.loads(RealDisk().read(f"{self._path}{OUTPUTS}", MOST_MARK_BYTES))
            for number, path in zip((1, 2), paths):
                opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
                os.dup2(opened, number)
                os.close(opened)

    def remove_rest(self) -> None:
        """The names of its outputs, and the door of a holder job that was killed."""
        self.remove_door()
        if self._folder:
            with suppress(OSError):
                os.unlink(f"{self._path}{OUTPUTS}")

    def write_door(self, door: Door) -> None:
        """A holder job waits for it."""
        self._keep(f"{self._path}{DOOR}", json.dumps(asdict(door)))

    def door(self) -> Door | None:
        """Who waits for it now. What is there of anybody else's counts not."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = os.stat(f"{self._path}{DOOR}")
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None
            plain = json.loads(RealDisk().read(f"{self._path}{DOOR}", MOST_MARK_BYTES))
            return Door(str(plain["host"]), int(plain["port"]), str(plain["key"]), int(plain["rate"]))
        return None

    def remove_door(self) -> None:
        if self._folder:
            with suppress(OSError):
                os.unlink(f"{self._path}{DOOR}")

    def _keep(self, path: str, text: str) -> None:
        os.makedirs(self._folder, 0o700, exist_ok=True)
        replace_file(RealDisk(), path, text.encode())

    def remove(self) -> None:
        if self._folder:
            with suppress(OSError):
                os.unlink(self._path)

    def write_end(self, status: int) -> None:
        """The job is over, and may be started once more all the same."""
        if self._folder:
            with suppress(OSError):
                self._keep(f"{self._path}{ENDED}", f"{status}\n")

    def take_end(self) -> int | None:
        """How it ended, if that was written down; told once."""
        with suppress(OSError, ValueError):
            noted = int(RealDisk().read(f"{self._path}{ENDED}", MOST_MARK_BYTES))
            os.unlink(f"{self._path}{ENDED}")
            return noted
        return None


def _file_behind(number: int) -> str:
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{number}")
        return path if path == os.devnull or (path.startswith("/") and os.path.isfile(path)) else ""
    return ""
