"""The desk: one event in, what it is answered and what is to be done about it out.

It is the only owner of the book and of the store. It has no thread, no socket and no clock: who
drives it says what time it is. So the same desk runs in production and in simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.service.answers import Replied
from outrider.service.ports import Call, Finished
from outrider.service.requests import Asked, Ticked

Event = Asked | Finished | Ticked


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What an event led to."""

    replies: tuple[Replied, ...] = ()
    calls: tuple[Call, ...] = ()
