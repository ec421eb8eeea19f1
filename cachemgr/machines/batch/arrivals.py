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
AGAIN_S = 8
"""So long is waited for what was found out before; it takes less than a second."""
MOST_TOLD = 1_000
STEP_S = 15
"""Less than the service waits for an answer."""


@dataclass
class Arrivals:
    """Machines that come to this node, one thread each, and what became of those that are done. Any thread
    may call. What nobody has asked for in time, or before the daemon ended, is found out anew."""

    clock: Clock
    most: int = 16
    # Users can make what brings their machines last for ever.
    most_of_one: int = 4
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, tuple[int, threading.Thread]] = field(default_factory=dict)
    _done: dict[str, tuple[float, MovedMachine | CacheError]] = field(default_factory=dict)
    _told: dict[str, None] = field(default_factory=dict)
    """Those that were told, the latest last."""

    def look(self, owner: str, uid: int, given: str) -> MovedMachine:
        """How far it is; begun if it was not. What has come of it is told once.

        What was told once is found out again while whoever asks waits: of a job's machines on several nodes
        one would be found out anew whenever another is done, and they would never all be.
        """
        with self._guard:
            found, thread = self._taken(owner), None
            if found is None:
                thread = self._running[owner][1] if owner in self._running else self._begin(owner, uid, given)
            is_waited_for = owner in self._told
        if thread is not None and is_waited_for:
            thread.join(AGAIN_S)
            with self._guard:
                found = self._taken(owner)
        if found is None:
            return MovedMachine(COMING)
        if isinstance(found, CacheError):
            raise found
        with self._guard:
            self._told[owner] = None
            if len(self._told) > MOST_TOLD:
                del self._told[next(iter(self._told))]
        return found

    def _taken(self, owner: str) -> MovedMachine | CacheError | None:
        at_s, found = self._done.pop(owner, (0.0, None))
        return found if self.clock.monotonic_s() - at_s < TOLD_S else None

    def _begin(self, owner: str, uid: int, given: str) -> threading.Thread:
        if len(self._running) >= self.most:
            raise InUse(f"{self.most} machines are coming to this node already")
        if sum(whose == uid for whose, _ in self._running.values()) >= self.most_of_one:
            raise InUse(f"{self.most_of_one} machines of that user are coming to this node already")
        thread = threading.Thread(
            target=self._bring, args=(owner, uid, given), name=f"arrival {owner}", daemon=True
        )
        self._running[owner] = uid, thread
        thread.start()
        return thread

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
