"""A job that is led to its image, as far as the service knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from outrider.core.images.pools import Life
from outrider.metadata.joblines import JobLines
from outrider.rms.base import RmsJob
from outrider.service.desk.jobs.image_lookup import JobImage
from outrider.service.desk.jobs.options.choice import OptionState
from outrider.service.desk.nodes.owners import key_of, owner_of


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
    image: JobImage | None = None
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
    def has_image(self) -> bool:
        """Whether its user names one."""
        return self.job.metadata is not None

    @property
    def may_have_options(self) -> bool:
        """Whether its user names several sizes of it, or may, since what he says has not been read."""
        return self.lines is None or bool(self.lines.options)

    @property
    def is_enough(self) -> bool:
        return len(self.ready) >= self.job.nodes_wanted
