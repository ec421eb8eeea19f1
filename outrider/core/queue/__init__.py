"""Queues: which waiting job starts when.

Here so far is the queue over interchangeable processors. A queue is a state machine: it
is told what happened and when, and answers with the jobs to start.
"""

from __future__ import annotations

from outrider.core.queue.backfill import ProfileQueue, counted_queue
from outrider.core.queue.counted import POLICIES, Block, CountedJob, CountedQueue, Policy
from outrider.core.queue.easy import EasyQueue

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
