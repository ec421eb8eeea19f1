"""Sizes of jobs with options: chosen before the start, asked of the batch system, chosen again if need be.

A job whose size is changed is held first, so that it cannot start with its new size where its image is not.
What somebody else has changed stays as it is, and so does what cannot be changed; its user is told.
"""

from __future__ import annotations

from outrider.core.besteffort.jobs.placement import NoPlacement
from outrider.core.model import Resources
from outrider.metadata.notation.job_options import JobOption
from outrider.rms.base import RmsJob
from outrider.service.desk.batch.job_effects import resize_effect
from outrider.service.desk.jobs.job import WAITING, JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.options.choice import Expected, OptionState, best, has_size, is_changed
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.jobs.placement import JobPlacer
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log
from outrider.service.ports import FoundImage

ORDER_LOOKS = 2
"""After so many looks that do not show the size that was asked for it is asked for again."""
AGAIN_S = 60
"""A size that took another's place is kept for so long at least: forecasts vary from look to look."""
CHANGED = "its size was changed meanwhile, so its options are left alone"


class JobSizes:
    """Which option each job has, and which it is to have."""

    def __init__(self, site: Site, jobs: JobQueues, placer: JobPlacer, orders: JobOrders, log: Log) -> None:
        self._site = site
        self._jobs = jobs
        self._placer = placer
        self._orders = orders
        self._log = log

    def seen(self, entry: JobEntry, job: RmsJob) -> None:
        """A look shows a job anew; `entry` still has what an earlier one showed."""
        state, before = entry.options, entry.job
        if job.state not in WAITING:
            # What was given more time while it ran keeps that when it waits again.
            state.asked = None
            state.is_changed = state.is_changed or job.limit_s != before.limit_s
        elif state.asked is not None and has_size(job, state.asked, _number(state)):
            state.asked = None
            self._jobs.wait_for_nodes(entry)
            self._jobs.touch(entry)
        elif self._is_changed(entry, job):
            state.is_changed = True
            if self._has(entry):
                self._leave(entry, CHANGED)

    def found(self, entry: JobEntry) -> None:
        """Its images are known: it has the one of the option that it was given."""
        if self._has(entry) and entry.job.option and not entry.is_array:
            assert entry.lines is not None
            options = entry.lines.options
            if entry.job.option <= len(options):
                entry.image = self._image(entry, options[entry.job.option - 1]) or entry.image

    def decide(self, entry: JobEntry) -> bool:
        """Choose, or choose again. True if the job's size is about to change: nodes are looked for then."""
        state, now_s = entry.options, self._site.now_s
        if not self._has(entry) or state.is_left or entry.job.state not in WAITING:
            return False
        assert entry.lines is not None
        options = entry.lines.options
        if state.asked is not None:
            if entry.looks > ORDER_LOOKS and not self._orders.waits(entry.key):
                self._ask(entry, state.asked)
            return True
        if state.index is not None and now_s < state.again_s:
            return False
        if words := self._obstacle(entry):
            self._leave(entry, words)
            return False
        if state.is_taken_up:
            state.is_taken_up = False
            state.index = next(
                (n for n, each in enumerate(options) if has_size(entry.job, each, n + 1)), None
            )
        chosen = best(self._expected(entry), entry.lines.finish_by_s, state.index)
        if chosen is None:
            return False
        return self._take(entry, *chosen)

    def refused(self, entry: JobEntry, words: str) -> None:
        """The batch system does not change a job's size: it stays as it is."""
        if entry.options.asked is not None:
            self._leave(entry, f"the batch system does not change its size: {words}")
            if entry.job.state in WAITING and entry.stage is not Stage.RESOLVING:
                self._jobs.wait_for_nodes(entry)
            self._jobs.touch(entry)

    def _take(self, entry: JobEntry, index: int, why: str) -> bool:
        assert entry.lines is not None
        state, options = entry.options, entry.lines.options
        option = options[index]
        if index != state.index or not state.words:
            if state.index is not None:
                state.again_s = self._site.now_s + AGAIN_S
            state.index = index
            state.words = f"option {index + 1} of {len(options)} ({option}): {why}"
            self._jobs.note(entry, "chosen", state.words)
        image = self._image(entry, option)
        assert image is not None
        if image != entry.image:
            # What it has of the other one is of no use to it.
            self._placer.drop_all(entry)
            entry.image = image
        if has_size(entry.job, option, index + 1):
            return False
        self._ask(entry, option)
        return True

    def _ask(self, entry: JobEntry, option: JobOption) -> None:
        entry.options.asked = option
        entry.released, entry.is_ordered, entry.looks = None, True, 0
        entry.stage, entry.words = Stage.WAITING, "its size is being changed"
        effect = resize_effect(
            entry.key,
            option.nodes,
            option.limit_s,
            self._site.now_s,
            each=_each(option),
            option=_number(entry.options),
        )
        self._orders.order(effect)
        self._jobs.touch(entry)
        self._log.info("job gets another size", job=entry.key, option=str(option))

    def _leave(self, entry: JobEntry, words: str) -> None:
        state = entry.options
        if state.is_left:
            return
        state.is_left, state.asked, state.words = True, None, words
        self._jobs.note(entry, "left alone", words)

    def _expected(self, entry: JobEntry) -> list[Expected]:
        assert entry.lines is not None
        now_s = self._site.now_s
        found = []
        for index, option in enumerate(entry.lines.options):
            image = self._image(entry, option)
            if image is None:
                continue
            way = self._placer.foresee(entry, option.nodes, option.limit_s, _each(option), image)
            if not isinstance(way, NoPlacement):
                moving_s = max(0, way.ready_s - now_s) if way.missing else 0
                found.append(Expected(index=index, option=option, start_s=way.start_s, moving_s=moving_s))
        return found

    @staticmethod
    def _has(entry: JobEntry) -> bool:
        return entry.lines is not None and bool(entry.lines.options)

    @staticmethod
    def _image(entry: JobEntry, option: JobOption) -> FoundImage | None:
        """The image of an option, if it can be had."""
        found = entry.options.images.get(option.image)
        return found if isinstance(found, FoundImage) else None

    @staticmethod
    def _is_changed(entry: JobEntry, job: RmsJob) -> bool:
        """Whether somebody else has changed a job's size."""
        if job.option and entry.lines is not None:
            return is_changed(job, entry.lines.options)
        before = entry.job
        return (job.nodes_wanted, job.limit_s) != (before.nodes_wanted, before.limit_s)

    @staticmethod
    def _obstacle(entry: JobEntry) -> str:
        """Why a job's size cannot be chosen; nothing if it can."""
        assert entry.lines is not None
        if entry.is_array:
            return "an array's jobs have one size, so its options are left alone"
        is_other = entry.options.is_changed or is_changed(entry.job, entry.lines.options)
        return CHANGED if is_other else ""

    def in_turn(self, entry: JobEntry) -> None:
        """A job comes to a queue in which Outrider decides who starts when: its size is taken as it is."""
        if self._has(entry):
            self._leave(entry, "in a queue that Outrider schedules a job keeps its size")


def _number(state: OptionState) -> int:
    """The number of the option that was chosen, as its user counts."""
    return 0 if state.index is None else state.index + 1


def _each(option: JobOption) -> Resources:
    """What an option says of each node."""
    return Resources.of(cpus=option.cpus, memory_mib=option.memory_mib)
