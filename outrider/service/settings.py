"""What an administrator sets, as far as decisions depend on it. Read from a file by `config`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from outrider.core.besteffort.jobs.order import Order
from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.links.network import Network


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleSettings:
    """The queues of which Outrider decides when their jobs start, and how."""

    queues: tuple[str, ...]
    rules: ScheduleRules = field(default_factory=ScheduleRules)
    order: Order = Order.FCFS
    start_within_s: int = 120
    """A job that was released and does not start for so long gives its place to others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One site.

    `link_rate_bytes_per_s` is what all transfers for reservations may take together;
    `reserve_s` how long before its latest start a transfer is begun if the link is idle (None:
    at once). `pool_bytes` is taken for the limit of a node that has never reported.
    """

    site: str = "site"
    head: str = ""
    """What the head is called that leads, where there are several; since when it does."""
    head_since_s: int = 0
    link_rate_bytes_per_s: int = 125_000_000
    urgent_rate_bytes_per_s: int | None = None
    """What a transfer may take whose reservation is endangered; None: no more than planned."""
    network: Network | None = None
    """The links that transfers for reservations cross, with what they may take of each; None: the one."""
    best_effort_rate_bytes_per_s: int = 0
    """What of the link is best effort's whatever deadlines there are: they are planned with the rest."""
    reserve_s: int | None = 600
    shipping: Literal["relay", "per-node"] = "relay"
    pool_bytes: int | None = None
    spread_s: int = 10
    """Added to the planned time of every transfer: for the first byte, the check, the rename."""

    environments: tuple[tuple[int, str], ...] = ()
    """By the slots of a node, the parallel environment that gives a job whole nodes of that kind, where the
    batch system has such things."""

    parts: tuple[str, ...] = ()
    """Of which resources of a node the batch system can keep a part for a reservation; of none: reservations
    have whole nodes."""
    has_fixed_parts: bool = False
    """Whether a reservation of parts has certain processors, which stay the same, and its nodes, too, once it
    has begun."""
    cpus_at_once: int = 1
    """A part of a node has a multiple of so many processors."""
    cpu_numbers: tuple[int, ...] | None = None
    """A part of a node has one of these numbers of processors, the smallest first; None: any number."""
    memory_of_cpu_mib: int | None = None
    """No job gets more memory than this for each of its processors, so that these keep it apart."""
    looks_for_uid: int | None = None
    """Whose files can be looked at; None: everybody's, with their own rights."""
    moves_starts: bool = True
    """Whether a reservation in which jobs run can be changed in the batch system."""
    look_every_s: int = 30
    progress_every_s: int = 2
    """How often a node is asked while an image arrives there."""
    reconcile_every_s: int = 300
    """How often store, batch system and nodes are compared as a whole."""
    most_sight_age_s: int = 300
    """Nothing is promised when the batch system has not been seen for so long."""
    away_after_s: int = 120
    """A node whose pool has not answered for so long is not promised to anybody."""
    pin_lease_s: int = 86_400
    """Pins last so long and are renewed: those of a service that is gone end by themselves."""
    grace_s: int = 300
    """How long after a reservation's end its pins stay."""
    keep_history_s: int = 90 * 86_400
    most_reservations: int = 100_000
    offers_held_s: int = 60
    """How long offers are held that were made instead of a refusal; 0: they are made and not held."""
    most_offers: int = 16
    """To so many users offers are held at once."""
    most_occurrences: int = 128
    """Of one reservation that recurs."""
    most_refusals: int | None = 120
    """Of one user in an hour, so many are written down; None: all."""
    most_calls: int = 64
    """Calls to nodes under way at once."""
    longest_wait_s: int = 1_800
    """A job that waits longer for its image is told so, and why."""
    note_every_s: int = 20
    """How often the line at one job may change."""
    most_copies: int = 8
    """To so many nodes the image of one job array is brought, and on so many it is kept for a job."""
    user_share_percent: int = 50
    """So much of a pool the images of one user's jobs that wait may take, of what other users' do not."""
    allows_preemptible: bool = False
    """Whether jobs may declare that they can be requeued for a reservation."""
    most_requeue_grace_s: int = 300
    """The longest time between the signal to such a job and its requeue."""
    allows_machines: bool = False
    """Whether jobs may run in virtual machines on their nodes."""
    saving_rate_bytes_per_s: int = 50_000_000
    """With which the memory of a machine is written to a node's disk, at least."""
    machines_folder: str = ""
    """Where machines are, if not on nodes but on the service's own machine."""
    moves_live: bool = False
    """Whether machines go to other nodes in holder jobs, without being saved."""
    consolidates: bool = False
    """Whether the service moves machines by itself, so that jobs start that wait for room."""
    consolidate_every_s: int = 30
    consolidate_actions: int = 60
    """So many actions within an hour at most."""
    schedule: ScheduleSettings | None = None
    """None: the batch system decides of all jobs when they start."""
    requeue_margin_s: int = 90
    """What the batch system may take to end a job that is requeued, and to clean up after it."""

    @property
    def deadline_rate_bytes_per_s(self) -> int:
        """What transfers with deadlines are planned with."""
        return self.link_rate_bytes_per_s - self.best_effort_rate_bytes_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Administrators:
    """Who may do everything: these users, the members of these groups, and root."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is spent on look-ups of images."""

    at_once: int = 32
    limit_s: float = 15
    """For one look-up in all, names of hosts and files beside the image included."""
    reading_at_once: int = 32
    reading_limit_s: float = 900
    waiting_of_one: int = 8
    """Of one user, running and waiting."""

    @property
    def of_one(self) -> int:
        """So many look-ups of one user run at once; where there are few threads, one."""
        return max(1, self.at_once // 16)

    @property
    def of_host(self) -> int:
        return max(1, self.at_once // 4)

    @property
    def slow(self) -> int:
        """So many may run that are slow, or are likely to be."""
        return max(1, self.at_once // 2)
