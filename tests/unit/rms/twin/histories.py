"""Random histories of a small twin, told by what can be seen of it from outside.

The same seed gives the same history, word by word, whatever the hash seed of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from outrider.core.model import Resources
from outrider.rms.base import (
    JobState,
    Refused,
    RmsJob,
    RmsNode,
    RmsReservation,
    Sight,
    Submission,
    Unavailable,
)
from outrider.rms.twin import GRID_ENGINE, SLURM, EpilogFault, Fault, Hooks, NotReady, Slow, Twin, TwinRules
from outrider.rms.twin.faults import CALLS
from tests.contract.twin_harness import SetClock

NODES = ("n1", "n2", "n3")
USERS = ("alice", "bob")
OPERATIONS = 200


@dataclass
class History:
    """A twin with random rules, whatever is done to it, and every look at it."""

    seed: int
    sights: list[Sight] = field(default_factory=list)
    changed_s: dict[str, int] = field(default_factory=dict)
    """When each reservation was last made or changed, or may have been."""
    prologs: list[tuple[str, str, int]] = field(default_factory=list)
    epilogs: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.clock = SetClock()
        self.rules = self._random_rules()
        hooks = Hooks(prolog=self._prolog, epilog=self._epilog)
        capacity = Resources.of(cpus=2, memory_mib=1000)
        nodes = [RmsNode(name=name, capacity=capacity) for name in NODES]
        self.twin = Twin(nodes, clock=self.clock, rules=self.rules, hooks=hooks)

    def end_lag_s(self) -> int:
        """How long after its end something may still be on its nodes, by the rules."""
        return self.rules.sweep_every_s - 1 + max(self.rules.kill_s, self.rules.save_s)

    def run(self) -> History:
        for _ in range(OPERATIONS):
            self._do_something()
            for _ in range(self.chance.choice((0, 0, 1, 1, 2, 7, 30))):
                self.clock.sleep(1)
                self.look()
        return self

    def tell(self) -> str:
        """All that was seen and logged, as one text."""
        return "\n".join(map(repr, (*self.sights, *self.twin.log, self.prologs, self.epilogs)))

    def _random_rules(self) -> TwinRules:
        chance = self.chance
        mixed = TwinRules(
            pass_every_s=chance.choice((1, 3)),
            sweep_every_s=chance.choice((1, 7)),
            prolog_s=chance.choice((0, 2)),
            save_s=chance.choice((0, 3)),
            kill_s=chance.choice((0, 2)),
            requeue_delay_s=chance.choice((0, 11)),
            is_prolog_on_every_node=chance.random() < 0.5,
            unstarted_at_end=chance.choice((JobState.HELD, JobState.ENDED)),
            starts_beyond_end=chance.random() < 0.5,
            deletes_in_use=chance.random() < 0.5,
            reruns_after_failure=chance.random() < 0.5,
            release_ends_all_holds=chance.random() < 0.5,
        )
        return chance.choice((TwinRules(), SLURM, GRID_ENGINE, mixed, mixed, mixed))

    def _prolog(self, job: RmsJob, node: str) -> NotReady | None:
        assert (job.state, node in job.nodes) == (JobState.STARTING, True)
        assert job.start_s is not None
        self.prologs.append((job.key, node, job.start_s))
        return NotReady(f"no image on {node}") if self.chance.random() < 0.15 else None

    def _epilog(self, job: RmsJob, node: str) -> None:
        assert node in job.nodes
        assert job.start_s is not None
        self.epilogs.append((job.key, node, job.start_s))

    def look(self) -> Sight:
        """What is seen now, asking again until there is an answer."""
        while True:
            try:
                self.sights.append(self.twin.look())
            except (Unavailable, Refused):
                continue
            return self.sights[-1]

    def _do_something(self) -> None:
        operation = self.chance.choice(self._operations())
        try:
            operation()
        except (Refused, Unavailable):
            pass
        finally:
            self.look()

    def _operations(self) -> list[Callable[[], object]]:
        twin, outside = self.twin, self.twin.outside
        job, node, reservation = self._job(), self.chance.choice(NODES), self._name()
        some = tuple(self.chance.sample(NODES, self.chance.randint(0, 3)))
        return [
            *[lambda: twin.submit(self._submission())] * 5,
            *[lambda: outside.submit(self._submission(), is_held=self.chance.random() < 0.2)] * 5,
            *[lambda: self._reserve(twin.reserve)] * 4,
            lambda: self._reserve(outside.reserve),
            lambda: self._reserve(outside.alter_ours),
            lambda: twin.unreserve(reservation),
            lambda: outside.delete_reservation(reservation),
            *[lambda: twin.bind(job, self.chance.choice((reservation, reservation, None)))] * 3,
            *[lambda: twin.hold(job, "waits")] * 2,
            *[lambda: twin.release(job, some)] * 2,
            *[lambda: twin.release(job)] * 4,
            *[lambda: twin.suspend(job)] * 2,
            *[lambda: twin.resume(job)] * 2,
            lambda: twin.cancel(job, "given up"),
            lambda: outside.hold(job),
            lambda: outside.release(job),
            lambda: outside.requeue(job, is_held=self.chance.random() < 0.5),
            lambda: outside.drain(node),
            lambda: outside.fail(node),
            *[lambda: outside.repair(node)] * 5,
            self._plan_a_fault,
        ]

    def _plan_a_fault(self) -> None:
        fault = self.chance.choice((*Fault, Slow(self.chance.randint(0, 5))))
        self.twin.faults.plan(self.chance.choice(CALLS), fault)
        self.twin.faults.plan_epilogs(self.chance.choice(tuple(EpilogFault)))

    def _job(self) -> str:
        """Mostly one that was seen last."""
        jobs = self.sights[-1].jobs if self.sights else ()
        return self.chance.choice([*(job.key for job in jobs), "1"])

    def _name(self) -> str:
        return f"vw-{self.chance.randint(1, 4)}"

    def _reserve(self, ask: Callable[[RmsReservation], None]) -> None:
        start_s = self.clock.now_s() + self.chance.randint(-10, 80)
        wanted = RmsReservation(
            name=self._name(),
            nodes=tuple(self.chance.sample(NODES, self.chance.randint(1, 3))),
            start_s=start_s,
            end_s=start_s + self.chance.randint(1, 90),
            users=tuple(self.chance.sample(USERS, self.chance.randint(1, 2))),
        )
        old = {each.name: each for each in self.sights[-1].reservations} if self.sights else {}
        if wanted.name in old and self.chance.random() < 0.5:
            wanted = replace(old[wanted.name], end_s=wanted.end_s + 60, is_ours=True)
        try:
            ask(wanted)
        finally:
            self.changed_s[wanted.name] = self.clock.now_s()

    def _submission(self) -> Submission:
        chance = self.chance
        return Submission(
            user=chance.choice(USERS),
            uid=61001,
            argv=("sleep", str(chance.randint(0, 60))) if chance.random() < 0.7 else ("serve",),
            nodes_wanted=chance.randint(1, 3),
            resources=Resources.of(cpus=chance.randint(1, 2), memory_mib=chance.choice((100, 600))),
            limit_s=chance.choice((None, 1, 20, 60, 60, 200)),
            reservation=self._name() if chance.random() < 0.3 else None,
        )


if __name__ == "__main__":
    for number in range(6):
        print(History(number).run().tell())  # noqa: T201
