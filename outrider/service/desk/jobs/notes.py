"""What users see at their jobs where jobs are listed: one line, when it has changed enough.

Lines are shown by calls that may be lost; what is to be seen is known, and is shown again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush

from outrider.metadata.notation.hostlists import fold
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.ports import TellUser
from outrider.service.turns import Turns

MOST_AT_ONCE = 2
"""Lines on their way to the batch system: what it is asked for comes first."""
LOST_S = 300
CHANGED_S = 60
CHANGED_PERCENT = 20
"""An expected moment that changes by less, of the time until then, stays as it was told."""
DAY_S = 86_400
LOOKUP_S = 5
"""A look-up that takes longer is told of, and whom it waits for."""
MOST_CHARACTERS = 400


class JobNotes:
    """Lines that are to be shown, and those on their way; that of one job changes every `every_s` at most."""

    def __init__(self, every_s: int) -> None:
        self._every_s = every_s
        self._wanted: dict[str, tuple[JobEntry, str, int | None]] = {}
        self._due: dict[str, None] = {}
        """Jobs whose lines may change now."""
        self._turns: Turns[str] = Turns()
        """The same by users, and some that are not due any more."""
        self._later: list[tuple[int, str]] = []
        """Jobs whose lines may not change before an instant, as a heap; those that are not wanted any
        more are passed over."""
        self._asked: dict[str, int] = {}

    def consider(self, entry: JobEntry, text: str, now_s: int, start_s: int | None = None) -> None:
        """This is what a job's user should see now, and when the job is expected to start."""
        text = text[:MOST_CHARACTERS]
        if not text or (text, start_s) == (entry.noted, entry.noted_start_s):
            # What nobody needs to be told any more is not told: the job may run, or be over by then.
            self.forget(entry.key)
            return
        if entry.key not in self._wanted:
            self._plan(entry, now_s)
        self._wanted[entry.key] = (entry, text, start_s)

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
            entry, text, start_s = self._wanted.pop(job)
            del self._due[job]
            self._asked[job] = now_s
            entry.noted, entry.noted_s, entry.noted_start_s = text, now_s, start_s
            yield TellUser(job=job, text=text, start_s=start_s)

    def told(self, call: TellUser, result: object, entry: JobEntry | None) -> None:
        """A line has been shown, or has not: then it is, when it is next thought about."""
        self._asked.pop(call.job, None)
        if result is not None and entry is not None and entry.noted == call.text:
            entry.noted = ""

    def next_s(self, now_s: int) -> int | None:
        if len(self._asked) >= MOST_AT_ONCE:
            return now_s + LOST_S
        if len(self._due) > len(self._asked) or any(job not in self._asked for job in self._due):
            return now_s + 1
        return max(now_s + 1, self._later[0][0]) if self._later else None

    def _plan(self, entry: JobEntry, now_s: int) -> None:
        at_s = now_s if entry.noted_s is None else entry.noted_s + self._every_s
        if at_s <= now_s:
            self._let(entry)
        else:
            heappush(self._later, (at_s, entry.key))

    def _let(self, entry: JobEntry) -> None:
        if entry.key not in self._due:
            self._due[entry.key] = None
            self._turns.put(entry.job.uid, entry.key)


def note_of(
    entry: JobEntry,
    nodes: tuple[str, ...],
    longest_wait_s: int,
    now_s: int,
    planned: tuple[str, ...] = (),
) -> str:
    """The line: how it stands, and from a bound on that it takes long."""
    is_waiting = entry.has_image and entry.stage not in (Stage.STAGED, Stage.RUNNING) and not entry.bound
    entry.is_overdue = is_waiting and now_s - entry.since_s > longest_wait_s
    is_asked = entry.lookup_s is not None and now_s - entry.lookup_s >= LOOKUP_S
    if entry.stage is Stage.RESOLVING and not (entry.is_overdue or is_asked or entry.is_unmade):
        # That is over in a moment.
        return ""
    text = standing_of(entry, nodes, longest_wait_s, now_s, planned)
    return f"outrider: {text}" if text else ""


def standing_of(
    entry: JobEntry,
    nodes: tuple[str, ...],
    longest_wait_s: int,
    now_s: int,
    planned: tuple[str, ...] = (),
) -> str:
    """How it stands with a job, in words for its user."""
    text = _standing(entry, nodes, planned, now_s)
    if text and entry.options.words:
        text += f"; {entry.options.words}"
    elif text and _is_late(entry):
        text += "; it is not expected to end by its finish-by"
    if entry.yields_to:
        text = f"{_yielding(entry)}; {text}" if text else _yielding(entry)
    if text and entry.is_overdue:
        # How long exactly would be another line every minute.
        longest = _minutes(longest_wait_s)
        text += f" (it has waited for longer than {longest}, and stays held: see outrider show {entry.key})"
    return text


def _is_late(entry: JobEntry) -> bool:
    """Whether a job that waits would end after its deadline."""
    lines, limit_s = entry.lines, entry.job.limit_s
    if lines is None or lines.finish_by_s is None or entry.start_s is None or limit_s is None:
        return False
    return entry.stage is not Stage.RUNNING and entry.start_s + limit_s > lines.finish_by_s


def _yielding(entry: JobEntry) -> str:
    at = datetime.fromtimestamp(entry.yields_s).astimezone()
    if entry.stage is Stage.RUNNING:
        return f"it yields to reservation {entry.yields_to} at {at:%H:%M:%S}, and comes back"
    return f"it has yielded to reservation {entry.yields_to} and comes back"


def _turn_of(entry: JobEntry, name: str, planned: tuple[str, ...], now_s: int) -> str:
    """How it stands with a job whose start Outrider decides."""
    if entry.granted:
        return f"it starts now on {fold(planned)}"
    if not planned:
        return f"it waits for its turn{': ' if entry.words else ''}{entry.words}"
    staged = f", {name} is ready there" if entry.stage is Stage.STAGED else ""
    coming = f", {name} is on its way there" if entry.stage is Stage.STAGING else ""
    at = _clock(entry.start_s or now_s, now_s)
    return f"it is planned to start about {at} on {fold(planned)}{staged}{coming}"


def _clock(at_s: int, now_s: int) -> str:
    at = datetime.fromtimestamp(at_s).astimezone()
    return at.strftime("%H:%M") if at_s - now_s < DAY_S // 2 else at.strftime("%Y-%m-%d %H:%M")


def _standing(entry: JobEntry, nodes: tuple[str, ...], planned: tuple[str, ...], now_s: int) -> str:
    name = "its image" if entry.image is None else f"image {_base(entry.image.uri)}"
    if entry.bound:
        return f"is to run in reservation {entry.bound}"
    if entry.stage is Stage.RESOLVING and entry.is_unmade:
        # How far it is would be another line every few seconds.
        expected = "" if entry.ready_s is None else f", and expected about {_told_s(entry, now_s)}"
        return f"{name} is being converted{expected}"
    if entry.stage is Stage.RESOLVING:
        return f"{name} {_lookup_of(entry)}"
    if entry.stage is Stage.REFUSED:
        return f"{'its image is not brought' if entry.job.is_hint else 'it stays held'}: {entry.words}"
    if entry.is_scheduled and (entry.planned or entry.stage is Stage.WAITING):
        return _turn_of(entry, name, planned, now_s)
    if entry.stage is Stage.WAITING:
        return f"{name} waits: {entry.trouble or entry.words}"
    if entry.stage is Stage.STAGING:
        words = entry.words or entry.trouble
        trouble = f"; {words}" if words else ""
        return f"{name} is on its way, ready about {_told_s(entry, now_s)}{trouble}"
    if entry.stage is Stage.STAGED:
        return f"{name} is ready on {fold(nodes)}"
    return ""


def _lookup_of(entry: JobEntry) -> str:
    """Whom a look-up waits for. The same words as long as it does: they are no line a second."""
    if not entry.lookup:
        return "is looked up"
    if entry.lookup_s is None:
        return f"is to be looked up at {entry.lookup}, after those of other jobs of yours"
    at = datetime.fromtimestamp(entry.lookup_s).astimezone()
    return f"is looked up: {entry.lookup} was asked at {at:%H:%M:%S} and has not answered yet"


def start_of(entry: JobEntry, now_s: int) -> int | None:
    """When a job is expected to start whose image is on its way: with it, on nodes that are free; one that
    has a place in the order of jobs: then. As it was told before if that is near enough and still to come.
    None where nobody knows."""
    if entry.is_scheduled:
        start_s = (entry.start_s if entry.planned and not entry.granted else None) or 0
    elif entry.ready_s is None or not (entry.stage is Stage.STAGING or entry.is_unmade):
        return None
    else:
        start_s = max(entry.ready_s, entry.start_s or 0)
    if start_s <= now_s:
        return None
    before_s = entry.noted_start_s
    is_near = (
        before_s is not None and before_s > now_s and abs(start_s - before_s) <= _bound_s(start_s, now_s)
    )
    return before_s if is_near else start_s


def _bound_s(at_s: int, now_s: int) -> int:
    return max(CHANGED_S, (at_s - now_s) * CHANGED_PERCENT // 100)


def _told_s(entry: JobEntry, now_s: int) -> str:
    """When an image is expected, as it was told before if that is near enough."""
    ready_s = now_s if entry.ready_s is None else entry.ready_s
    before_s = entry.noted_ready_s
    if before_s is None or abs(ready_s - before_s) > _bound_s(ready_s, now_s):
        entry.noted_ready_s = before_s = ready_s
    return _clock(before_s, now_s)


def _base(uri: str) -> str:
    return uri.partition("@sha256:")[0].rstrip("/").rpartition("/")[2] or uri


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
