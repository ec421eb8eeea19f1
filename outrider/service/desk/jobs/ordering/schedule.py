"""Jobs of the queues of which Outrider decides when and where they start.

All that wait are thought about at once, in one order (`core.besteffort.jobs.schedule`). Whose turn it is
gets its nodes and is released to exactly these, once its image is on all of them; all others stay held. So
nothing that is held starts while the service is away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order, OrderedJob, Rank, rank
from outrider.core.besteffort.jobs.placement import JobPlacement
from outrider.core.besteffort.jobs.schedule import JobPlace, JobSchedule, ScheduledJob
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import JobState, RmsJob, RmsReservation, Sight
from outrider.service.desk.jobs.job import WAITING, JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.ordering.came_back import came_back
from outrider.service.desk.jobs.placement import UNLIMITED_S, JobPlacer
from outrider.service.desk.nodes.running_jobs import Started
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log

BLOCKED = "it waits for other jobs, or for the time that its user has named"
LATER = 5
"""A job that did not start is thought about again after so many times as long as it had."""


class JobTurns:
    """Who starts now, who has a place for later, and who waits without one."""

    def __init__(
        self,
        site: Site,
        agenda: Agenda,
        jobs: JobQueues,
        placer: JobPlacer,
        log: Log,
    ) -> None:
        self._site = site
        self._agenda = agenda
        self._jobs = jobs
        self._placer = placer
        self._log = log
        settings = site.settings.schedule
        self._settings = settings
        self._queues = frozenset(() if settings is None else settings.queues)
        self._is_handed_back = False
        self._shares: dict[str, int] | None = None
        self._said: dict[str, int] | None = None
        self._reserved: tuple[RmsReservation, ...] = ()
        """The batch system's, if any job was told to start and was not seen to run before."""
        self._came_back: dict[str, int] = {}
        """When jobs that were sent back had been submitted."""
        self._schedule = JobSchedule(placer.forecast, None if settings is None else settings.rules, self)
        self._ways: dict[str, JobPlacement] = {}
        """How the image comes to the nodes of places that were found just now."""
        self._is_wanted = False
        self.is_under_way = False
        """Whether only a part of all that wait has been thought about: nobody chooses nodes meanwhile."""
        self.words = ""
        """What is wrong with the queues or the order of their jobs; empty if nothing is."""

    def wants(self, job: RmsJob) -> bool:
        """Whether it is decided here when a job starts."""
        return job.queue in self._queues and not self._is_handed_back and job.reservation is None

    def is_given_back(self, job: RmsJob) -> bool:
        """Whether a job without an image is still held by us, and nobody here will ever start it."""
        return (
            self._is_handed_back
            and job.queue in self._queues
            and job.metadata is None
            and job.is_held_by_us
            and job.state is JobState.HELD
        )

    def look(self, sight: Sight) -> None:
        """What is in the order of jobs has been seen anew."""
        if self._settings is None:
            return
        if sight.is_handed_back != self._is_handed_back:
            self._is_handed_back = sight.is_handed_back
            words = "the batch system starts all jobs" if sight.is_handed_back else "jobs have turns again"
            self._log.warning("queues are handed back" if sight.is_handed_back else "queues are taken over")
            self._site.note("schedule", "queues", "changed", words, uid=0)
        missing = sorted(self._queues - set(sight.queues)) if sight.queues else []
        names = ", ".join(self._settings.queues)
        handed_back = f"the batch system starts the jobs of {names}: outrider queues take-over changes that"
        unknown = [f"jobs.schedule.queues names {', '.join(missing)}, which the batch system does not have"]
        self._say(
            *([handed_back] if sight.is_handed_back else ()),
            *(unknown if missing else ()),
            *([sight.order_trouble] if sight.order_trouble else ()),
        )
        self._shares = dict(sight.shares) if sight.shares else None
        self._said = {key: place for place, key in enumerate(sight.order)} if sight.order else None
        self._reserved = tuple(sight.reservations) if self._schedule.started else ()
        waiting = (job for job in sight.jobs if job.state in WAITING and job.queue in self._queues)
        self._came_back = came_back((job.key, job.submitted_s) for job in waiting)
        self._is_wanted = True

    def see(self, entry: JobEntry) -> None:
        """A job has been seen: whose turn it was and who has not started gives its place to others."""
        settings, now_s = self._settings, self._site.now_s
        if settings is None or not entry.is_scheduled:
            return
        if entry.job.state not in WAITING:
            self.forget(entry.key)
            entry.granted = entry.planned = ()
            return
        if not entry.granted or entry.released is None:
            return
        is_late = now_s - entry.granted_s > settings.start_within_s
        if not is_late and self._is_reserved(entry):
            # It was told to start a moment too late, or a reservation came before it had started.
            entry.granted = entry.planned = ()
            self.forget(entry.key)
            self.put_again(entry)
            self._jobs.touch(entry)
        elif is_late:
            names = fold(self._jobs.names(set(entry.granted)))
            entry.granted = entry.planned = ()
            entry.words = (
                f"the batch system has not started it on {names} within {settings.start_within_s} s: "
                "see what it says of the job"
            )
            self._jobs.note(entry, "passed over", entry.words)
            self.forget(entry.key)
            self._jobs.retry(entry, LATER * settings.start_within_s)
            self._jobs.touch(entry)

    def started(self) -> Iterator[Started]:
        """Jobs that were told to start, and that no look has shown to run yet."""
        now_s, jobs = self._site.now_s, self._jobs
        for key, place in self._schedule.started.items():
            job = jobs.entries[key].job
            limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
            yield Started(job=job, nodes=jobs.names(set(place.nodes)), end_s=now_s + limit_s)

    def _is_reserved(self, entry: JobEntry) -> bool:
        """Whether the batch system keeps the nodes of a job that was told to start for a reservation that
        would begin before the job's limit: it does not start it there."""
        now_s, limit_s, nodes = self._site.now_s, entry.job.limit_s, self._jobs.names(set(entry.granted))
        until_s = now_s + (UNLIMITED_S if limit_s is None else limit_s)
        return any(
            each.is_whole
            and each.start_s < until_s
            and now_s < each.end_s
            and not set(nodes).isdisjoint(each.nodes)
            for each in self._reserved
        )

    def put_again(self, entry: JobEntry) -> None:
        """Something about a job is new: what it asks for, or that it may start at all."""
        is_waiting = entry.stage in (Stage.WAITING, Stage.STAGING, Stage.STAGED) and not entry.granted
        if entry.is_scheduled and is_waiting and entry.retry_s is None and entry.job.state in WAITING:
            self._jobs.to_schedule[entry.key] = None

    def forget(self, key: str) -> None:
        """A job runs, is gone, or is somebody else's business."""
        self._schedule.remove(key)
        self._ways.pop(key, None)

    def want(self) -> None:
        """Something has changed: think about all that wait."""
        self._is_wanted = True

    @property
    def is_due(self) -> bool:
        if self._settings is None:
            return False
        return self._is_wanted or self.is_under_way or bool(self._jobs.to_schedule)

    def go_on(self) -> None:
        """Think about all that wait, if anything has changed, but no more in one go than others can wait
        for. Who starts is told at once, and who has a place for later when it is over."""
        if not self.is_due:
            return
        if self._is_wanted or self._jobs.to_schedule:
            self._is_wanted = False
            self._take_in()
            self._schedule.interrupt()
        walk = self._schedule.go_on(self._site.now_s, self._site.book.available)
        self.is_under_way = not walk.is_over
        for key, place in walk.starts.items():
            entry = self._jobs.entries[key]
            entry.granted, entry.granted_s, entry.words = place.nodes, self._site.now_s, ""
            self._plan(entry, place)
            names = fold(self._jobs.names(set(place.nodes)))
            self._jobs.note(entry, "its turn", f"it starts on {names}")
            self._log.info("job has its turn", job=key, node=names)
        if self.is_under_way:
            return
        for key, place in walk.planned.items():
            self._plan(self._jobs.entries[key], place)
        for entry in self._jobs.entries.values():
            if entry.is_scheduled and entry.planned and not entry.granted and entry.key not in walk.planned:
                entry.planned, entry.start_s = (), None
                self._jobs.touch(entry)
        assert self._settings is not None
        if self._settings.rules.backfilling is Backfilling.OFF:
            self._make_room_for_first(walk.planned)

    def _make_room_for_first(self, planned: Collection[str]) -> None:
        """In a strict order nobody starts before the first one. If it has no place at all, the last of those
        whose images keep room, or a part of what its user may keep, gives that up."""
        waiting = self._schedule.in_turn
        if not waiting or waiting[0] in planned:
            return
        first, entries = self._schedule.job(waiting[0]), self._jobs.entries
        if not first.image or self.find(first, self._site.now_s) is not None:
            return
        for key in reversed(waiting[1:]):
            entry = entries[key]
            if entry.copies and not entry.granted:
                self._jobs.note(
                    entry, "gives way", f"job {first.name} is first, and has no room for its image"
                )
                self._placer.drop_all(entry)
                self._jobs.wait_for_nodes(entry)
                self._jobs.touch(entry)
                self._is_wanted = True
                return

    def instants(self, job: ScheduledJob, now_s: int) -> Sequence[tuple[int, int]]:
        return self._placer.instants(self._jobs.entries[job.name])

    def find(self, job: ScheduledJob, now_s: int) -> JobPlace | None:
        found = self._placer.in_turn(self._jobs.entries[job.name])
        if found is None:
            return None
        place, way = found
        if way is not None:
            self._ways[job.name] = way
        else:
            self._ways.pop(job.name, None)
        return place

    def keep(self, job: ScheduledJob, place: JobPlace) -> None:
        entry = self._jobs.entries[job.name]
        way = self._ways.pop(job.name, None)
        if way is None:
            return
        self._placer.take_in_turn(entry, way)
        entry.stage, entry.words = Stage.STAGING, ""
        names = ", ".join(self._jobs.names(set(entry.copies))[:8])
        self._jobs.note(entry, "planned", f"its image {job.image} is to be on {names}")

    def _say(self, *words: str) -> None:
        said = "; ".join(words)
        if said and said != self.words:
            self._log.warning("jobs' turns are not as they are to be", words=said)
        self.words = said

    def _plan(self, entry: JobEntry, place: JobPlace) -> None:
        """Remember a place, and look again when its time has come."""
        now_s = self._site.now_s
        if entry.planned == place.nodes and entry.start_s == place.start_s:
            return
        entry.planned, entry.start_s = place.nodes, place.start_s
        if place.start_s > now_s:
            self._agenda.add(place.start_s, Topic.JOB, entry.key)
        self._jobs.touch(entry)

    def _take_in(self) -> None:
        """Those that have begun to wait; and everybody, where ranks change by themselves."""
        assert self._settings is not None
        keys = list(self._jobs.to_schedule)
        self._jobs.to_schedule.clear()
        if self._settings.order is not Order.FCFS and self._settings.order is not Order.SIZE:
            keys += [key for key in self._jobs.entries if self._schedule.has(key) and key not in keys]
        for key in keys:
            entry = self._jobs.entries.get(key)
            if entry is None or entry.job.state not in WAITING or entry.bound:
                continue
            whole = BLOCKED if entry.job.is_blocked else self._placer.whole(entry)
            if isinstance(whole, str):
                entry.words = whole
                self._schedule.remove(key)
                self._jobs.touch(entry)
            else:
                self._schedule.put(whole, self._rank(entry))

    def _rank(self, entry: JobEntry) -> Rank:
        assert self._settings is not None
        job = entry.job
        candidate = OrderedJob(
            key=job.key,
            submitted_s=self._came_back.get(job.key, job.submitted_s),
            nodes_wanted=job.nodes_wanted,
            limit_s=UNLIMITED_S if job.limit_s is None else job.limit_s,
            user=job.user,
            account=job.account,
        )
        return rank(self._settings.order, candidate, self._site.now_s, self._shares, self._said)
