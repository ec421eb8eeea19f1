"""What carries the images of a site: the two exclusive links of the thesis, or one for all.

A `Links` is what the book plans deadlines on, what the queue adds best-effort transfers to,
and what an executor or a simulator asks for the next event. Nothing in it waits: `advance`
is told the time and says which transfers began and ended up to then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outrider.core.links.deadline import DeadlineLink
from outrider.core.links.fifo import FifoLink, Scheduled
from outrider.core.links.schedule import DeadlineSchedule
from outrider.core.model import Image, Transfer

if TYPE_CHECKING:
    from outrider.core.links.deadline_network import DeadlineNetwork


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkEvent:
    """A transfer began or ended."""

    at_s: int
    transfer: Transfer
    has_begun: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferStanding:
    """A transfer that waits or runs, and what tells its place on the link besides its own values.

    `start_s` and `end_s` are when a best-effort transfer on a link of its own begins and ends by
    the plan; `end_s` also when a running one with a deadline does. One that has a deadline, has
    begun and has no `end_s` was put aside: any number may be. `left_bytes` is what is still
    to be sent where two classes share a link: an old value only makes the plan more careful.
    """

    transfer: Transfer
    has_begun: bool = False
    start_s: int | None = None
    end_s: int | None = None
    left_bytes: int | None = None


class Links(Protocol):
    """The links of a site."""

    @property
    def deadlines(self) -> DeadlineSchedule:
        """What carries transfers that have deadlines."""

    def pass_until(self, now_s: int) -> None:
        """It is `now_s`, and all that began or ended before has been taken with `advance`.

        To be told before a deadline is planned, which must not begin in the past.
        """

    def deadline_duration_s(self, size_bytes: int) -> int:
        """How long the link is booked for an image that has a deadline."""

    def transfer_duration_s(self, image: Image, nodes: tuple[str, ...]) -> int:
        """How long the links of its way are booked for an image that has to be on these nodes."""

    def duration_s(self, size_bytes: int) -> int:
        """How long a best-effort transfer takes if nothing else is on its link."""

    def end_if_added(self, size_bytes: int, count: int, now_s: int) -> int:
        """When the last of `count` best-effort transfers would end if they were added now."""

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        """Add a best-effort transfer."""

    def end_of(self, number: int, now_s: int) -> int | None:
        """When a best-effort transfer that runs or waits will end, by what is known now."""

    def guaranteed_end_of(self, number: int, now_s: int) -> int | None:
        """When a best-effort transfer will have ended whatever else is accepted; None if unknown."""

    def next_event_s(self, now_s: int) -> int | None:
        """When the next transfer begins or ends, if nothing is added before."""

    def advance(self, now_s: int) -> Iterator[LinkEvent]:
        """What began and ended up to and at `now_s`, in order; ends come before beginnings."""

    def stall(self, lost_s: int, *, has_deadline: bool) -> None:
        """What runs has lost so much time."""

    def set_aside(self, number: int, now_s: int) -> Transfer:
        """Let a running transfer with a deadline go on outside of the plan; the next may begin.

        What it takes of the link from now on is planned for nobody: the caller has to make sure
        that the others still get what they were planned with.
        """

    def end(self, number: int, now_s: int) -> Transfer:
        """A transfer with a deadline has really ended, on the link or aside, early or late."""

    def standings(self, now_s: int, only: Collection[int] | None = None) -> list[TransferStanding]:
        """All that waits or runs, of each class in its order; what was put aside comes first.

        With `only`, of the thousands that wait for a deadline none but these.
        """

    def resume(self, standings: Sequence[TransferStanding], now_s: int) -> None:
        """Put back on links that are new what stood on them before a restart."""


class ExclusiveLinks:
    """One link for what has a deadline, another for best effort (thesis, section 6.2)."""

    def __init__(
        self, *, rate_bytes_per_s: int, reserve_s: int | None = None, network: DeadlineNetwork | None = None
    ) -> None:
        """With a `network` transfers with deadlines cross its links instead."""
        self.deadlines: DeadlineSchedule = DeadlineLink(reserve_s=reserve_s) if network is None else network
        self.best_effort = FifoLink(rate_bytes_per_s=rate_bytes_per_s)

    def pass_until(self, now_s: int) -> None:
        """Nothing here depends on when the time was told last."""

    def deadline_duration_s(self, size_bytes: int) -> int:
        return self.best_effort.duration_s(size_bytes)

    def transfer_duration_s(self, image: Image, nodes: tuple[str, ...]) -> int:
        return self.deadline_duration_s(image.size_bytes)

    def duration_s(self, size_bytes: int) -> int:
        return self.best_effort.duration_s(size_bytes)

    def end_if_added(self, size_bytes: int, count: int, now_s: int) -> int:
        return self.best_effort.end_if_added(size_bytes, count, now_s)

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        return self.best_effort.add(transfer, now_s)

    def end_of(self, number: int, now_s: int) -> int | None:
        return self.best_effort.end_of(number)

    def guaranteed_end_of(self, number: int, now_s: int) -> int | None:
        return self.best_effort.end_of(number)

    def next_event_s(self, now_s: int) -> int | None:
        instants = [self.best_effort.next_event_s(), self.deadlines.next_event_s(now_s)]
        return min((at_s for at_s in instants if at_s is not None), default=None)

    def advance(self, now_s: int) -> Iterator[LinkEvent]:
        while (event := self._take_first(now_s)) is not None:
            yield event

    def _take_first(self, now_s: int) -> LinkEvent | None:
        """What happens first on either link up to `now_s`; at one instant, what ends."""
        ending, following = self.deadlines.under_way(), self.deadlines.next_start(now_s)
        due: list[tuple[int, bool, bool]] = []
        if ending:
            due.append((ending[0][1], False, True))
        if following is not None:
            due.append((following[0], True, True))
        best_effort_s = self.best_effort.next_event_s()
        if best_effort_s is not None:
            due.append((best_effort_s, not self.best_effort.is_running, False))
        at_s, has_begun, has_deadline = min(due, default=(now_s + 1, False, False))
        if at_s > now_s:
            return None
        if not has_deadline:
            transfer, _ = self.best_effort.take_event()
        elif not has_begun:
            transfer = self.deadlines.end(ending[0][0].number, at_s)
        else:
            assert following is not None
            transfer = self.deadlines.begin(following[1], at_s)
        return LinkEvent(at_s=at_s, transfer=transfer, has_begun=has_begun)

    def stall(self, lost_s: int, *, has_deadline: bool) -> None:
        if has_deadline:
            for transfer, end_s in self.deadlines.under_way():
                self.deadlines.extend(transfer.number, end_s + lost_s)
        else:
            self.best_effort.stall(lost_s)

    def set_aside(self, number: int, now_s: int) -> Transfer:
        return self.deadlines.set_aside(number, now_s)

    def end(self, number: int, now_s: int) -> Transfer:
        return self.deadlines.end(number, now_s)

    def standings(self, now_s: int, only: Collection[int] | None = None) -> list[TransferStanding]:
        found = standings_aside(self.deadlines)
        for transfer, end_s in self.deadlines.under_way():
            found.append(TransferStanding(transfer=transfer, has_begun=True, end_s=end_s))
        found += [TransferStanding(transfer=transfer) for transfer in self.deadlines.waiting(only)]
        for index, each in enumerate(self.best_effort.upcoming()):
            has_begun = index == 0 and self.best_effort.is_running
            found.append(
                TransferStanding(
                    transfer=each.transfer, has_begun=has_begun, start_s=each.start_s, end_s=each.end_s
                )
            )
        return found

    def resume(self, standings: Sequence[TransferStanding], now_s: int) -> None:
        of_deadlines = [each for each in standings if each.transfer.deadline_s is not None]
        resume_deadlines(self.deadlines, of_deadlines)
        for each in standings:
            if each.transfer.deadline_s is None:
                assert each.start_s is not None
                assert each.end_s is not None
                place = Scheduled(transfer=each.transfer, start_s=each.start_s, end_s=each.end_s)
                self.best_effort.resume(place, has_begun=each.has_begun)


def standings_aside(link: DeadlineSchedule) -> list[TransferStanding]:
    """What was put aside, in the order of numbers."""
    return [TransferStanding(transfer=link.aside[number], has_begun=True) for number in sorted(link.aside)]


def resume_deadlines(link: DeadlineSchedule, standings: Sequence[TransferStanding]) -> None:
    """The same for the transfers with a deadline."""
    for each in standings:
        if each.has_begun and each.end_s is None:
            link.resume_aside(each.transfer)
        elif each.has_begun:
            assert each.end_s is not None
            link.resume_running(each.transfer, each.end_s)
    link.resume_waiting([each.transfer for each in standings if not each.has_begun])
