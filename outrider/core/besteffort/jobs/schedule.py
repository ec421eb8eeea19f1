"""When and where jobs that wait start, where Outrider decides that and not the batch system.

A walk goes through the queue in its order. Each job gets the earliest place that its nodes, and the moment
at which its image can be there, allow; whether it may keep a place for which it has to wait is the
backfilling rule's choice (`overtaking`, which the simulator's queue of workspaces obeys, too). What starts
now is told at once. Places are kept in the forecast under the job's name, so that whoever looks for nodes
next finds them taken; a job that was told to start keeps its place until it is seen to run or taken back.

A walk is made in slices, so that whoever asks something else waits for one of them. Nothing is lost by that:
what a slice has found is found, and what has changed before the next one is looked at as it is between two
walks (`kept`). So a walk that nothing interrupts decides what it would in one go, and one that is interrupted
what one from the beginning would, once it is over.

Nothing here knows of a batch system or of pools: what concerns images is asked of `Staging`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from typing import Protocol

from outrider.core.besteffort.backfilling.group_line import GroupLine
from outrider.core.besteffort.backfilling.overtaking import Backfilling, Overtaking
from outrider.core.besteffort.jobs.free_spans import FreeSpans, Spans
from outrider.core.besteffort.jobs.kept import Found, KeptPlaces, unaffected
from outrider.core.besteffort.jobs.order import Rank
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.timeline import mask_of, numbers
from outrider.core.nodes.together import earliest_together

CONSERVATIVE_PLACES = 64
"""With conservative backfilling so many have a place in the future: the first of the queue."""
MOST_PLACES = 10_000
"""So many can be asked for. Each costs each walk about half a millisecond on thousands of nodes."""
SLICE = 4
"""For so many jobs a place is looked for in one go, while others wait. An image counts as much."""
NODES = 256
"""To look at so many nodes anew, or to take a place from so many, costs as much as a place."""
NODES_GIVEN_UP = 128
"""To give up places on so many nodes, too."""
MANY_PLACES = 8
"""With so many places it pays to keep in mind in which orders nodes were before they were given."""
REST = 3
"""To look through those that have no right to a place in the future costs as much as so many places."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleRules:
    """Who may overtake. `places` is how many may wait for a place at a time: 1 is EASY; None is
    conservative, as far as a walk through thousands of jobs allows it (`CONSERVATIVE_PLACES`)."""

    backfilling: Backfilling = Backfilling.RESERVING
    places: int | None = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledJob:
    """A job that waits: on how many of which nodes it runs, what it takes of each, packed, and how long."""

    name: str
    nodes_wanted: int
    need: int
    limit_s: int
    eligible: int
    image: str = ""
    """The key of its image; empty if it has none. What has the same can start at the same instants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlace:
    """Nodes for a job: from when on, and when its image will be on all of them."""

    start_s: int
    ready_s: int
    nodes: tuple[int, ...]


class Staging(Protocol):
    """What is known of images. Jobs without one are never asked about."""

    def instants(self, job: ScheduledJob, now_s: int) -> Sequence[tuple[int, int]]:
        """The instants from which on a job could start as far as its image is concerned, and a mask of the
        nodes on which it could: where the image is now, where it comes to, where it could be brought."""

    def find(self, job: ScheduledJob, now_s: int) -> JobPlace | None:
        """The earliest place on nodes that have its image by then. Nothing is changed."""

    def keep(self, job: ScheduledJob, place: JobPlace) -> None:
        """A place that was found is the job's: its image is to be there."""


class NoImages:
    """For jobs of which none has an image."""

    def instants(self, job: ScheduledJob, now_s: int) -> Sequence[tuple[int, int]]:
        raise AssertionError(f"job {job.name} has an image, and nobody here knows of images")

    def find(self, job: ScheduledJob, now_s: int) -> JobPlace | None:
        raise AssertionError(f"job {job.name} has an image, and nobody here knows of images")

    def keep(self, job: ScheduledJob, place: JobPlace) -> None:
        raise AssertionError(f"job {job.name} has an image, and nobody here knows of images")


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """What became of those that wait: who starts now, and who has a place for later."""

    starts: dict[str, JobPlace]
    planned: dict[str, JobPlace]
    is_over: bool = True
    """If not, `starts` are those of one slice, and others may start and have places before it is."""


Kind = tuple[int, int, str]
"""What is needed of a node, a mask of the nodes, and an image."""


_Chances = tuple[tuple[int, Spans], ...]
_Turn = tuple[Rank, str, _Chances]
_Starts = dict[str, JobPlace]


@dataclass(slots=True)
class _SoFar:
    """What a walk has come to."""

    found: list[Found]
    overtaking: Overtaking
    spans: FreeSpans
    starts: _Starts = field(default_factory=dict)
    """Those that nobody has been told yet."""
    starts_behind: int = 0
    left: int = 0
    """For so many places more may be looked for in the slice."""


class JobSchedule:
    """The jobs of one site of which Outrider decides when they start."""

    def __init__(
        self, forecast: BusyForecast, rules: ScheduleRules | None = None, staging: Staging | None = None
    ) -> None:
        self._forecast = forecast
        self._rules = rules or ScheduleRules()
        self._staging = staging or NoImages()
        self._jobs: dict[str, tuple[Rank, ScheduledJob]] = {}
        self._queue: list[tuple[Rank, str]] = []
        self._alike: dict[Kind, dict[int, GroupLine[tuple[Rank, str]]]] = {}
        """Jobs that could start at the same instants on the same nodes, by how many they want."""
        self._planned: dict[str, JobPlace] = {}
        self._started: dict[str, JobPlace] = {}
        self._available = 0
        self._kept: KeptPlaces | None = None
        """What the slice before found, and those before it."""
        self._steps: Generator[_Starts, None, _Starts] | None = None
        """A walk that is not over."""
        self._slice = SLICE
        self._changes = 0
        """How often jobs have come, gone or become others."""
        self._state = (0, 0, 0, 0)
        """What a walk goes on in: now, the nodes that can be used, changes here and of the forecast."""
        self._nodes_given_up = 0
        self._given_up: dict[str, int] = {}
        """When jobs would have started whose places were given up in a walk that is not over, and for which
        none has been looked for since."""

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def in_turn(self) -> Sequence[str]:
        """Those that wait, in their order."""
        return [name for _, name in self._queue]

    def job(self, name: str) -> ScheduledJob:
        return self._jobs[name][1]

    def has(self, name: str) -> bool:
        """Whether a job waits for its turn."""
        return name in self._jobs

    @property
    def started(self) -> Mapping[str, JobPlace]:
        """Those that were told to start and keep their places: nobody has seen them run yet."""
        return self._started

    def put(self, job: ScheduledJob, rank: Rank) -> None:
        """A job waits; or what it wants or its rank is another now. One that was told to start does not
        start any more."""
        known = self._jobs.get(job.name)
        if known == (rank, job):
            return
        self.remove(job.name)
        self._changes += 1
        self._jobs[job.name] = rank, job
        insort(self._queue, (rank, job.name))
        lines = self._alike.setdefault(_kind(job), {})
        lines.setdefault(job.nodes_wanted, GroupLine()).add((rank, job.name), job.limit_s)

    def remove(self, name: str) -> None:
        """A job waits no more: it is seen to run, or is gone, or somebody else decides."""
        if name in self._jobs:
            self._changes += 1
        self._leave_queue(name)
        self._started.pop(name, None)
        self._planned.pop(name, None)
        self._given_up.pop(name, None)
        self._forecast.know(_plan(name), ())

    def interrupt(self) -> None:
        """Something has changed that nobody sees here, such as where images are: a walk that is not over
        begins again."""
        self._changes += 1

    def walk(self, now_s: int, available: int) -> Walk:
        """Decide anew, for all that wait, in one go."""
        starts: _Starts = {}
        while True:
            part = self.go_on(now_s, available)
            starts |= part.starts
            if part.is_over:
                return replace(part, starts=starts)

    def go_on(self, now_s: int, available: int) -> Walk:
        """Decide anew, for all that wait, but no more than a slice of it. `available` is a mask of the nodes
        that can be used.

        If anything has changed since the slice before, a walk begins again behind the places that this does
        not concern. Each time its slices are twice as long: however often something changes, it ends. A slice
        ends behind all whose time has come: nobody starts later than by a walk in one go.
        """
        state = now_s, available, self._changes, self._forecast.changes
        steps, self._steps = self._steps, None
        if steps is None or state != self._state:
            self._slice = SLICE if steps is None else 2 * self._slice
            self._available = available
            steps = self._walk(now_s)
        try:
            starts, is_over = next(steps), False
            self._steps = steps
        except StopIteration as ended:
            starts, is_over = ended.value, True
        for name in starts:
            self._leave_queue(name)
        self._forecast.changed(now_s, now_s)
        self._state = now_s, available, self._changes, self._forecast.changes
        return Walk(starts=starts, planned=dict(self._planned), is_over=is_over)

    def _walk(self, now_s: int) -> Generator[_Starts, None, _Starts]:
        """Slice by slice who starts."""
        so_far = self._begin(now_s)
        overtaking, jobs, given_up = so_far.overtaking, self._jobs, self._given_up
        due = {name for name, start_s in given_up.items() if start_s <= now_s}
        for turn in self._in_turn(so_far, now_s):
            if turn is not None:
                _, name, chances = turn
                job = jobs[name][1]
                if not overtaking.may_wait and not _may_start(
                    job, chances or self._chances(job, so_far.spans, now_s)
                ):
                    if due:
                        due.discard(name)
                    if overtaking.is_strict:
                        break
                    continue
            cost = self._cost(turn)
            if so_far.left < min(cost, self._slice) and not due:
                self._kept = KeptPlaces(so_far.found, now_s, self._available, so_far.starts_behind)
                yield so_far.starts
                so_far.starts, so_far.left = {}, self._slice
            so_far.left -= cost
            if turn is None:
                continue
            due.discard(name)
            given_up.pop(name, None)
            if not self._decide(turn, job, so_far, now_s) and overtaking.is_strict:
                break
        self._kept = KeptPlaces(so_far.found, now_s, self._available, so_far.starts_behind)
        self._given_up.clear()
        return so_far.starts

    def _begin(self, now_s: int) -> _SoFar:
        """What is known before a walk begins: the places that stay as they are."""
        before = self._nodes_given_up
        found = self._keep(now_s)
        places = self._rules.places
        if places is None or places >= MANY_PLACES:
            # Mostly all places are given up, and taken on the same nodes by others.
            self._forecast.back_to_mark()
            self._forecast.mark(now_s)
        overtaking = Overtaking(self._rules.backfilling, CONSERVATIVE_PLACES if places is None else places)
        for each in found:
            if each.start_s is not None:
                overtaking.placed(each.start_s, now_s)
        left = self._slice - (self._nodes_given_up - before) // NODES_GIVEN_UP
        return _SoFar(found, overtaking, FreeSpans(self._forecast, now_s), left=left)

    def _cost(self, turn: _Turn | None) -> int:
        """Of looking for a place for a job, or through those that have no right to one."""
        if turn is None:
            return REST
        job = self._jobs[turn[1]][1]
        return SLICE if job.image else 1 + self._forecast.unknown(job.need) // NODES

    def _decide(self, turn: _Turn, job: ScheduledJob, so_far: _SoFar, now_s: int) -> bool:
        """Give a job a place, if there is one that it may have."""
        rank, name, _ = turn
        has_right = so_far.overtaking.may_wait
        place = self._find(job, now_s)
        if place is None or (place.start_s > place.ready_s and not has_right):
            if has_right:
                so_far.found.append(Found((rank, name), job, None, 0))
            return False
        so_far.overtaking.placed(place.start_s, place.ready_s)
        self._take(job, place)
        so_far.spans.took(place.nodes)
        nodes, is_started = _mask(place.nodes), place.start_s <= now_s
        if is_started:
            so_far.starts[name] = self._started[name] = place
        else:
            self._planned[name] = place
        if has_right:
            so_far.found.append(Found((rank, name), job, place.start_s, nodes, is_started))
        elif is_started:
            so_far.starts_behind |= nodes
        return True

    def _keep(self, now_s: int) -> list[Found]:
        """The first places of the queue that stay as they are; all others are given up."""
        before, self._kept = self._kept, None
        kept: list[Found] = []
        changed = 0
        if before is not None and before.now_s <= now_s:
            changed = _mask(self._forecast.changed(before.now_s, now_s)) | before.available ^ self._available
            kept = before.until(self._queue, self._jobs, changed)
        self._give_up_behind(kept, now_s)
        # What is free of the changed nodes is now what the first of those that are kept had to choose from.
        nodes, usable = tuple(numbers(changed)), self._available
        for index, each in enumerate(kept):
            if not unaffected(each.job, each.start_s, self._forecast, nodes, usable, now_s):
                del kept[index:]
                self._give_up_behind(kept, now_s)
                break
        return kept

    def _give_up_behind(self, kept: Sequence[Found], now_s: int) -> None:
        """Nobody else has a place for later."""
        planned = {
            name: replace(self._planned.pop(name), ready_s=now_s)
            for (_, name), start_s in ((each.turn, each.start_s) for each in kept)
            if start_s is not None
        }
        for name, place in self._planned.items():
            self._forecast.know(_plan(name), ())
            self._given_up[name] = place.start_s
            self._nodes_given_up += len(place.nodes)
        self._planned = planned

    def _in_turn(self, so_far: _SoFar, now_s: int) -> Iterator[_Turn | None]:
        """All jobs behind those that keep their places in order, as long as each may have one for later; from
        then on, after None, those alone for which enough nodes may be free."""
        overtaking = so_far.overtaking
        # Whoever was told to start leaves the queue between two slices.
        for rank, name in self._queue[len(so_far.found) :]:
            if not overtaking.may_wait and not overtaking.is_strict:
                yield None
                yield from self._hopeful((rank, name), so_far.spans, now_s)
                return
            yield rank, name, ()

    def _hopeful(self, first: tuple[Rank, str], spans: FreeSpans, now_s: int) -> Iterator[_Turn]:
        """Jobs from one on in the queue, in order, for which enough nodes are free for long enough."""
        found: list[Iterator[_Turn]] = []
        for lines in self._alike.values():
            _, anyone = next(iter(lines.values())).places[0]
            chances = self._chances(self._jobs[anyone][1], spans, now_s)
            most = max([len(free) for _, free in chances], default=0)
            found += [
                _turns(line.fitting(first, partial(_longest_s, count, chances)), chances)
                for count, line in lines.items()
                if count <= most
            ]
        return merge(*found)

    def _chances(self, job: ScheduledJob, spans: FreeSpans, now_s: int) -> _Chances:
        """When a job could start as far as its image is concerned, and what is free then."""
        return tuple((at_s, spans.spans(job.need, mask, at_s)) for at_s, mask in self._instants(job, now_s))

    def _instants(self, job: ScheduledJob, now_s: int) -> Iterable[tuple[int, int]]:
        usable = job.eligible & self._available
        if not job.image:
            return ((now_s, usable),)
        return [(at_s, mask & usable) for at_s, mask in self._staging.instants(job, now_s)]

    def _find(self, job: ScheduledJob, now_s: int) -> JobPlace | None:
        if job.image:
            return self._staging.find(job, now_s)
        found = earliest_together(
            self._forecast,
            need=job.need,
            count=job.nodes_wanted,
            duration_s=job.limit_s,
            eligible=job.eligible & self._available,
            now_s=now_s,
        )
        return None if found is None else JobPlace(start_s=found[0], ready_s=now_s, nodes=found[1])

    def _take(self, job: ScheduledJob, place: JobPlace) -> None:
        end_s = place.start_s + job.limit_s
        taken = Taken(nodes=place.nodes, start_s=place.start_s, end_s=end_s, amount=job.need)
        self._forecast.know(_plan(job.name), (taken,))
        if job.image:
            self._staging.keep(job, place)

    def _leave_queue(self, name: str) -> None:
        known = self._jobs.pop(name, None)
        if known is None:
            return
        rank, job = known
        del self._queue[bisect_left(self._queue, (rank, name))]
        kind, count = _kind(job), job.nodes_wanted
        lines = self._alike[kind]
        lines[count].remove((rank, name))
        if not lines[count].places:
            del lines[count]
        if not lines:
            del self._alike[kind]


def _may_start(job: ScheduledJob, chances: _Chances) -> bool:
    """Whether enough nodes are free for long enough when its image can be there."""
    return job.limit_s <= _longest_s(job.nodes_wanted, chances)


def _longest_s(count: int, chances: _Chances) -> int:
    """For how long so many nodes are free at most at one of these instants; -1 if they never are."""
    longest_s = -1
    for at_s, free in chances:
        if len(free) >= count:
            longest_s = max(longest_s, free[-count][0] - at_s)
    return longest_s


def _turns(jobs: Iterable[tuple[Rank, str]], chances: _Chances) -> Iterator[_Turn]:
    return ((rank, name, chances) for rank, name in jobs)


def _kind(job: ScheduledJob) -> Kind:
    return job.need, job.eligible, job.image


def _plan(name: str) -> str:
    """Under which name the forecast has a job's place."""
    return f"plan {name}"


def _mask(nodes: Collection[int]) -> int:
    return mask_of(nodes, max(nodes) + 1) if nodes else 0
