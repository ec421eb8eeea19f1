"""Who may have a connection, and who gives one up where all are taken.

A connection costs a user nothing, so that many users together could hold all there are. Therefore
whoever has fewer than others gets one from whoever has most; the last ones are root's and the
administrators'; and beyond all of them there are a few on which only probes are answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Protocol

from cachemgr.base.shares import Share, Shares


class Welcome(Enum):
    """What somebody may do who has just come."""

    ASKS = "asks"
    PROBES = "probes"
    """Only whether the service lives: there is no place for more."""


class Visitor(Protocol):
    """A connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being dealt with: none has come, or none as a whole."""

    def give_way(self) -> None:
        """Close, since others need the place."""


class Doors:
    """The connections of one kind of socket. For one thread."""

    def __init__(self, thing: str, *, most: int, most_of_one: int, kept: int, probes: int) -> None:
        self._shares = Shares(thing, most=most, most_of_one=most_of_one, kept=kept)
        self._inside: dict[Visitor, Hashable] = {}
        self._of: dict[Hashable, OrderedDict[Visitor, None]] = {}
        """Each one's connections, in the order in which they came."""
        self._probes: OrderedDict[Visitor, Hashable] = OrderedDict()
        self._most_probes = probes

    def enter(self, visitor: Visitor, who: Hashable, *, is_privileged: bool = False) -> Welcome:
        """Take somebody in. They have to `leave`, whatever they were told."""
        if self._has_room(who, is_privileged=is_privileged):
            self._inside[visitor] = who
            self._of.setdefault(who, OrderedDict())[visitor] = None
            return Welcome.ASKS
        self._probes[visitor] = who
        if len(self._probes) > self._most_probes:
            self._longest_probe().give_way()
        return Welcome.PROBES

    def leave(self, visitor: Visitor) -> None:
        """Somebody has gone, or is about to; to say so twice changes nothing."""
        self._probes.pop(visitor, None)
        if visitor not in self._inside:
            return
        who = self._inside.pop(visitor)
        self._shares.give(who)
        own = self._of[who]
        del own[visitor]
        if not own:
            del self._of[who]

    def shares(self) -> list[Share]:
        return self._shares.shares()

    def _has_room(self, who: Hashable, *, is_privileged: bool) -> bool:
        # Those with places of their own have no more of them than others may have.
        held = self._shares.held_by(who)
        if held >= self._shares.most_of_one:
            self._shares.refuse(who)
            return False
        if self._shares.take(who, is_privileged=is_privileged):
            return True
        longest = max(self._of, key=lambda each: len(self._of[each]))
        if len(self._of[longest]) <= held + 1:
            return False
        # Who has sent nothing yet loses nothing; of others the one that came last.
        own = self._of[longest]
        idle = next((each for each in own if each.is_idle), None)
        chosen = idle if idle is not None else next(reversed(own))
        self.leave(chosen)
        chosen.give_way()
        return self._shares.take(who, is_privileged=is_privileged)

    def _longest_probe(self) -> Visitor:
        """The oldest of whoever has most of those that may only probe."""
        counts: dict[Hashable, int] = {}
        for who in self._probes.values():
            counts[who] = counts.get(who, 0) + 1
        most = max(counts.values())
        found = next(visitor for visitor, who in self._probes.items() if counts[who] == most)
        del self._probes[found]
        return found
