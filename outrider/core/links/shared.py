"""One link for transfers with deadlines and for best effort: the thesis' open question.

Best effort is promised a share of the link. Transfers with deadlines are planned as if only
the rest of it existed, so each has a slot of size ÷ (rate × (1 − share)). Inside its slot
such a transfer and the head of the best-effort queue run side by side, at those two rates;
outside any slot best effort has the whole link. When best effort has nothing to send, the
transfer in the slot has the whole link and ends before its slot does.

What is guaranteed, whatever is submitted:

1. A transfer that was planned ends by its deadline: its slot depends on no best effort.
2. With B bytes of best effort ahead of and including a transfer, it ends within
   ⌈B ÷ ⌊rate × share⌋⌉ seconds: it does not starve, whatever deadlines are accepted later.
3. While there is best effort to send the link is never idle, and outside slots best effort
   has all of it: it steals the slack that pushing deadlines back (EDF/JIT) leaves.

A share of 0 keeps 1 and 3 and gives up 2.

Within a second the split is fixed: it is decided by whether best effort waits when the
second begins. So all events fall on whole seconds and everything is exact in integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from outrider.core.links.deadline import DeadlineLink
from outrider.core.links.expected_turns import when_sent
from outrider.core.links.fifo import Scheduled
from outrider.core.links.links import LinkEvent, TransferStanding, resume_deadlines, standings_aside
from outrider.core.model import Image, Transfer


@dataclass(slots=True)
class _Queued:
    """A best-effort transfer: it ends when so many bytes in all have been sent."""

    transfer: Transfer
    until_bytes: int
    has_begun: bool = False


class SharedLink:
    """Deadlines and best effort on one link."""

    def __init__(
        self, *, rate_bytes_per_s: int, best_effort_percent: int = 20, reserve_s: int | None = 0
    ) -> None:
        if not 0 <= best_effort_percent < 100:
            raise ValueError(f"best effort cannot have {best_effort_percent} % of a link: give 0 to 99")
        self._rate = rate_bytes_per_s
        self._beside_rate = rate_bytes_per_s * best_effort_percent // 100
        self._deadline_rate = rate_bytes_per_s - self._beside_rate
        if self._deadline_rate < 1 or (best_effort_percent and not self._beside_rate):
            raise ValueError(f"a link of {rate_bytes_per_s} bytes/s is too slow to be shared")
        self.deadlines = DeadlineLink(reserve_s=reserve_s)
        self._clock_s = 0
        # Of the transfer in its slot; and of all best effort since the beginning.
        self._left_bytes = 0
        self._sent_bytes = 0
        self._wanted_bytes = 0
        self._queue: deque[_Queued] = deque()

    def deadline_duration_s(self, size_bytes: int) -> int:
        return -(-size_bytes // self._deadline_rate)

    def transfer_duration_s(self, image: Image, nodes: tuple[str, ...]) -> int:
        return self.deadline_duration_s(image.size_bytes)

    def duration_s(self, size_bytes: int) -> int:
        return -(-size_bytes // self._rate)

    def pass_until(self, now_s: int) -> None:
        self._move_to(now_s)

    def end_if_added(self, size_bytes: int, count: int, now_s: int) -> int:
        self._move_to(now_s)
        return self._when_sent(self._wanted_bytes + size_bytes * count)

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        self._move_to(now_s)
        start_s = self._when_sent(self._wanted_bytes)
        self._wanted_bytes += transfer.image.size_bytes
        self._queue.append(_Queued(transfer, self._wanted_bytes))
        end_s = self._when_sent(self._wanted_bytes)
        return Scheduled(transfer=transfer, start_s=start_s, end_s=end_s)

    def end_of(self, number: int, now_s: int) -> int | None:
        self._move_to(now_s)
        for queued in self._queue:
            if queued.transfer.number == number:
                return self._when_sent(queued.until_bytes)
        return None

    def guaranteed_end_of(self, number: int, now_s: int) -> int | None:
        for queued in self._queue:
            if queued.transfer.number == number and self._beside_rate:
                ahead_bytes = queued.until_bytes - self._sent_bytes
                return self._clock_s + -(-ahead_bytes // self._beside_rate)
        return None

    def next_event_s(self, now_s: int) -> int | None:
        instants = [self._next_best_effort_end_s(), self._next_deadline_event_s()]
        if self._queue and not self._queue[0].has_begun:
            instants.append(self._clock_s)
        return min((max(at_s, now_s) for at_s in instants if at_s is not None), default=None)

    def advance(self, now_s: int) -> Iterator[LinkEvent]:
        yield from self._begin_head()
        while (at_s := self.next_event_s(self._clock_s)) is not None and at_s <= now_s:
            self._move_to(at_s)
            if self.deadlines.running is not None and self._left_bytes == 0:
                yield LinkEvent(
                    at_s=at_s,
                    transfer=self.deadlines.end(self.deadlines.running.number, at_s),
                    has_begun=False,
                )
            while self._queue and self._queue[0].until_bytes <= self._sent_bytes:
                # What is small may begin and end within the second that another one ends in.
                yield from self._begin_head()
                ended = self._queue.popleft().transfer
                yield LinkEvent(at_s=at_s, transfer=ended, has_begun=False)
            yield from self._begin_head()
            following = self.deadlines.next_start(at_s)
            if following is not None and following[0] <= at_s:
                begun = self.deadlines.begin(following[1], at_s)
                self._left_bytes = begun.image.size_bytes
                yield LinkEvent(at_s=at_s, transfer=begun, has_begun=True)
        self._move_to(now_s)

    def stall(self, lost_s: int, *, has_deadline: bool) -> None:
        if has_deadline:
            self._left_bytes += lost_s * self._deadline_rate
            self._expect_slot_end()
        else:
            lost_bytes = lost_s * self._rate
            self._wanted_bytes += lost_bytes
            for queued in self._queue:
                queued.until_bytes += lost_bytes

    def _rates(self) -> tuple[int, int]:
        """Bytes a second from now on: of the transfer in its slot, and of best effort."""
        waits = self._sent_bytes < self._wanted_bytes
        if self.deadlines.running is None:
            return 0, self._rate if waits else 0
        return (self._deadline_rate, self._beside_rate) if waits else (self._rate, 0)

    def _begin_head(self) -> Iterator[LinkEvent]:
        if self._queue and not self._queue[0].has_begun:
            self._queue[0].has_begun = True
            yield LinkEvent(at_s=self._clock_s, transfer=self._queue[0].transfer, has_begun=True)

    def _next_best_effort_end_s(self) -> int | None:
        _, rate = self._rates()
        if not self._queue or not rate:
            return None
        return self._clock_s + -(-(self._queue[0].until_bytes - self._sent_bytes) // rate)

    def _next_deadline_event_s(self) -> int | None:
        if self.deadlines.running is not None:
            return self._clock_s + -(-self._left_bytes // self._rates()[0])
        following = self.deadlines.next_start(self._clock_s)
        return following[0] if following is not None else None

    def _move_to(self, at_s: int) -> None:
        """Send until `at_s`, before which nothing begins or ends."""
        passed_s = at_s - self._clock_s
        if passed_s < 0:
            raise ValueError(f"the link is at {self._clock_s} already and cannot go back to {at_s}")
        deadline_rate, best_effort_rate = self._rates()
        self._left_bytes = max(0, self._left_bytes - passed_s * deadline_rate)
        self._sent_bytes = min(self._wanted_bytes, self._sent_bytes + passed_s * best_effort_rate)
        self._clock_s = at_s
        self._expect_slot_end()

    def _expect_slot_end(self) -> None:
        """Tell the schedule when the running transfer ends at the latest, best effort beside it."""
        if self.deadlines.running is not None:
            self.deadlines.busy_until_s = self._clock_s + -(-self._left_bytes // self._deadline_rate)

    def _when_sent(self, target_bytes: int) -> int:
        """When so many bytes of best effort in all will have been sent, by the plan as it is."""
        clock_s = self._clock_s
        slots: list[tuple[int, int]] = []
        if self.deadlines.running is not None:
            slots.append((clock_s, self.deadlines.busy_until_s))
        slots += [(start_s, start_s + each.duration_s) for each, start_s in self.deadlines.planned(clock_s)]
        return when_sent(target_bytes - self._sent_bytes, slots, clock_s, self._rate, self._beside_rate)

    def set_aside(self, number: int, now_s: int) -> Transfer:
        self._move_to(now_s)
        self._left_bytes = 0
        return self.deadlines.set_aside(number, now_s)

    def end(self, number: int, now_s: int) -> Transfer:
        self._move_to(now_s)
        ended = self.deadlines.end(number, now_s)
        if self.deadlines.running is None:
            self._left_bytes = 0
        return ended

    def standings(self, now_s: int, only: Collection[int] | None = None) -> list[TransferStanding]:
        self._move_to(now_s)
        found = standings_aside(self.deadlines)
        if self.deadlines.running is not None:
            found.append(
                TransferStanding(
                    transfer=self.deadlines.running,
                    has_begun=True,
                    end_s=self.deadlines.busy_until_s,
                    left_bytes=self._left_bytes,
                )
            )
        found += [TransferStanding(transfer=transfer) for transfer in self.deadlines.waiting(only)]
        until_bytes = self._sent_bytes
        for queued in self._queue:
            left_bytes, until_bytes = queued.until_bytes - until_bytes, queued.until_bytes
            found.append(
                TransferStanding(transfer=queued.transfer, has_begun=queued.has_begun, left_bytes=left_bytes)
            )
        return found

    def resume(self, standings: Sequence[TransferStanding], now_s: int) -> None:
        self._clock_s = now_s
        resume_deadlines(self.deadlines, [each for each in standings if each.transfer.deadline_s is not None])
        for each in standings:
            left_bytes = each.transfer.image.size_bytes if each.left_bytes is None else each.left_bytes
            if each.transfer.deadline_s is None:
                self._wanted_bytes += left_bytes
                self._queue.append(_Queued(each.transfer, self._wanted_bytes, each.has_begun))
            elif each.has_begun and each.end_s is not None:
                self._left_bytes = left_bytes
        self._expect_slot_end()
