"""In which order jobs that wait are thought about: the lowest rank comes first.

The order decides who gets the first place, and with it whom nobody may delay; it preempts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Rank = tuple[int, int, int, str]
"""What the order says, when it was submitted, its key, the shorter first: no two jobs have the same."""
MILLION = 1_000_000


class Order(Enum):
    """By what jobs are put into their order; among equals by when they were submitted."""

    FCFS = "fcfs"
    """By nothing else."""
    AGE = "age"
    """By how long they have waited in relation to how long they ask to run: the shorter come sooner, and
    everybody comes at last."""
    SIZE = "size"
    """By how many nodes they want: the largest first."""
    SHARES = "shares"
    """By what the batch system says of their users' fair shares: who has had least comes first."""
    PROGRAM = "program"
    """By a program of the site's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderedJob:
    """What of a job an order may depend on."""

    key: str
    submitted_s: int
    nodes_wanted: int
    limit_s: int
    user: str = ""
    account: str = ""


def rank(
    order: Order,
    job: OrderedJob,
    now_s: int,
    shares: Mapping[str, int] | None = None,
    said: Mapping[str, int] | None = None,
) -> Rank:
    """A job's rank. `shares` has factors by user, in millionths, the highest first; `said` is, by job, the
    place that a program has given it. Who is in neither comes after those that are."""
    first = 0
    if order is Order.AGE:
        first = -max(0, now_s - job.submitted_s) * MILLION // max(1, job.limit_s)
    elif order is Order.SIZE:
        first = -job.nodes_wanted
    elif order is Order.SHARES and shares is not None:
        first = -shares.get(job.user, 0)
    elif order is Order.PROGRAM and said is not None:
        first = said.get(job.key, len(said))
    return first, job.submitted_s, len(job.key), job.key
