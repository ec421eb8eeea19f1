"""What jobs' images are: looked up once for all jobs of a user that name the same, users in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.core.model import Image
from outrider.metadata.joblines import JobLines
from outrider.service.desk.jobs.job import JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.notes import LOOKUP_S
from outrider.service.desk.state.site import Site
from outrider.service.images.slowness import host_of
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
        is_private=lines.is_private,
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
                f"{each.what} {each.image} has the format {image.format}, which no machine has as a disk: "
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


class JobLookups:
    """What the images of jobs are: each job waits until all of its own are known."""

    def __init__(self, site: Site, jobs: JobQueues) -> None:
        self._site = site
        self._jobs = jobs
        self._lookups = ImageLookups()
        self._asking: dict[ResolveImage, dict[str, None]] = {}
        """By question, the jobs that wait for its answer."""

    def of(self, entry: JobEntry) -> dict[str, FoundImage | str] | None:
        """By the names of `questions` a job's images, or in words why there is none; None until all of them
        have been looked up."""
        assert entry.lines is not None
        lines, images = entry.lines, entry.options.images
        entry.lookup, entry.lookup_s, is_known = "", None, True
        for name, question in questions(lines, entry.job.uid).items():
            if name in images:
                continue
            found = self._lookups.ask(question, self._site.now_s)
            if found is None:
                self._asking.setdefault(question, {})[entry.key] = None
                if is_known:
                    entry.lookup, entry.lookup_s = host_of(question.uri), self._lookups.asked_s(question)
                is_known = False
                continue
            if not name:
                entry.is_unmade = found.is_unmade
            if not name and found.is_unmade:
                self._await_conversion(entry, found)
                return None
            images[name] = (
                found.words if found.image is None else image_of(name, question.uri, found.image, lines)
            )
        if not is_known:
            return None
        entry.options.images = {}
        return images

    def drop(self, entry: JobEntry) -> None:
        """A job does not wait any more for what its images are; if no other does, nobody asks for them."""
        if entry.lines is None or entry.stage is not Stage.RESOLVING:
            return
        for question in questions(entry.lines, entry.job.uid).values():
            jobs = self._asking.get(question, {})
            jobs.pop(entry.key, None)
            if not jobs:
                self._asking.pop(question, None)
                self._lookups.drop(question)

    def calls(self) -> Iterator[ResolveImage | DropLookup]:
        """What is to be looked up now, or no longer; the jobs that wait for it say so."""
        now_s = self._site.now_s
        for call in self._lookups.calls(now_s):
            if isinstance(call, ResolveImage):
                for entry in self._asking_for(call):
                    entry.lookup_s = now_s
                    self._jobs.look_again(entry, LOOKUP_S)
            yield call

    def answered(self, call: ResolveImage, result: object) -> list[JobEntry]:
        """It is known what is at an address, or why that cannot be said: the jobs that waited for it."""
        self._lookups.answered(call, result, self._site.now_s)
        waiting = self._asking_for(call)
        self._asking.pop(call, None)
        return [each for each in waiting if each.stage is Stage.RESOLVING and each.lines is not None]

    def _asking_for(self, question: ResolveImage) -> list[JobEntry]:
        keys, entries = self._asking.get(question, ()), self._jobs.entries
        return [entries[key] for key in keys if key in entries]

    def _await_conversion(self, entry: JobEntry, found: Found) -> None:
        """Its image is being made: that is said, with when it is expected, and it is asked again soon."""
        assert entry.lines is not None
        entry.words, entry.ready_s = found.words, None
        if found.expected is not None and found.expected.made_s is not None:
            image = Image(uri=entry.lines.image, size_bytes=found.expected.size_bytes)
            entry.ready_s = found.expected.made_s + self._site.book.deadline_duration_s(image)
        self._jobs.retry(entry, UNMADE_S)
        self._jobs.touch(entry)


def _kept_s(found: Found) -> int:
    return UNMADE_S if found.is_unmade else KEPT_S if found.image else RETRY_S
