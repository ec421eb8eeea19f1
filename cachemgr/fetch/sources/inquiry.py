"""Asking other nodes what they have while bytes are read on: one question after the other, none waited for.

Waiting for the answer of a node that is gone would hold up everybody further down the chain.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.fetch.judge import Judgement, Search, SourceVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from cachemgr.fetch.ports import FetchStatus, Source

    class Question(Protocol):
        """A status that was asked for."""

        def is_answered(self) -> bool: ...

        def status(self) -> FetchStatus | None:
            """What was answered; None if nothing was in time."""

    Asker = Callable[[Source, float], Question]

# A node on the way answers within milliseconds, and within a few tenths if its link is full.
STATUS_S = 0.6


class Beside:
    """One question in a thread of its own, which ends with the time that was given."""

    def __init__(self, source: Source, timeout_s: float) -> None:
        self._status: FetchStatus | None = None
        self._is_answered = False
        threading.Thread(
            target=self._ask, args=(source, timeout_s), name=f"ask {source.name}", daemon=True
        ).start()

    def is_answered(self) -> bool:
        return self._is_answered

    def status(self) -> FetchStatus | None:
        return self._status

    def _ask(self, source: Source, timeout_s: float) -> None:
        try:
            self._status = source.status(timeout_s)
        finally:
            self._is_answered = True


@dataclass(frozen=True)
class InquiryAnswer:
    """What the first that was asked has (None: it does not answer), and whose fault it is."""

    have: int | None
    judgement: Judgement


class SourceInquiry:
    """The search for the narrow place, a question at a time.

    `above` are those further up, the nearest first; who is no relay has the whole image.
    """

    def __init__(
        self,
        ask: Asker,
        source: Source,
        above: Sequence[Source],
        *,
        offset: int,
        size_bytes: int,
        margin_bytes: int,
    ) -> None:
        self._ask = ask
        self._offset = offset
        self._size_bytes = size_bytes
        self._search = Search(offset, margin_bytes)
        self._left: Iterator[Source] = iter(above)
        self._have: int | None = None
        self._is_first = True
        self._question: Question | None = ask(source, STATUS_S)

    def is_starving(self) -> bool:
        """Whether the first has answered that it has nothing more than what is here."""
        return self._have is not None and self._have <= self._offset

    def poll(self) -> InquiryAnswer | None:
        """What was found, as soon as it is certain. Never blocks."""
        while self._question is None or self._question.is_answered():
            have: int | None = self._size_bytes
            if self._question is not None:
                status = self._question.status()
                have = None if status is None else status.have_bytes
            if self._is_first:
                self._have, self._is_first = have, False
            judgement = self._search.hear(have)
            following = None if judgement is not None else next(self._left, None)
            if following is None:
                return InquiryAnswer(self._have, judgement or Judgement(SourceVerdict.STAY))
            self._question = self._ask(following, STATUS_S) if following.is_relay else None
        return None
