"""Which of a job's options is to be, of what is expected of each: a pure decision.

With a deadline it is the one among those in time that needs least of the nodes; without one, or if none is in
time, the one that ends first. What was chosen before stays unless another is better by more than forecasts
vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.options.admission import PossibleOption, Reason, choose
from outrider.metadata.notation.job_options import JobOption
from outrider.rms.base import RmsJob
from outrider.service.ports import FoundImage

BETTER_S = 60
"""Another option is worth a change if its job ends earlier by more than this."""
ROUNDED_S = 60
"""A batch system that counts in minutes rounds limits up."""

WORDS = {
    Reason.ONLY: "it is the only one that is expected to end in time",
    Reason.LEAST: "it takes the least of the nodes among those that are expected to end in time",
    Reason.IMAGE: "its image comes sooner; another one takes fewer node-hours",
    Reason.FIRST_END: "it is expected to end first",
}
LATE = "none is expected to end in time, and it ends first"
ALONE = "there is no place for the others"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What is expected of a job with one of its options."""

    index: int
    option: JobOption
    start_s: int
    moving_s: int
    """For how long its image is moved before it can start; 0 if it is there."""

    @property
    def end_s(self) -> int:
        return self.start_s + self.option.limit_s


@dataclass(slots=True)
class OptionState:
    """How it stands with a job's options."""

    index: int | None = None
    """The option that was chosen, once one was."""
    asked: JobOption | None = None
    """The size that the batch system is being asked for, until a look shows it."""
    is_taken_up: bool = False
    """Whether an earlier service may have chosen."""
    is_changed: bool = False
    """Whether somebody else has changed its size."""
    is_left: bool = False
    """Whether its size is left as it is."""
    again_s: int = 0
    """From when on another option may be chosen."""
    words: str = ""
    """For its user."""
    images: dict[str, FoundImage | str] = field(default_factory=dict)
    """By what options call them, their own images; or in words why there is none."""


def has_size(job: RmsJob, option: JobOption, number: int) -> bool:
    """Whether a job was given that option, the first of which is number 1, and has its size. One that shows
    none is given one even where its size fits: by that it knows which it has."""
    return job.option == number and _fits(job, option)


def is_changed(job: RmsJob, options: Sequence[JobOption]) -> bool:
    """Whether a job was given the size of an option, and has another one now."""
    return 0 < job.option <= len(options) and not _fits(job, options[job.option - 1])


def _fits(job: RmsJob, option: JobOption) -> bool:
    """Whether what can be seen of a job's size is as in an option."""
    limit_s, cpus, memory_mib = job.limit_s, job.resources["cpus"], job.resources["memory_mib"]
    return (
        job.nodes_wanted == option.nodes
        and limit_s is not None
        and 0 <= limit_s - option.limit_s < ROUNDED_S
        # Where cores have several threads, jobs get whole ones.
        and (not option.cpus or option.cpus <= cpus <= 2 * option.cpus)
        and (not option.memory_mib or not memory_mib or memory_mib >= option.memory_mib)
    )


def best(
    expected: Sequence[Expected], finish_by_s: int | None, current: int | None
) -> tuple[int, str] | None:
    """The option that is to be, by its index, and why; None if nothing is expected of any."""
    in_time = [each for each in expected if finish_by_s is not None and each.end_s <= finish_by_s]
    index, reason = choose([_possible(each, has_deadline=bool(in_time)) for each in in_time or expected])
    if index is None or reason is None:
        return None
    chosen = next(each for each in expected if each.index == index)
    now = next((each for each in expected if each.index == current), None)
    if now is not None and now is not chosen and _stays(now, chosen, in_time):
        chosen = now
        words = "another one is not better by enough for a change"
    elif in_time:
        words = WORDS[reason]
    elif finish_by_s is not None:
        words = LATE
    else:
        words = ALONE if reason is Reason.ONLY else WORDS[reason]
    return chosen.index, words


def _work(option: JobOption) -> int:
    """What it takes of the nodes: processor-seconds where options name processors, else node-seconds."""
    return option.nodes * max(1, option.cpus) * option.limit_s


def _stays(now: Expected, chosen: Expected, in_time: Sequence[Expected]) -> bool:
    """Whether what was chosen before stays, although another would be chosen now."""
    if in_time:
        # One that is as cheap is chosen for its end alone.
        return now in in_time and _work(now.option) <= _work(chosen.option)
    return now.end_s <= chosen.end_s + BETTER_S


def _possible(each: Expected, *, has_deadline: bool) -> PossibleOption:
    return PossibleOption(
        index=each.index,
        instances=each.option.nodes * max(1, each.option.cpus),
        duration_s=each.option.limit_s,
        end_s=each.end_s,
        moving_s=each.moving_s,
        has_deadline=has_deadline,
    )
