"""Queues over a counted pool of interchangeable processors: what a log without images needs, much faster.

Each is a state machine: it is told what happened and when, and answers with what starts.
"""

from __future__ import annotations

from outrider.core.besteffort.counted.easy import EasyQueue
from outrider.core.besteffort.counted.jobs import POLICIES, Block, CountedJob, CountedQueue, Policy
from outrider.core.besteffort.counted.profile import ProfileQueue, counted_queue

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
