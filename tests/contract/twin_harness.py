"""The twin's harness: people, time and bad luck are calls of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    BatchSystem,
    JobUse,
    Landing,
    RmsNode,
    RmsReservation,
    Sight,
    Submission,
    Unavailable,
)
from outrider.rms.twin import GRID_ENGINE, SLURM, Fault, Twin, TwinRules
from tests.contract.harness import ONE_LOOK_S, Lags, Person

CAPACITY = Resources.of(cpus=4, memory_mib=8192)
NODES = ("n1", "n2", "n3", "n4")
BEGIN_S = 1_000_000


class SetClock:
    """A clock that stands until it is set."""

    def __init__(self, now_s: int = BEGIN_S) -> None:
        self._now_s = now_s

    def now_s(self) -> int:
        return self._now_s

    def monotonic_s(self) -> float:
        return float(self._now_s)

    def sleep(self, seconds: float) -> None:
        self._now_s += int(seconds)


class AskedTwice:
    """A batch system that loses its first answer to every change, so that each is asked for twice."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    @property
    def name(self) -> str:
        return self._twin.name

    def look(self) -> Sight:
        return self._twin.look()

    def shares(self) -> dict[str, int]:
        return self._twin.shares()

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self._twin.silent(nodes)

    def reserve(self, wanted: RmsReservation) -> None:
        self._twice("reserve", lambda: self._twin.reserve(wanted))

    def unreserve(self, name: str) -> None:
        self._twice("unreserve", lambda: self._twin.unreserve(name))

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        self._twice("bind", lambda: self._twin.bind(job, reservation, limit_s))

    def hold(self, job: str, reason: str) -> None:
        self._twice("hold", lambda: self._twin.hold(job, reason))

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        self._twice("release", lambda: self._twin.release(job, nodes, ticket))

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        self._twice("resize", lambda: self._twin.resize(job, nodes_wanted, limit_s, each, option))

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        self._twice("note", lambda: self._twin.note(job, text, start_s))

    def ticket(self, job: str, text: str) -> None:
        self._twice("ticket", lambda: self._twin.ticket(job, text))

    def suspend(self, job: str) -> None:
        self._twice("suspend", lambda: self._twin.suspend(job))

    def resume(self, job: str) -> None:
        self._twice("resume", lambda: self._twin.resume(job))

    def signal(self, job: str, name: str, start_s: int) -> None:
        self._twice("signal", lambda: self._twin.signal(job, name, start_s))

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        self._twice("requeue", lambda: self._twin.requeue(job, start_s, reason))

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        self._twice("save", lambda: self._twin.save(job, start_s, reason, is_kept=is_kept))

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        self._twin.move(job, nodes, goes_first=goes_first)

    def land(self, wanted: Landing) -> bool:
        return self._twin.land(wanted)

    def use_of(self, job: str) -> JobUse:
        return self._twin.use_of(job)

    def cancel(self, job: str, reason: str) -> None:
        self._twice("cancel", lambda: self._twin.cancel(job, reason))

    def submit(self, submission: Submission) -> str:
        return self._twin.submit(submission)

    def _twice(self, call: str, ask: Callable[[], None]) -> None:
        self._twin.faults.plan(call, Fault.ANSWER_LOST)
        with pytest.raises(Unavailable):
            ask()
        ask()


class TwinHarness:
    """A twin of four nodes."""

    def __init__(self, rules: TwinRules, *, is_asked_twice: bool = False) -> None:
        self._clock = SetClock()
        nodes = [RmsNode(name=name, capacity=CAPACITY) for name in NODES]
        self.twin = Twin(nodes, clock=self._clock, rules=rules)
        self.system: BatchSystem = AskedTwice(self.twin) if is_asked_twice else self.twin
        self.nodes = NODES
        self.whole_node = CAPACITY
        self.less_of_a_node = Resources.of(cpus=2, memory_mib=4096)
        self.people = (Person(user="alice", uid=61001), Person(user="bob", uid=61002))
        self.unstarted_at_end = rules.unstarted_at_end
        self.machine = "run=vm,memory=128"
        self.reruns_after_failure = rules.reruns_after_failure
        # A change is acted on in the next second at the earliest, and a start takes the prolog's time.
        self.lags = Lags(
            change_s=rules.pass_every_s + rules.prolog_s,
            end_s=rules.sweep_every_s - 1 + rules.kill_s,
            save_s=rules.save_s,
            requeue_s=rules.requeue_delay_s,
            lead_s=30,
        )

    def now_s(self) -> int:
        return self._clock.now_s()

    def pass_time(self, seconds: int) -> None:
        self._clock.sleep(seconds)

    def pass_until_next_look(self) -> None:
        self.pass_time(ONE_LOOK_S)

    def command(self, run_s: int) -> tuple[str, ...]:
        return ("sleep", str(run_s))

    def submit_as_user(self, submission: Submission, *, eligible: tuple[str, ...] = ()) -> str:
        return self.twin.outside.submit(submission, eligible=eligible)

    def starting_nothing(self) -> AbstractContextManager[None]:
        """Jobs start only when a test lets time pass."""
        return nullcontext()

    def hold_as_user(self, job: str) -> None:
        self.twin.outside.hold(job)

    def shown_to_user(self, job: str) -> str:
        return self.twin.outside.shown(job)

    def ticket_on_nodes(self, job: str) -> str:
        return self.twin.outside.ticket(job)

    def reserve_as_administrator(self, wanted: RmsReservation) -> None:
        self.twin.outside.reserve(wanted)

    def delete_as_administrator(self, reservation: str) -> None:
        self.twin.outside.delete_reservation(reservation)

    def fail(self, node: str) -> None:
        self.twin.outside.fail(node)

    def drain(self, node: str) -> None:
        self.twin.outside.drain(node)

    def repair(self, node: str) -> None:
        self.twin.outside.repair(node)


HARNESSES = {
    "twin": lambda: nullcontext(TwinHarness(TwinRules())),
    "twin-asked-twice": lambda: nullcontext(TwinHarness(TwinRules(), is_asked_twice=True)),
    "twin-like-slurm": lambda: nullcontext(TwinHarness(SLURM)),
    "twin-like-gridengine": lambda: nullcontext(TwinHarness(GRID_ENGINE)),
}
