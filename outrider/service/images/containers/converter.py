"""The service's converter: each image once at a time, so many at once, users in turns.

A conversion goes on when nobody waits for it any more: what it makes is for everybody, and who asks again
finds it further on. It ends with the service, which leaves nothing half made; who asks the next
one begins it again.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from cachemgr.base.shares import Shares
from cachemgr.fetch.registry.manifests import Container
from outrider.service.images.containers.conversion import (
    AS_IT_IS,
    AS_LAYERS,
    ConversionNews,
    Means,
    convert,
    ids_of,
    tool_of,
)
from outrider.service.images.containers.faults import ConversionFault
from outrider.service.images.containers.layers import BlobSource
from outrider.service.images.containers.made import MadeImage, Recipe
from outrider.service.images.containers.pace import ConversionPace
from outrider.service.meter import Log
from outrider.service.ports import FoundImage, ImageTrouble, NotYet
from outrider.service.turns import Turns

BROUGHT = (AS_IT_IS, AS_LAYERS)
"""What the head fetches, and leaves as it is."""
WAIT_S = 5.0
"""So long an answer waits for a conversion; who asked is told how far it is, and asks again."""
LOOK_S = 0.5
MOST_WAITING = 256
PORTION = 4
"""One user has at most a quarter of what is left."""
FAULT_S = 30.0
"""For so long a failed conversion is not begun again."""


@dataclass(slots=True, eq=False)
class _Job:
    name: str
    container: Container
    recipe: Recipe
    source: BlobSource
    uid: int
    telling: ConversionNews
    ended: threading.Event = field(default_factory=threading.Event)
    began_s: float | None = None
    result: MadeImage | None = None
    fault: str = ""
    ended_s: float = 0.0


class Converter:
    """Any thread may call. `find` knows what is made already, `make` waits for what is not."""

    def __init__(
        self,
        means: Means,
        *,
        at_once: int = 2,
        user: str,
        log: Log,
        default_format: str = "squashfs",
        wait_s: float = WAIT_S,
    ) -> None:
        """`user` is whom root becomes. `default_format` is that of images whose user says nothing."""
        self._means = means
        self._pace = ConversionPace(means.made.folder / "pace" / "pace.json")
        self.default_format = default_format
        self._free = at_once
        self._user = user
        self._log = log
        self._wait_s = wait_s
        self._guard = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        """What is under way or waits, and what has failed lately."""
        self._waiting: Turns[_Job] = Turns()
        self._is_closed = False
        self._tool = ""
        self.shared = Shares("conversions", most=MOST_WAITING, most_of_one=MOST_WAITING, portion=PORTION)

    def recipe(self, manifest: str, image_format: str, scope: str) -> Recipe:
        """How an image is made here. Raises ImageTrouble where nothing can be made."""
        if not self._tool:
            try:
                self._tool = tool_of(self._means)
            except ConversionFault as fault:
                raise ImageTrouble(str(fault)) from fault
        return Recipe(manifest=manifest, format=image_format, tool=self._tool, scope=scope)

    def find(self, recipe: Recipe) -> MadeImage | None:
        return self._means.made.find(recipe)

    def make(
        self,
        name: str,
        container: Container,
        recipe: Recipe,
        source: BlobSource,
        uid: int,
        is_wanted: Callable[[], bool],
    ) -> MadeImage:
        """Join the conversion, or begin it. Raises ImageTrouble, also while it is not done."""
        job = self._joined(name, container, recipe, source, uid)
        clock = self._means.clock
        until_s = clock.monotonic_s() + self._wait_s
        while is_wanted() and clock.monotonic_s() < until_s and not job.ended.wait(LOOK_S):
            pass
        if not job.ended.is_set():
            what = "brought to the head" if recipe.format in BROUGHT else f"converted to {recipe.format}"
            expected = self._expected(job)
            raise NotYet(
                f"the image {name} is being {what}: {job.telling}{self._left(job, expected)}",
                expected,
            )
        if job.result is None:
            raise ImageTrouble(f"the image {name} cannot be converted: {job.fault}")
        return job.result

    def _left(self, job: _Job, expected: FoundImage | None) -> str:
        """How long it takes by what earlier ones took, in words; nothing where that is not known."""
        if expected is None or expected.made_s is None:
            return ""
        left_s = expected.made_s - self._means.clock.now_s()
        if job.began_s is not None and self._left_s(job) <= 0:
            return ", and it takes longer than was expected"
        return f", and it takes about {left_s} s more"

    def _left_s(self, job: _Job) -> float:
        """Of one by itself, from its turn on; below nothing if it takes longer than was expected."""
        expected_s = self._pace.expected_s(job.recipe.format, job.telling.all_bytes) or 0.0
        return expected_s - (0.0 if job.began_s is None else self._means.clock.monotonic_s() - job.began_s)

    def _expected(self, job: _Job) -> FoundImage | None:
        """What is to be there, and when, by what earlier ones took; those that wait are taken to be first.
        A result is rarely larger than what it is made of, which is packed as well."""
        if self._pace.expected_s(job.recipe.format, job.telling.all_bytes) is None:
            return None
        with self._guard:
            others = [each for each in self._jobs.values() if each is not job and not each.ended.is_set()]
            free = self._free
        left_s = max(1.0, self._left_s(job))
        if job.began_s is None:
            ends_s = [max(1.0, self._left_s(each)) for each in others if each.began_s is not None]
            ends_s += [0.0] * max(free, 1 - len(ends_s))
            for each in (each for each in others if each.began_s is None):
                heapq.heapify(ends_s)
                heapq.heapreplace(ends_s, ends_s[0] + max(1.0, self._left_s(each)))
            left_s += min(ends_s, default=0.0)
        image_format = "" if job.recipe.format == AS_IT_IS else job.recipe.format
        size_bytes = max(1, job.telling.all_bytes)
        made_s = self._means.clock.now_s() + math.ceil(left_s)
        return FoundImage(size_bytes=size_bytes, digest="", format=image_format, made_s=made_s)

    def close(self) -> None:
        """Begin nothing any more, and end what runs."""
        with self._guard:
            self._is_closed = True

    def _joined(self, name: str, container: Container, recipe: Recipe, source: BlobSource, uid: int) -> _Job:
        with self._guard:
            found = self._jobs.get(recipe.key)
            now_s = self._means.clock.monotonic_s()
            if found is not None and (not found.ended.is_set() or now_s - found.ended_s < FAULT_S):
                return found
            if not self.shared.take(uid, is_privileged=uid == 0):
                raise ImageTrouble(
                    f"the image {name} is not converted now: {self.shared.held_by(uid)} of yours are, or "
                    "wait "
                    "for it; ask again when one is done"
                )
            job = _Job(name, container, recipe, source, uid, ConversionNews(container))
            self._jobs[recipe.key] = job
            self._waiting.put(uid, job, is_first=uid == 0)
            self._begin()
            return job

    def _begin(self) -> None:
        """Start those whose turn it is. The guard is held."""
        while self._free > 0 and not self._is_closed:
            taken = self._waiting.take()
            if taken is None:
                return
            self._free -= 1
            threading.Thread(target=self._work, args=(taken[1],), name="conversion", daemon=True).start()

    def _work(self, job: _Job) -> None:
        began_s = job.began_s = self._means.clock.monotonic_s()
        self._log.info("conversion begins", image=job.name, format=job.recipe.format, uid=job.uid)
        try:
            means = self._means if job.recipe.format in BROUGHT else self._with_ids()
            job.result = self.find(job.recipe)
            if job.result is None:
                job.result = convert(
                    job.container, job.recipe, job.source, means, job.telling, lambda: not self._is_closed
                )
                took_s = self._means.clock.monotonic_s() - began_s
                # An estimate that is lost is made anew at the next one.
                with suppress(OSError):
                    self._pace.note(job.recipe.format, job.telling.all_bytes, took_s)
        except ConversionFault as fault:
            job.fault = str(fault)
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            job.fault = f"a fault of Outrider itself: {type(error).__name__}: {error}"
        took_s = self._means.clock.monotonic_s() - began_s
        with self._guard:
            self._free += 1
            self.shared.give(job.uid)
            self._waiting.charge(job.uid, took_s)
            job.ended_s = self._means.clock.monotonic_s()
            if job.result is not None:
                del self._jobs[job.recipe.key]
            self._forget(job.ended_s)
            job.ended.set()
            self._begin()
        self._log.info(
            "conversion ended",
            image=job.name,
            format=job.recipe.format,
            took_s=round(took_s, 1),
            fault=job.fault,
        )

    def _with_ids(self) -> Means:
        return replace(self._means, ids=ids_of(self._user))

    def _forget(self, now_s: float) -> None:
        for key in [
            key for key, job in self._jobs.items() if job.ended.is_set() and now_s - job.ended_s >= FAULT_S
        ]:
            del self._jobs[key]
