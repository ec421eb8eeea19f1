"""What users see at their jobs where jobs are listed: one line, when it has changed enough.

Lines are shown by calls that may be lost; what is to be seen is known, and is shown again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush

from outrider.metadata.notation.hostlists import fold
from outrider.service.desk.jobs.job import Led, Stage
from outrider.service.ports import TellUser
from outrider.service.turns import Turns

MOST_AT_ONCE = 2
"""Lines on their way to the batch system: what it is asked for comes first."""
EVERY_S = 20
"""How often the line of one job may change."""
LOST_S = 300
CHANGED_S = 60
CHANGED_PERCENT = 20
"""An expected moment that changes by less, of the time until then, stays as it was told."""
DAY_S = 86_400
LOOKUP_S = 5
"""A look-up that takes longer is told of, and whom it waits for."""
MOST_CHARACTERS = 400


class JobNotes:
    """Lines that are to be shown, and those on their way."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[Led, str]] = {}
        self._due: dict[str, None] = {}
        """Jobs whose lines may change now."""
        self._turns: Turns[str] = Turns()
        """The same by users, and some that are not due any more."""
        self._later: list[tuple[int, str]] = []
        """Jobs whose lines may not change before an instant, as a heap; those that are not wanted any
        more are passed over."""
        self._asked: dict[str, int] = {}

    def consider(self, led: Led, text: str, now_s: int) -> None:
        """This is what a job's user should see now."""
        text = text[:MOST_CHARACTERS]
        if text == led.noted:
            self.forget(led.key)
        elif text:
            if led.key not in self._wanted:
                self._plan(led, now_s)
            self._wanted[led.key] = (led, text)

    def forget(self, job: str) -> None:
        self._wanted.pop(job, None)
        self._due.pop(job, None)

    def calls(self, now_s: int) -> Iterator[TellUser]:
        for lost in [job for job, at_s in self._asked.items() if now_s - at_s >= LOST_S]:
            del self._asked[lost]
        while self._later and self._later[0][0] <= now_s:
            _, job = heappop(self._later)
            if job in self._wanted:
                self._let(self._wanted[job][0])
        while len(self._asked) < MOST_AT_ONCE:
            taken = self._turns.take(lambda _, job: job not in self._asked)
            if taken is None:
                return
            job = taken[1]
            if job not in self._due:
                continue
            led, text = self._wanted.pop(job)
            del self._due[job]
            self._asked[job] = now_s
            led.noted, led.noted_s = text, now_s
            yield TellUser(job=job, text=text)

    def told(self, call: TellUser, result: object, led: Led | None) -> None:
        """A line has been shown, or has not: then it is, when it is next thought about."""
        self._asked.pop(call.job, None)
        if result is not None and led is not None and led.noted == call.text:
            led.noted = ""

    def next_s(self, now_s: int) -> int | None:
        if len(self._asked) >= MOST_AT_ONCE:
            return now_s + LOST_S
        if len(self._due) > len(self._asked) or any(job not in self._asked for job in self._due):
            return now_s + 1
        return max(now_s + 1, self._later[0][0]) if self._later else None

    def _plan(self, led: Led, now_s: int) -> None:
        at_s = now_s if led.noted_s is None else led.noted_s + EVERY_S
        if at_s <= now_s:
            self._let(led)
        else:
            heappush(self._later, (at_s, led.key))

    def _let(self, led: Led) -> None:
        if led.key not in self._due:
            self._due[led.key] = None
            self._turns.put(led.job.uid, led.key)


def note_of(led: Led, nodes: tuple[str, ...], longest_wait_s: int, now_s: int) -> str:
    """The line: how it stands, and from a bound on that it takes long."""
    is_waiting = led.stage not in (Stage.STAGED, Stage.RUNNING) and not led.bound
    led.is_overdue = is_waiting and now_s - led.since_s > longest_wait_s
    is_asked = led.lookup_s is not None and now_s - led.lookup_s >= LOOKUP_S
    if led.stage is Stage.RESOLVING and not (led.is_overdue or is_asked):
        # That is over in a moment.
        return ""
    text = standing_of(led, nodes, longest_wait_s, now_s)
    return f"outrider: {text}" if text else ""


def standing_of(led: Led, nodes: tuple[str, ...], longest_wait_s: int, now_s: int) -> str:
    """How it stands with a job, in words for its user."""
    text = _standing(led, nodes, now_s)
    if text and led.is_overdue:
        # How long exactly would be another line every minute.
        longest = _minutes(longest_wait_s)
        text += f" (it has waited for longer than {longest}, and stays held: see outrider show {led.key})"
    return text


def _standing(led: Led, nodes: tuple[str, ...], now_s: int) -> str:
    name = "its image" if led.image is None else f"image {_base(led.image.uri)}"
    if led.bound:
        return f"is to run in reservation {led.bound}"
    if led.stage is Stage.RESOLVING:
        return f"{name} {_lookup_of(led)}"
    if led.stage is Stage.REFUSED:
        return f"it stays held: {led.words}"
    if led.stage is Stage.WAITING:
        return f"{name} waits: {led.trouble or led.words}"
    if led.stage is Stage.STAGING:
        words = led.words or led.trouble
        trouble = f"; {words}" if words else ""
        return f"{name} is on its way, ready about {_told_s(led, now_s)}{trouble}"
    if led.stage is Stage.STAGED:
        return f"{name} is ready on {fold(nodes)}"
    return ""


def _lookup_of(led: Led) -> str:
    """Whom a look-up waits for. The same words as long as it does: they are no line a second."""
    if not led.lookup:
        return "is looked up"
    if led.lookup_s is None:
        return f"is to be looked up at {led.lookup}, after those of other jobs of yours"
    at = datetime.fromtimestamp(led.lookup_s).astimezone()
    return f"is looked up: {led.lookup} was asked at {at:%H:%M:%S} and has not answered yet"


def _told_s(led: Led, now_s: int) -> str:
    """When an image is expected, as it was told before if that is near enough."""
    ready_s = now_s if led.ready_s is None else led.ready_s
    before_s = led.noted_ready_s
    bound_s = max(CHANGED_S, (ready_s - now_s) * CHANGED_PERCENT // 100)
    if before_s is None or abs(ready_s - before_s) > bound_s:
        led.noted_ready_s = before_s = ready_s
    at = datetime.fromtimestamp(before_s).astimezone()
    return at.strftime("%H:%M") if before_s - now_s < DAY_S // 2 else at.strftime("%Y-%m-%d %H:%M")


def _base(uri: str) -> str:
    return uri.partition("@sha256:")[0].rstrip("/").rpartition("/")[2] or uri


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
