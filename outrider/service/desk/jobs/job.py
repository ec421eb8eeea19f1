"""Jobs that are led to their images: each as far as the service knows it, and all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from outrider.core.images.pools import Life
from outrider.metadata.joblines import JobLines
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.jobs.options.choice import OptionState
from outrider.service.desk.nodes.owners import key_of, owner_of
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.user_turns import Rota
from outrider.service.meter import Log
from outrider.service.ports import FoundImage, Readers

WAITING = (JobState.HELD, JobState.PENDING)


class Stage(Enum):
    """How far a job has come."""

    RESOLVING = "resolving"
    """It is not known yet what its image is."""
    REFUSED = "refused"
    """Its image cannot be had as it is named: its user has to do something, or it is tried again."""
    WAITING = "waiting"
    """No nodes have room for its image."""
    STAGING = "staging"
    STAGED = "staged"
    """Its image is where it may start: that is up to the batch system now."""
    RUNNING = "running"


@dataclass(slots=True)
class JobEntry:
    """One job. Nodes are numbers of the slot table."""

    job: RmsJob
    since_s: int
    """Since when it waits for its image."""
    stage: Stage = Stage.RESOLVING
    lines: JobLines | None = None
    image: FoundImage | None = None
    copies: dict[int, Life] = field(default_factory=dict)
    via: dict[int, int] = field(default_factory=dict)
    """By node, the transfer that was to bring its copy there."""
    here: set[int] = field(default_factory=set)
    """Nodes on which its image is known to be, pinned for it."""
    number: int = 0
    """Of a further image of a job, from 1 on; 0: this is the job itself."""
    further: tuple[JobEntry, ...] = ()
    """One for each image that it needs beside its own: on the same nodes, for as long."""
    until_s: int = 0
    ready_s: int | None = None
    """When its image is expected on enough nodes, or was there."""
    start_s: int | None = None
    enough_s: int | None = None
    """Since when its image is known to be on enough nodes, while others that have it are still asked."""
    released: tuple[str, ...] | None = None
    """The nodes that it was last released to, in the order of names; None: it is to be held."""
    is_ordered: bool = False
    """Whether the batch system has been told what is wanted now."""
    looks: int = 0
    """How often it was seen since the batch system was told."""
    is_left_to_others: bool = False
    """Whether somebody else holds it, although it was released."""
    is_array: bool = False
    bound: str = ""
    """The reservation that it is to run in."""
    lookup: str = ""
    """Who is asked what its image is, while that is not known."""
    lookup_s: int | None = None
    """Since when; None as long as others of its user's are looked up first."""
    is_unmade: bool = False
    """Whether its image is only being converted; `words` say how far that is."""
    words: str = ""
    """What is wrong, for its user."""
    trouble: str = ""
    """Why its image has not come to some node, for its user; nothing once bytes arrive again."""
    retry_s: int | None = None
    """When it is tried again, if something was wrong."""
    bad: dict[int, int] = field(default_factory=dict)
    """Nodes to which its image could not be brought, and until when they are gone round."""
    grace_s: int = 0
    """Until when it is not held although its image is not known to be where it may start: an earlier
    service has led it there."""
    improve_s: int = 0
    """From when on a better place may be looked for again."""
    yields_to: str = ""
    """The reservation for which it is to be requeued, or was, until it runs again."""
    yields_s: int = 0
    """When that starts."""
    noted: str = ""
    noted_s: int | None = None
    noted_ready_s: int | None = None
    is_scheduled: bool = False
    """Whether Outrider decides when it starts, and not the batch system."""
    planned: tuple[int, ...] = ()
    """Then: the nodes on which it is to start, at `start_s`."""
    granted: tuple[int, ...] = ()
    """Then: the nodes on which it may start now."""
    granted_s: int = 0
    """Since when it may."""
    noted_start_s: int | None = None
    """The start that it was last told to expect."""
    is_overdue: bool = False
    """Whether it has been told that it waits for longer than it should."""
    options: OptionState = field(default_factory=OptionState)

    @property
    def key(self) -> str:
        return key_of(self.job.key, self.number)

    @property
    def owner(self) -> str:
        return owner_of(self.key)

    @property
    def parts(self) -> tuple[JobEntry, ...]:
        """One for each of its images."""
        return (self, *self.further)

    @property
    def ready(self) -> set[int]:
        """Nodes on which all of its images are known to be."""
        return self.here.intersection(*(each.here for each in self.further))

    def there_s(self, node: int, ends: Mapping[int, int], now_s: int) -> int:
        """When all of its images are expected on a node, if transfers end then."""
        return max(
            now_s
            if life is None or life.transfer is None or node in each.here
            else max(now_s, ends.get(life.transfer, life.ready_s))
            for each in self.parts
            for life in (each.copies.get(node),)
        )

    @property
    def readers(self) -> Readers | None:
        """Who may use its images; None: everybody."""
        is_private = self.lines is not None and self.lines.is_private
        return Readers(uids=(self.job.uid,)) if is_private else None

    @property
    def has_image(self) -> bool:
        """Whether its user names one."""
        return self.job.metadata is not None

    @property
    def may_have_options(self) -> bool:
        """Whether its user names several sizes of it, or may, since what he says has not been read."""
        return self.lines is None or bool(self.lines.options)


class JobQueues:
    """All jobs by their keys, and which of them are to be looked at next, users by turns.

    Thousands of jobs may change at one look. What follows for each is done in slices, between which
    others are answered; what is still to be done stands here.
    """

    def __init__(self, site: Site, agenda: Agenda, log: Log) -> None:
        self._site = site
        self._log = log
        self._agenda = agenda
        self.entries: dict[str, JobEntry] = {}
        self.to_read = Rota()
        """Those whose metadata has not been read."""
        self.to_choose = Rota()
        """Those that wait for nodes."""
        self.to_schedule: dict[str, None] = {}
        """Those that wait for their turn, where Outrider decides when jobs start."""
        self.touched = Rota()
        """Those of which something has changed: it may be time to release them, and to say so."""

    def counts(self) -> dict[str, int]:
        """How many jobs have come how far."""
        found = Counter(entry.stage for entry in self.entries.values())
        return {stage.value: found[stage] for stage in Stage}

    def overdue(self) -> int:
        """How many have been told that they wait for longer than they should."""
        return sum(entry.is_overdue for entry in self.entries.values())

    def take(self, queue: Rota, most: int) -> list[JobEntry]:
        """The next of a queue, as far as they are still led."""
        keys = [queue.take() for _ in range(min(most, len(queue)))]
        return [self.entries[key] for key in keys if key in self.entries]

    def touch(self, entry: JobEntry) -> None:
        """Something has changed of a job, or of one of its images."""
        self.touched.add(entry.job.key, entry.job.uid)

    def forget(self, entry: JobEntry) -> None:
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
