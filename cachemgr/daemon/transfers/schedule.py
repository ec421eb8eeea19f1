"""Which transfers run: states, the table of their changes, and the choice. Pure: no threads, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WAITING, RUNNING, PAUSED = "waiting", "running", "paused"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
STATES = (WAITING, RUNNING, PAUSED, DONE, FAILED, CANCELLED)
# In whose turn runs what has no user.
NOBODY = -1
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
class ScheduledTransfer:
    """A transfer as the choice sees it."""

    number: int
    state: str
    # Of the service and root if they want it, otherwise of its users.
    deadline_s: int | None
    # Paused by somebody, who has to resume it.
    is_held: bool
    # Wanted by ordinary users alone.
    is_ordinary: bool = False
    users: tuple[int, ...] = ()
    # Its deadline has passed: it must not cost others theirs.
    is_late: bool = False


@dataclass(frozen=True)
class Choice:
    """What is to change, as numbers of transfers."""

    to_run: tuple[int, ...]
    to_pause: tuple[int, ...]
    # In whose turn each ordinary transfer runs that was chosen, by its number.
    in_turn_of: Mapping[int, int] = field(default_factory=dict)


def checked_change(before: str, after: str) -> str:
    if after not in CHANGES[before]:
        raise ValueError(f"a transfer that is {before} cannot become {after}")
    return after


def choose(
    standings: Iterable[ScheduledTransfer],
    slots: int,
    *,
    most_of_user: int | None = None,
    turns: Mapping[int, int] | None = None,
) -> Choice:
    """What root and the service want goes first: the earliest deadline first, those without one last,
    equals in the order of their coming. A slot that is taken is given up for an earlier deadline.
    A deadline that has passed goes behind those that can still be kept, however slow its source is.

    What is left, but one of several slots, is for users, who take turns; `turns` says how many each
    has had. Any user may name any deadline and the slowest of sources, so a deadline orders the
    user's own transfers and nobody else's.
    """
    alive = [each for each in standings if each.state not in ENDED]
    queue = sorted((each for each in alive if not each.is_held), key=_urgency)
    wanted = [each.number for each in queue if not each.is_ordinary][:slots]
    places = min(slots - len(wanted), max(1, slots - 1))
    ordinary = [each for each in queue if each.is_ordinary]
    in_turn_of = _in_turns(ordinary, places, most_of_user or slots, turns or {})
    chosen = {*wanted, *in_turn_of}
    running = {each.number for each in alive if each.state == RUNNING}
    to_run = [number for number in (*wanted, *in_turn_of) if number not in running]
    to_pause = [each.number for each in alive if each.number in running - chosen]
    return Choice(tuple(to_run), tuple(to_pause), in_turn_of)


def _in_turns(
    queue: Sequence[ScheduledTransfer], places: int, most_of_user: int, turns: Mapping[int, int]
) -> dict[int, int]:
    """Each user's first transfer, then each one's second and so on; first who has had the fewest turns.

    What several users want runs in the turn of the first of them.
    """
    of_user: dict[int, list[ScheduledTransfer]] = {}
    for each in queue:
        for uid in each.users or (NOBODY,):
            of_user.setdefault(uid, []).append(each)

    def precedence(uid: int) -> tuple[int, bool, int]:
        mine = of_user[uid]
        is_running = any(each.state == RUNNING for each in mine)
        return (turns.get(uid, 0), not is_running, min(each.number for each in mine))

    users = sorted(of_user, key=precedence)
    chosen: dict[int, int] = {}
    for _ in range(most_of_user):
        for uid in users:
            if len(chosen) >= places:
                return chosen
            following = next((each for each in of_user[uid] if each.number not in chosen), None)
            if following is not None:
                chosen[following.number] = uid
    return chosen


def _urgency(standing: ScheduledTransfer) -> tuple[bool, bool, int, bool, int]:
    deadline_s = standing.deadline_s
    is_running = standing.state == RUNNING
    return (deadline_s is None, standing.is_late, deadline_s or 0, not is_running, standing.number)
