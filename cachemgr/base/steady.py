"""The time of day while somebody may set this machine's clock: what is believed, and what is in doubt.

Two clocks are compared, the one that can be set and the one that only runs on. As long as they agree
the first is followed. If it has moved by more than `step_s` against the second, the time is *in doubt*:
`now_s` goes on from where it was at the pace of the second clock, `past_s` stands still, so that
nothing ends that may not be over, and nothing should be promised. The doubt ends when the clock is back,
or has stayed where it was put for `doubt_s`: then it is believed. The service and the nodes' daemons
follow this one rule.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cachemgr.base.clock import Clock

    class OffsetStore(Protocol):
        """Where the difference of the two clocks is remembered for a process that is started again."""

        def read(self) -> float | None: ...

        def write(self, offset_s: float) -> None: ...


# A clock that is corrected by less is followed at once.
STEP_S = 10
# A clock that stays so long where it was put is believed.
DOUBT_S = 120
DOUBTFUL, BACK, BELIEVED = "doubtful", "back", "believed"
# Reading two clocks takes no time; if it did, the process was stopped in between.
MOST_READING_S = 1.0
MOST_READINGS = 10
# A smaller change of the clocks' difference is not written down.
REMEMBERED_S = 2
UNITS = (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class ClockChange:
    """The time came into doubt, or out of it: the clock is back, or it is believed."""

    kind: str
    # By how much the clock was moved; negative if it was set back.
    by_s: int

    @property
    def words(self) -> str:
        if self.kind == BACK:
            return "the clock is back where it should be"
        return f"the clock was set {in_words(self.by_s)}"


class Reckoning:
    """What time it is, from what both clocks have shown. Pure: whoever has the clocks tells their times.

    `offset_s` is by how much they differed when they were believed last, if that is known.
    """

    def __init__(
        self,
        wall_s: int,
        monotonic_s: float,
        *,
        step_s: int = STEP_S,
        doubt_s: int = DOUBT_S,
        offset_s: float | None = None,
    ) -> None:
        self._step_s = step_s
        self._doubt_s = doubt_s
        # What is added to the running clock to have the time, as it is believed.
        self._offset_s = wall_s - monotonic_s if offset_s is None else offset_s
        self._strange_s = self._offset_s
        self._since_s: float | None = None
        self.now_s = self.past_s = int(self._offset_s + monotonic_s)
        # How often a clock that was moved has been believed.
        self.steps = 0

    @property
    def is_doubtful(self) -> bool:
        return self._since_s is not None

    @property
    def offset_s(self) -> float:
        """By how much the two clocks differ as far as it is believed."""
        return self._offset_s

    @property
    def off_s(self) -> int:
        """By how much the clock differs from what is believed."""
        return round(self._strange_s - self._offset_s) if self.is_doubtful else 0

    def left_s(self, monotonic_s: float) -> int:
        """How long it takes until the clock is believed if it stays where it is."""
        return (
            0 if self._since_s is None else max(0, -int(-(self._since_s + self._doubt_s - monotonic_s) // 1))
        )

    def look(self, wall_s: int, monotonic_s: float) -> ClockChange | None:
        """Both clocks were read; what has changed by that."""
        offset_s = wall_s - monotonic_s
        change = None
        if abs(offset_s - self._offset_s) <= self._step_s:
            self._offset_s = offset_s
            if self.is_doubtful:
                self._since_s, change = None, ClockChange(BACK, 0)
            self.past_s = self.now_s = max(self.now_s, wall_s)
            return change
        is_same = self.is_doubtful and abs(offset_s - self._strange_s) <= self._step_s
        self._strange_s = offset_s
        if not is_same:
            # A clock that is moved again has to stay again.
            self._since_s = monotonic_s
            change = ClockChange(DOUBTFUL, self.off_s)
        elif self._since_s is not None and monotonic_s - self._since_s >= self._doubt_s:
            change = ClockChange(BELIEVED, self.off_s)
            self._offset_s, self._since_s = offset_s, None
            self.steps += 1
            self.past_s = self.now_s = wall_s
            return change
        self.now_s = max(self.now_s, int(self._offset_s + monotonic_s))
        return change


class SteadyClock:
    """A clock that does not jump. Any thread may ask; whoever finds a change tells it, once."""

    def __init__(
        self,
        clock: Clock,
        *,
        step_s: int = STEP_S,
        doubt_s: int = DOUBT_S,
        tell: Callable[[ClockChange], None] | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._offset_store = offset_store
        self._stored_s = None if offset_store is None else offset_store.read()
        self._guard = threading.Lock()
        self._reckoning = Reckoning(*self._read(), step_s=step_s, doubt_s=doubt_s, offset_s=self._stored_s)

    def now_s(self) -> int:
        """The time, as it is believed."""
        return self._look().now_s

    def past_s(self) -> int:
        """The time that has surely come: what ends by then is over."""
        return self._look().past_s

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    @property
    def steps(self) -> int:
        """How often a clock that was moved has been believed."""
        return self._look().steps

    @property
    def is_doubtful(self) -> bool:
        return self._look().is_doubtful

    @property
    def doubt(self) -> str:
        """What is wrong with the time now, in words; empty if nothing is."""
        found = self._look()
        if not found.is_doubtful:
            return ""
        return (
            f"the clock was set {in_words(found.off_s)}: nothing ends and nothing is promised until it is "
            f"back, or has stayed so for {found.left_s(self.monotonic_s())} s more; set it right, or wait"
        )

    def _look(self) -> Reckoning:
        with self._guard:
            change = self._reckoning.look(*self._read())
            self._remember(self._reckoning.offset_s)
        if change is not None and self._tell is not None:
            self._tell(change)
        return self._reckoning

    def _remember(self, offset_s: float) -> None:
        known_s = self._stored_s
        if self._offset_store is not None and (known_s is None or abs(offset_s - known_s) > REMEMBERED_S):
            self._stored_s = offset_s
            self._offset_store.write(offset_s)

    def _read(self) -> tuple[int, float]:
        """Both clocks at the same moment."""
        for _ in range(MOST_READINGS):
            before_s = self._clock.monotonic_s()
            wall_s = self._clock.now_s()
            after_s = self._clock.monotonic_s()
            if after_s - before_s <= MOST_READING_S:
                break
        return wall_s, after_s


def past_s(clock: Clock) -> int:
    """What has surely come by a clock; one that does not doubt has no other time."""
    return clock.past_s() if isinstance(clock, SteadyClock) else clock.now_s()


def in_words(by_s: int) -> str:
    """`1 day ahead`, `10 years back`."""
    unit, length_s = next((each for each in UNITS if abs(by_s) >= each[1]), UNITS[-1])
    count = round(abs(by_s) / length_s)
    return f"{count} {unit}{'' if count == 1 else 's'} {'back' if by_s < 0 else 'ahead'}"
