"""All jobs that are led, and which of them are to be looked at next, and why.

Thousands of jobs may change at one look. What follows for each is done in slices, between which
others are answered; what is still to be done stands here.
"""

from __future__ import annotations

from outrider.rms.base import JobState
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.placement import JobPlacer
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.user_turns import Rota
from outrider.service.meter import Log

WAITING = (JobState.HELD, JobState.PENDING)


class JobQueues:
    """Jobs by their keys, and those that wait to be dealt with, users by turns."""

    def __init__(self, site: Site, agenda: Agenda, placer: JobPlacer, log: Log) -> None:
        self._site = site
        self._log = log
        self._agenda = agenda
        self._placer = placer
        self.entries: dict[str, JobEntry] = {}
        self.to_read = Rota()
        """Those whose metadata has not been read."""
        self.to_choose = Rota()
        """Those that wait for nodes."""
        self.to_schedule: dict[str, None] = {}
        """Those that wait for their turn, where Outrider decides when jobs start."""
        self.touched = Rota()
        """Those of which something has changed: it may be time to release them, and to say so."""

    @property
    def is_busy(self) -> bool:
        return bool(self.to_read or self.to_choose or self.touched)

    def take(self, queue: Rota, most: int) -> list[JobEntry]:
        """The next of a queue, as far as they are still led."""
        keys = [queue.take() for _ in range(min(most, len(queue)))]
        return [self.entries[key] for key in keys if key in self.entries]

    def touch(self, entry: JobEntry) -> None:
        """Something has changed of a job, or of one of its images."""
        self.touched.add(entry.job.key, entry.job.uid)

    def forget(self, entry: JobEntry) -> None:
        self._placer.forget(entry)
        for queue in (self.to_read, self.to_choose, self.touched):
            queue.discard(entry.key)
        self.to_schedule.pop(entry.key, None)
        del self.entries[entry.key]

    def wait_for_nodes(self, entry: JobEntry) -> None:
        entry.stage = Stage.WAITING
        if entry.is_scheduled:
            entry.planned = entry.granted = ()
            self.to_schedule[entry.key] = None
        else:
            self.to_choose.add(entry.key, entry.job.uid)

    def mend(self, entry: JobEntry) -> None:
        """Too few copies are left, or on their way: choose anew, with what there is."""
        self.touch(entry)
        usable = self.usable(set(entry.copies))
        if len(usable) < entry.job.nodes_wanted and entry.stage in (Stage.STAGING, Stage.STAGED):
            self._placer.drop_all(entry)
            self.wait_for_nodes(entry)

    def refuse(self, entry: JobEntry, words: str, after_s: int) -> None:
        """Its user has to do something; or it is right when it is tried again."""
        if entry.words != words:
            self.note_refusal(entry, words)
        entry.stage, entry.words, entry.trouble = Stage.REFUSED, words, ""
        self.retry(entry, after_s)

    def retry(self, entry: JobEntry, after_s: int) -> None:
        entry.retry_s = self._site.now_s + after_s
        self._agenda.add(entry.retry_s, Topic.JOB, entry.key)

    def look_again(self, entry: JobEntry, after_s: int) -> None:
        """Let something be said of a job then, if it still is as it is."""
        self._agenda.add(self._site.now_s + after_s, Topic.JOB, entry.key)

    def note(self, entry: JobEntry, outcome: str, reason: str) -> None:
        self._site.note("lead", f"job {entry.key}", outcome, reason, uid=entry.job.uid)

    def note_refusal(self, entry: JobEntry, words: str) -> None:
        """Write down that a job is refused, where that is found when the job is gone, and in the log: as of
        refused requests, so many of one user in an hour."""
        site, job = self._site, entry.job
        site.note_refusal("lead", f"job {entry.key}", "refused", words, uid=job.uid)
        say = self._log.debug if site.refusals.is_full(job.uid) else self._log.info
        say("job is refused", job=entry.key, user=job.user, words=words)

    def usable(self, nodes: set[int]) -> set[int]:
        available = self._site.book.available
        return {node for node in nodes if available >> node & 1}

    def name(self, node: int) -> str:
        return self._site.book.timeline.nodes[node].name

    def names(self, nodes: set[int]) -> tuple[str, ...]:
        known = self._site.book.timeline.nodes
        return tuple(sorted(known[node].name for node in nodes))
