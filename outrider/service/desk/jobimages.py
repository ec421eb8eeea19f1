"""What jobs' images are: looked up once for all jobs of a user that name the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outrider.service.ports import FoundImage, ResolveImage

MOST_AT_ONCE = 4
"""So that users who wait for an answer find places free."""
KEPT_S = 60
"""For so long an answer holds for other jobs, too."""
RETRY_S = 60
LOST_S = 1_500
"""After so long without an answer it is asked again: a large file is read from end to end."""
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """An answer: the image, or in words why there is none."""

    at_s: int
    image: FoundImage | None
    words: str = ""


class JobImages:
    """Questions under way, and answers that are still fresh."""

    def __init__(self) -> None:
        self._wanted: dict[ResolveImage, None] = {}
        self._asked: dict[ResolveImage, int] = {}
        self._found: dict[ResolveImage, Found] = {}

    def ask(self, question: ResolveImage, now_s: int) -> Found | None:
        """The answer if it is known; otherwise it is asked for."""
        found = self._found.get(question)
        if found is not None and now_s - found.at_s < (KEPT_S if found.image else RETRY_S):
            return found
        self._wanted[question] = None
        return None

    def calls(self, now_s: int) -> Iterator[ResolveImage]:
        """What is to be looked up now."""
        for lost in [each for each, at_s in self._asked.items() if now_s - at_s >= LOST_S]:
            del self._asked[lost]
            self._wanted[lost] = None
        for question in list(self._wanted):
            if len(self._asked) >= MOST_AT_ONCE:
                return
            del self._wanted[question]
            if question not in self._asked:
                self._asked[question] = now_s
                yield question

    def answered(self, question: ResolveImage, result: object, now_s: int) -> None:
        self._asked.pop(question, None)
        image = result if isinstance(result, FoundImage) else None
        words = "" if image is not None else str(result) or type(result).__name__
        self._found[question] = Found(now_s, image, words)
        if len(self._found) > MOST_KEPT:
            del self._found[next(iter(self._found))]
