"""Best effort: which waiting job starts when, and where.

`BestEffortQueue` places workspaces on nodes, around reservations and by where their images are.
The queues over a counted pool of interchangeable processors, which are what a log without
images needs, are much faster. Each is a state machine: it is told what happened and when,
and answers with what starts.
"""

from __future__ import annotations

from outrider.core.besteffort.counted import POLICIES, Block, CountedJob, CountedQueue, Policy
from outrider.core.besteffort.easy_backfill import EasyQueue
from outrider.core.besteffort.profile_backfill import ProfileQueue, counted_queue

__all__ = [
    "POLICIES",
    "Block",
    "CountedJob",
    "CountedQueue",
    "EasyQueue",
    "Policy",
    "ProfileQueue",
    "counted_queue",
]
