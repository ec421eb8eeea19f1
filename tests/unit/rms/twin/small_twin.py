"""A twin of three nodes with two processors each, and short ways to use it to the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, Refused, RmsJob, RmsNode, RmsReservation, Submission
from outrider.rms.twin import Hooks, NotReady, Twin, TwinRules
from tests.contract.twin_harness import SetClock

BEGIN_S = 1_000_000
NODES = ("n1", "n2", "n3")


@dataclass
class Calls:
    """What was asked of the hooks; a node without an image lets no job start."""

    prologs: list[tuple[str, str]] = field(default_factory=list)
    epilogs: list[tuple[str, str]] = field(default_factory=list)
    without_image: set[str] = field(default_factory=set)
    before_prolog: Callable[[RmsJob], None] | None = None

    def prolog(self, job: RmsJob, node: str) -> NotReady | None:
        self.prologs.append((job.key, node))
        if self.before_prolog is not None:
            self.before_prolog(job)
        return NotReady(f"no image on {node}") if node in self.without_image else None

    def epilog(self, job: RmsJob, node: str) -> None:
        self.epilogs.append((job.key, node))


class Small:
    """Instants are seconds since the beginning."""

    def __init__(self, rules: TwinRules | None = None) -> None:
        self.clock = SetClock(BEGIN_S)
        self.calls = Calls()
        nodes = [RmsNode(name=name, capacity=Resources.of(cpus=2)) for name in NODES]
        hooks = Hooks(prolog=self.calls.prolog, epilog=self.calls.epilog)
        self.twin = Twin(nodes, clock=self.clock, rules=rules, hooks=hooks)

    def to(self, second: int) -> None:
        self.clock.sleep(BEGIN_S + second - self.clock.now_s())

    def submit(
        self,
        work_s: int = 1000,
        *,
        nodes: int = 1,
        cpus: int = 2,
        limit_s: int | None = 5000,
        reservation: str | None = None,
        metadata: str | None = None,
    ) -> str:
        return self.twin.submit(
            Submission(
                user="alice",
                uid=61001,
                argv=("sleep", str(work_s)),
                nodes_wanted=nodes,
                resources=Resources.of(cpus=cpus),
                limit_s=limit_s,
                reservation=reservation,
                metadata=metadata,
            )
        )

    def reserve(self, name: str, nodes: tuple[str, ...], start: int, end: int) -> RmsReservation:
        wanted = RmsReservation(
            name=name, nodes=nodes, start_s=BEGIN_S + start, end_s=BEGIN_S + end, users=("alice",)
        )
        self.twin.reserve(wanted)
        return wanted

    def job(self, key: str) -> RmsJob:
        return next(job for job in self.twin.look().jobs if job.key == key)

    def state(self, key: str) -> JobState:
        found = [job.state for job in self.twin.look().jobs if job.key == key]
        return found[0] if found else JobState.ENDED

    def when(self, key: str, what: str) -> list[int]:
        """The seconds at which that happened to a job, or anything of that name."""
        self.twin.look()
        return [each.at_s - BEGIN_S for each in self.twin.log if (each.subject, each.what) == (key, what)]


def refused(ask: Callable[[], object]) -> str:
    """The words of a refusal."""
    with pytest.raises(Refused) as caught:
        ask()
    return str(caught.value)
