"""Suspended machines of jobs that come to this node or leave it: each step with the rights of their user."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass, field

from cachemgr.base.errors import CacheError, InUse, every_error
from cachemgr.machines.batch import kept
from cachemgr.machines.batch.moving import ARRIVE, MOVE
from cachemgr.protocol import JOB_OWNER, MovedMachine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

COMING = "coming"
TOLD_S = 60
"""What was found out longer ago may not be so any more."""
STEP_S = 15
"""Less than the service waits for an answer."""


@dataclass
class Arrivals:
    """Machines that come to this node, one thread each, and what became of those that are done. Any thread
    may call. What nobody has asked for in time, or before the daemon ended, is found out anew."""

    clock: Clock
    most: int = 16
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, threading.Thread] = field(default_factory=dict)
    _done: dict[str, tuple[float, MovedMachine | CacheError]] = field(default_factory=dict)

    def look(self, owner: str, uid: int, given: str) -> MovedMachine:
        """How far it is; begun if it was not. What has come of it is told once."""
        with self._guard:
            at_s, found = self._done.pop(owner, (0.0, None))
            if found is not None and self.clock.monotonic_s() - at_s < TOLD_S:
                if isinstance(found, CacheError):
                    raise found
                return found
            if owner not in self._running:
                if len(self._running) >= self.most:
                    raise InUse(f"{self.most} machines are coming to this node already")
                thread = threading.Thread(
                    target=self._bring, args=(owner, uid, given), name=f"arrival {owner}", daemon=True
                )
                self._running[owner] = thread
                thread.start()
        return MovedMachine(COMING)

    def _bring(self, owner: str, uid: int, given: str) -> None:
        found: MovedMachine | CacheError = CacheError(f"the machine of {owner} could not be brought")
        try:
            found = step_of(ARRIVE, owner, uid, given, None)
        except CacheError as error:
            found = error
        finally:
            with self._guard:
                del self._running[owner]
                self._done[owner] = self.clock.monotonic_s(), found


def step_of(name: str, owner: str, uid: int, given: str, timeout_s: float | None) -> MovedMachine:
    argv = [kept.PROGRAM, MOVE, name, key_of(owner)]
    try:
        done = kept.as_user(uid, argv, given, timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CacheError(f"the machine of {owner} could not be moved: {error}") from error
    if done.returncode != 0:
        kind = next((each for each in every_error() if each.exit_code == done.returncode), CacheError)
        words = done.stderr.strip()[-500:].removeprefix("outrider: ")
        raise kind(words or f"the machine of {owner} could not be moved")
    try:
        said = json.loads(done.stdout)
        return MovedMachine(str(said["state"]), str(said["place"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CacheError(f"{kept.PROGRAM} says {done.stdout[:100]!r}: is it of another version?") from error


def key_of(owner: str) -> str:
    """As the machine of a job, or of a task of an array, is called in its folder's name."""
    return owner[len(JOB_OWNER) :].replace(".", "-")
