"""The embedded batch system's harness: its own rules and journal, and commands in clock time.

Real processes would make the contract as slow as its reservations are long; what they do is
tested on its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    BatchSystem,
    JobState,
    JobUse,
    Landing,
    RmsNode,
    RmsReservation,
    Sight,
    Submission,
)
from outrider.rms.embedded import Command, EmbeddedSystem, Handle, JobMachines
from outrider.rms.embedded.system import RULES
from outrider.rms.twin import Outside
from tests.contract.harness import ONE_LOOK_S, Lags, Person
from tests.contract.twin_harness import CAPACITY, NODES, SetClock

SAVING_S = 3
MACHINE = "run=vm,memory=128"


@dataclass
class SleepingCommand:
    """`sleep N` by a clock that a test sets; it does not sleep on while it stands still."""

    identity: str
    clock: SetClock
    left_s: int
    is_machine: bool = False
    saved_s: int | None = None
    """When its machine is saved."""
    since_s: int | None = None
    is_dead: bool = False

    def begin(self) -> None:
        if self.since_s is None:
            self.since_s = self.clock.now_s()

    def is_over(self) -> bool:
        if self.saved_s is not None and self.clock.now_s() >= self.saved_s:
            return True
        return self.is_dead or (self.since_s is not None and self.clock.now_s() - self.since_s >= self.left_s)

    def ask_to_end(self) -> None:
        """It does as it likes, so that only `kill` ends it."""

    def kill(self) -> None:
        self.is_dead = True

    def stop(self) -> None:
        if self.since_s is not None:
            self.left_s -= self.clock.now_s() - self.since_s
        self.since_s = None

    def go_on(self) -> None:
        self.since_s = self.clock.now_s()

    def signal(self, name: str) -> None:
        """A machine is saved, and nothing else listens."""
        if self.is_machine and name == "USR1" and self.since_s is not None and self.saved_s is None:
            self.stop()
            self.saved_s = self.clock.now_s() + SAVING_S

    def leave(self) -> None:
        """It sleeps on."""


@dataclass
class ClockLauncher:
    """Whatever was launched, over any number of services."""

    clock: SetClock
    launched: dict[str, SleepingCommand] = field(default_factory=dict)
    machines: dict[str, SleepingCommand] = field(default_factory=dict)
    """The last one of each job in a machine."""

    def refusal(self, submission: Submission) -> str | None:
        return None

    def launch(self, command: Command) -> Handle:
        identity = str(len(self.launched))
        made = SleepingCommand(identity, self.clock, int(command.argv[-1]), MACHINE in command.argv)
        before = self.machines.get(command.job)
        if made.is_machine and before is not None and before.saved_s is not None:
            made.left_s = before.left_s
        if made.is_machine:
            self.machines[command.job] = made
        self.launched[identity] = made
        return made

    def adopt(self, identity: str) -> Handle | None:
        found = self.launched[identity]
        return None if found.is_over() else found


class ClockMachines(JobMachines):
    """Machines of which nothing is on a disk."""

    def refusal(self, submission: Submission) -> str | None:
        return None

    def tidy(self, job: str, uid: int) -> bool:
        return True

    def discard_others(self, jobs: Collection[str]) -> list[str]:
        return []


class Quiet:
    """A log that nobody reads."""

    def info(self, event: str, **fields: object) -> None:
        pass

    def warning(self, event: str, **fields: object) -> None:
        pass


class Restarted:
    """A batch system whose service dies before each call, and is started anew."""

    name = "embedded"

    def __init__(self, start: Callable[[], EmbeddedSystem]) -> None:
        self._start = start

    def look(self) -> Sight:
        return self._start().look()

    def shares(self) -> dict[str, int]:
        return self._start().shares()

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self._start().silent(nodes)

    def reserve(self, wanted: RmsReservation) -> None:
        self._start().reserve(wanted)

    def unreserve(self, name: str) -> None:
        self._start().unreserve(name)

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        self._start().bind(job, reservation, limit_s)

    def hold(self, job: str, reason: str) -> None:
        self._start().hold(job, reason)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        self._start().release(job, nodes, ticket)

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        self._start().resize(job, nodes_wanted, limit_s, each, option)

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        self._start().note(job, text, start_s)

    def ticket(self, job: str, text: str) -> None:
        self._start().ticket(job, text)

    def suspend(self, job: str) -> None:
        self._start().suspend(job)

    def resume(self, job: str) -> None:
        self._start().resume(job)

    def signal(self, job: str, name: str, start_s: int) -> None:
        self._start().signal(job, name, start_s)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        self._start().requeue(job, start_s, reason)

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        self._start().save(job, start_s, reason, is_kept=is_kept)

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        self._start().move(job, nodes, goes_first=goes_first)

    def land(self, wanted: Landing) -> bool:
        return self._start().land(wanted)

    def use_of(self, job: str) -> JobUse:
        return self._start().use_of(job)

    def cancel(self, job: str, reason: str) -> None:
        self._start().cancel(job, reason)

    def submit(self, submission: Submission) -> str:
        return self._start().submit(submission)


class EmbeddedHarness:
    """Four nodes, whose service may die before every call."""

    def __init__(self, folder: Path, *, is_restarted: bool) -> None:
        self._clock = SetClock()
        self._launcher = ClockLauncher(self._clock)
        self._path = folder / "journal"
        self._is_restarted = is_restarted
        self._now = self._start()
        self.system: BatchSystem = Restarted(self._again) if is_restarted else self._now
        self.nodes = NODES
        self.whole_node: Resources = CAPACITY
        self.less_of_a_node = Resources.of(cpus=CAPACITY["cpus"] // 2)
        self.people = (Person(user="alice", uid=61001), Person(user="bob", uid=61002))
        self.unstarted_at_end: JobState = RULES.unstarted_at_end
        self.reruns_after_failure = RULES.reruns_after_failure
        self.machine = MACHINE
        self.lags = Lags(
            change_s=RULES.pass_every_s, end_s=RULES.kill_s, save_s=SAVING_S, requeue_s=0, lead_s=30
        )

    def _start(self) -> EmbeddedSystem:
        nodes = [RmsNode(name=name, capacity=CAPACITY) for name in NODES]
        machines = ClockMachines(self._path.parent, self._path.parent)
        return EmbeddedSystem(
            nodes, self._path, clock=self._clock, launcher=self._launcher, log=Quiet(), machines=machines
        )

    def _again(self) -> EmbeddedSystem:
        if self._is_restarted:
            self._now = self._start()
        return self._now

    @property
    def _outside(self) -> Outside:
        return self._again().outside

    def now_s(self) -> int:
        return self._clock.now_s()

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self._clock.sleep(1)
            self._now.tick()

    def pass_until_next_look(self) -> None:
        self.pass_time(ONE_LOOK_S)

    def command(self, run_s: int) -> tuple[str, ...]:
        return ("sleep", str(run_s))

    def submit_as_user(self, submission: Submission, *, eligible: tuple[str, ...] = ()) -> str:
        return self._kept(self._outside.submit(submission, eligible=eligible))

    def starting_nothing(self) -> AbstractContextManager[None]:
        """Jobs start only when a test lets time pass."""
        return nullcontext()

    def hold_as_user(self, job: str) -> None:
        self._outside.hold(job)
        self._now.tick()

    def shown_to_user(self, job: str) -> str:
        return self._outside.shown(job)

    def ticket_on_nodes(self, job: str) -> str:
        return self._outside.ticket(job)

    def reserve_as_administrator(self, wanted: RmsReservation) -> None:
        self._outside.reserve(wanted)
        self._now.tick()

    def delete_as_administrator(self, reservation: str) -> None:
        self._outside.delete_reservation(reservation)
        self._now.tick()

    def fail(self, node: str) -> None:
        self._outside.fail(node)
        self._now.tick()

    def drain(self, node: str) -> None:
        self._outside.drain(node)
        self._now.tick()

    def repair(self, node: str) -> None:
        self._outside.repair(node)
        self._now.tick()

    def _kept(self, key: str) -> str:
        self._now.tick()
        return key


@contextmanager
def embedded(*, is_restarted: bool = False) -> Iterator[EmbeddedHarness]:
    with tempfile.TemporaryDirectory(prefix="embedded-") as folder:
        yield EmbeddedHarness(Path(folder), is_restarted=is_restarted)


HARNESSES = {"embedded": embedded, "embedded-restarted-for-each-call": lambda: embedded(is_restarted=True)}
