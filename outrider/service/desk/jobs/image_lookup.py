"""What jobs' images are: looked up once for all jobs of a user that name the same, users in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.metadata.joblines import JobLines
from outrider.service.ports import DropLookup, FoundImage, NotYet, ResolveImage
from outrider.service.turns import Turns

MOST_AT_ONCE = 64
MOST_OF_ONE = 2
"""For one user's jobs; so the same user finds places free at a terminal."""
KEPT_S = 60
"""For so long an answer holds for other jobs, too."""
RETRY_S = 60
UNMADE_S = 5
"""So soon it is asked again what is only being made."""
LOST_S = 1_500
"""After so long without an answer it is asked again: a large file is read from end to end."""
MOST_KEPT = 10_000


def questions(lines: JobLines, uid: int) -> dict[str, ResolveImage]:
    """What is to be looked up for a job: its image, by no name, and those that its options name."""
    named = {option.image: option.digest for option in lines.options if option.image}
    found = {"": (lines.image, lines.digest, lines.format)} | {
        image: (image, digest, "") for image, digest in named.items()
    }
    for number, each in enumerate(lines.further, 1):
        found[further_of(number)] = (each.image, each.digest, "")
    return {
        name: ResolveImage(uri=uri, digest=digest, is_private=lines.is_private, uid=uid, format=form)
        for name, (uri, digest, form) in found.items()
    }


def further_of(number: int) -> str:
    """Under which name an image is looked up that the job needs beside its own: no image is called so."""
    return f"+{number}"


def image_of(name: str, uri: str, found: FoundImage, lines: JobLines) -> FoundImage:
    """One of a job's images, under the name that `questions` gave it: with its address, as one file."""
    return FoundImage(
        uri=found.uri or uri,
        digest=found.digest,
        size_bytes=found.size_bytes,
        format=(lines.format if not name else "") or found.format,
    )


def further_images(lines: JobLines, images: Mapping[str, FoundImage | str]) -> tuple[FoundImage, ...] | str:
    """The images that a job needs beside its own, in their order; in words why one cannot be had."""
    found: list[FoundImage] = []
    for number, each in enumerate(lines.further, 1):
        image = images[further_of(number)]
        if isinstance(image, str):
            return f"{each.what} {each.image}: {image}"
        if image.format not in each.formats:
            return (
                f"{each.what} {each.image} is of format {image.format}, and no disk of a machine: "
                f"use {' or '.join(filter(None, each.formats))}"
            )
        found.append(image)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Found:
    """An answer: the image, or in words why there is none."""

    at_s: int
    image: FoundImage | None
    words: str = ""
    is_unmade: bool = False
    """Whether it is only being made; `expected` is what is to be there, and when, if that is known."""
    expected: FoundImage | None = None


class ImageLookups:
    """Questions under way, and answers that are still fresh."""

    def __init__(self) -> None:
        self._wanted: Turns[ResolveImage] = Turns()
        self._is_wanted: set[ResolveImage] = set()
        self._asked: dict[ResolveImage, int] = {}
        self._asked_of: Counter[int] = Counter()
        self._dropped: list[ResolveImage] = []
        self._found: dict[ResolveImage, Found] = {}

    def ask(self, question: ResolveImage, now_s: int) -> Found | None:
        """The answer if it is known; otherwise it is asked for."""
        found = self._found.get(question)
        if found is not None and now_s - found.at_s < _kept_s(found):
            return found
        self._want(question)
        return None

    def asked_s(self, question: ResolveImage) -> int | None:
        """Since when it is being looked up; None if it is not yet."""
        return self._asked.get(question)

    def drop(self, question: ResolveImage) -> None:
        """No job wants to know it any more."""
        if question in self._is_wanted:
            self._is_wanted.discard(question)
            self._wanted.drop(lambda each: each == question)
        if question in self._asked:
            self._take_back(question)
            self._dropped.append(question)

    def calls(self, now_s: int) -> Iterator[ResolveImage | DropLookup]:
        """What is to be looked up now, and what no longer."""
        dropped, self._dropped = self._dropped, []
        yield from (DropLookup(question=question) for question in dropped)
        for lost in [each for each, at_s in self._asked.items() if now_s - at_s >= LOST_S]:
            self._take_back(lost)
            self._want(lost)
        while len(self._asked) < MOST_AT_ONCE:
            taken = self._wanted.take(lambda _, each: self._asked_of[each.uid] < MOST_OF_ONE)
            if taken is None:
                return
            question = taken[1]
            self._is_wanted.discard(question)
            if question not in self._asked:
                self._asked[question] = now_s
                self._asked_of[question.uid] += 1
                yield question

    def answered(self, question: ResolveImage, result: object, now_s: int) -> None:
        image = result if isinstance(result, FoundImage) else None
        if question in self._asked:
            self._take_back(question)
        elif image is None:
            # It was dropped meanwhile, and what is said of that is no answer for other jobs.
            return
        words = "" if image is not None else str(result) or type(result).__name__
        expected = result.expected if isinstance(result, NotYet) else None
        self._found[question] = Found(now_s, image, words, isinstance(result, NotYet), expected)
        if len(self._found) > MOST_KEPT:
            del self._found[next(iter(self._found))]

    def _want(self, question: ResolveImage) -> None:
        if question not in self._is_wanted:
            self._is_wanted.add(question)
            self._wanted.put(question.uid, question)

    def _take_back(self, question: ResolveImage) -> None:
        del self._asked[question]
        self._asked_of[question.uid] -= 1
        if not self._asked_of[question.uid]:
            del self._asked_of[question.uid]


def _kept_s(found: Found) -> int:
    return UNMADE_S if found.is_unmade else KEPT_S if found.image else RETRY_S
