"""Refusals for which offers are looked for, a slice at a time, so that nobody else waits for a whole search.

Whoever was refused is answered when their search is over, or without offers if it cannot go on. Users take
turns; of one user, and of all together, only so many searches are open at a time.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Replied
from outrider.service.desk.state.user_turns import Rota
from outrider.service.requests import Accept, Asked, Modify, Recall, Reserve

MOST_OF_ONE = 4
MOST_OPEN = 64

Slices = Generator[None, None, Decision]
"""What is done of a search at a time; in the end the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferSearch:
    """One refusal."""

    decision: Decision
    """The answer without offers."""
    slices: Slices


@dataclass(frozen=True, slots=True)
class _Open:
    asked: Asked
    search: OfferSearch
    also: list[int] = field(default_factory=list)
    """Tickets of those who have asked the very same meanwhile."""

    def replies(self, answer: Decision) -> list[Replied]:
        return [Replied(ticket=ticket, answer=answer) for ticket in (self.asked.ticket, *self.also)]


class OfferSearches:
    """All that are open, by their tickets."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._turns = Rota()

    def begin(self, asked: Asked, search: OfferSearch) -> list[Replied]:
        """Look for offers from now on; or the answer without them, if too much is looked for already."""
        opened, uid = _Open(asked, search), asked.caller.uid
        of_one = sum(each.asked.caller.uid == uid for each in self._open.values())
        if of_one >= MOST_OF_ONE or len(self._open) >= MOST_OPEN:
            return opened.replies(search.decision)
        self._open[asked.ticket] = opened
        self._turns.add(str(asked.ticket), uid)
        return []

    def join(self, asked: Asked) -> bool:
        """Whether this was asked before, under the same key, and is going to be answered alike."""
        wanted = _key(asked)
        for each in self._open.values() if wanted is not None else ():
            if _key(each.asked) == wanted:
                each.also.append(asked.ticket)
                return True
        return False

    @property
    def is_busy(self) -> bool:
        return bool(self._open)

    def go_on(self) -> list[Replied]:
        """One slice of whoever is next; the answer if it was the last."""
        key = self._turns.take()
        if key is None:
            return []
        ticket = int(key)
        opened = self._open[ticket]
        try:
            next(opened.search.slices)
        except StopIteration as ended:
            del self._open[ticket]
            return opened.replies(ended.value)
        self._turns.add(key, opened.asked.caller.uid)
        return []

    def give_up(self) -> list[Replied]:
        """The state that is looked at is replaced by another: all are answered without offers."""
        found = [reply for each in self._open.values() for reply in each.replies(each.search.decision)]
        self._open.clear()
        self._turns = Rota()
        return found


def _key(asked: Asked) -> tuple[int, str, str] | None:
    request = asked.request
    if isinstance(request, (Accept, Modify, Recall, Reserve)) and request.key:
        return asked.caller.uid, request.key, request.request_hash
    return None
