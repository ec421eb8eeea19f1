"""How far a job's machine is, in a word that its node's daemon reads without opening a file: a link's text.

    readiness -> 2 worker1 10.211.0.2 runs

The first number counts the machines of the job from 1 on; one that is alone has no address, but a hyphen.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from cachemgr.machines import states
from cachemgr.machines.guest import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.wish import MachineWish

LINK = "readiness"
BOOTS, JOINED, WAITS, RUNS, ENDED, FAILED, SUSPENDED = (
    "boots", "joined", "waits", "runs", "ended", "failed", "suspended",
)  # fmt: skip
"""In this order; `waits` is for the others of its job."""
STATES = (BOOTS, JOINED, WAITS, RUNS, ENDED, FAILED, SUSPENDED)
OF_GUEST = {"joined": JOINED, channel.READY: WAITS, "began": RUNS, "ended": ENDED, "failed": FAILED}
TEXT = re.compile(r"([1-9][0-9]{0,3}) ([A-Za-z0-9-]{1,63}) (-|[0-9.]{7,15}) ([a-z]{1,9})")
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Readiness:
    """Of one machine, written by its keeper."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._told = ""

    def tell(self, wish: MachineWish, state: str) -> None:
        """Leave the word, if it is another one than before."""
        word = SUSPENDED if state == states.SUSPENDED else self._of_guest()
        place = "1 vm1 -"
        if wish.cluster is not None:
            own = wish.cluster
            place = f"{own.number + 1} {own.name} {own.addresses[own.number]}"
        text = f"{place} {word}"
        if text == self._told:
            return
        path = f"{self._machine.folder}/{LINK}"
        with suppress(OSError):
            with suppress(FileNotFoundError):
                os.unlink(f"{path}.new")
            os.symlink(text, f"{path}.new")
            os.replace(f"{path}.new", path)
            self._told = text

    def _of_guest(self) -> str:
        said = [OF_GUEST[line[0]] for line in self._words() if line[0] in OF_GUEST]
        return said[-1] if said else BOOTS

    def _words(self) -> list[list[str]]:
        return channel.words(self._machine.site.disk, self._machine.folder)


def readiness_in(above: str, name: str) -> str:
    """The word of the machine in a folder of a user's, whoever that is: no link there is followed."""
    with suppress(OSError):
        above_fd = os.open(above, FOLDER)
        try:
            folder_fd = os.open(name, FOLDER, dir_fd=above_fd)
            try:
                text = os.readlink(LINK, dir_fd=folder_fd)
            finally:
                os.close(folder_fd)
        finally:
            os.close(above_fd)
        found = TEXT.fullmatch(text)
        if found is not None and found[4] in STATES:
            return text
    return ""
