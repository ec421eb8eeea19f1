"""Which transfers run: states, the table of their changes, and the choice. Pure: no threads, no clock."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

WAITING, RUNNING, PAUSED = "waiting", "running", "paused"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
STATES = (WAITING, RUNNING, PAUSED, DONE, FAILED, CANCELLED)
ENDED = (DONE, FAILED, CANCELLED)
# From each state, to which others. Paused is what has begun and stands still, or was told
# by somebody not to begin; what was paused for another's sake runs again by itself.
CHANGES: dict[str, tuple[str, ...]] = {
    WAITING: (RUNNING, PAUSED, FAILED, CANCELLED),
    RUNNING: (PAUSED, DONE, FAILED, CANCELLED),
    PAUSED: (RUNNING, WAITING, DONE, FAILED, CANCELLED),
    DONE: (),
    FAILED: (),
    CANCELLED: (),
}


@dataclass(frozen=True)
class Standing:
    """A transfer as the choice sees it."""

    number: int
    state: str
    deadline_s: int | None
    # Paused by somebody, who has to resume it.
    is_held: bool
    # Wanted by ordinary users alone.
    is_ordinary: bool = False


@dataclass(frozen=True)
class Choice:
    """What is to change, as numbers of transfers."""

    to_run: tuple[int, ...]
    to_pause: tuple[int, ...]


def checked_change(before: str, after: str) -> str:
    if after not in CHANGES[before]:
        raise ValueError(f"a transfer that is {before} cannot become {after}")
    return after


def choose(standings: Iterable[Standing], slots: int) -> Choice:
    """Earliest deadline first, those without one last, equals in the order of their coming.

    A slot that is taken is given up for an earlier deadline and for nothing else. Ordinary
    users may name any deadline and the slowest of sources, so one of several slots is not theirs.
    """
    alive = [each for each in standings if each.state not in ENDED]
    queue = sorted((each for each in alive if not each.is_held), key=_urgency)
    ordinary = [each for each in queue if each.is_ordinary][: max(1, slots - 1)]
    wanted = [each for each in queue if not each.is_ordinary or each in ordinary][:slots]
    chosen = {each.number for each in wanted}
    to_run = [each.number for each in wanted if each.state != RUNNING]
    to_pause = [each.number for each in alive if each.state == RUNNING and each.number not in chosen]
    return Choice(tuple(to_run), tuple(to_pause))


def _urgency(standing: Standing) -> tuple[bool, int, bool, int]:
    deadline_s = standing.deadline_s
    return (deadline_s is None, deadline_s or 0, standing.state != RUNNING, standing.number)
