"""Jobs in virtual machines: they are saved for reservations, or because their owners want it, and go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

from outrider.core.model import Resources
from outrider.rms.base import JobState, Refused, Submission, Unknown
from outrider.rms.twin import Twin
from outrider.service.requests import Caller, DecideSwitch, MigrateJob, ResumeJob, SuspendJob
from tests.simulation.dst.clockwork import Clockwork
from tests.simulation.dst.jobs import Jobs
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.people import ADMIN, USERS, People

NODE_MEMORY_MIB = 4_096
SAVED_AFTER_S = 3
"""How long the batch system takes to save a machine, however large it is."""
LOOKED_MS = 70_000
"""By then a look has shown what was changed in the batch system."""
LINES = "run: vm\npreemptible: suspend\n"


def with_moves(knobs: Knobs, seed: int) -> Knobs:
    """The same world, in which saved machines can go on at other nodes; in some the service packs them."""
    folder = "/shared/machines" if seed % 2 else ""
    settings = replace(
        knobs.settings, machines_folder=folder, consolidates=seed % 4 == 3, moves_live=seed % 8 > 4
    )
    return replace(knobs, settings=settings)


class MachineJobs:
    """In every second world: some jobs, owners who suspend or move them, and administrators' switches."""

    def __init__(
        self, clock: Clockwork, seed: int, knobs: Knobs, twin: Twin, jobs: Jobs, people: People
    ) -> None:
        self._clock = clock
        self._random = Random(seed * 86_028_121 + 9)
        self._knobs = knobs
        self._twin = twin
        self._jobs = jobs
        self._people = people

    def plan(self) -> None:
        """Choose when they are submitted."""
        random = self._random
        if random.random() < 0.5:
            return
        for _ in range(random.choice((1, 2, 4))):
            wait_ms = random.randrange(self._knobs.troubled_s * 1000 + 120_000)
            self._jobs.expect(wait_ms)
            self._clock.after(wait_ms, self._submit)
        for _ in range(random.choice((0, 1, 3))):
            self._clock.after(random.randrange(self._knobs.troubled_s * 1000 + 300_000), self._switch)

    def _migrate(self, owner: Caller, key: str) -> None:
        """Its owner wants it elsewhere, wherever the service finds room."""
        self._people.send(owner, MigrateJob(job=key))

    def _switch(self) -> None:
        """An administrator wants a node empty, or all machines packed."""
        random, names = self._random, sorted(self._twin.world.nodes)
        drained = (random.choice(names),) if random.random() < 0.5 else ()
        for node in drained:
            self._twin.outside.drain(node)
            self._clock.after(300_000, partial(self._give_back, node))
        # By the next look the service knows of it.
        request = DecideSwitch(is_plan=random.random() < 0.3, drained=drained)
        self._clock.after(LOOKED_MS, lambda: self._people.send(ADMIN, request))

    def _give_back(self, node: str) -> None:
        """Unless somebody has taken it out of the batch system meanwhile."""
        with suppress(Unknown):
            self._twin.outside.repair(node)

    def _submit(self) -> None:
        random, knobs = self._random, self._knobs
        number, user = random.randrange(len(knobs.images)), random.choice(USERS)
        work_s = random.choice((200, 500, 900))
        submission = Submission(
            user=user.user,
            uid=user.uid,
            argv=("sleep", str(work_s)),
            nodes_wanted=random.choice((1, 1, min(2, knobs.nodes))),
            resources=Resources.of(
                cpus=random.randint(1, knobs.cpus), memory_mib=random.choice((100, 500, 2_000))
            ),
            limit_s=work_s + 20,
            metadata=f"image: http://site/image{number}\n{LINES}{self._jobs.privacy.line(number)}",
        )
        self._jobs.patience_s += work_s
        with suppress(Refused):
            key = self._jobs.submit_preemptible(submission, number)
            act = random.choice((self._suspend, self._migrate, self._migrate, None))
            if act is not None:
                self._when_it_runs(key, partial(act, user, key))

    def _when_it_runs(self, key: str, act: Callable[[], None]) -> None:
        """Somebody looks now and then, and does something at some instant of the job's run."""
        job = self._twin.world.jobs.get(key)
        if job is None:
            return
        if job.state is JobState.RUNNING:
            self._clock.after(self._random.randrange(200_000), act)
        else:
            self._clock.after(20_000, lambda: self._when_it_runs(key, act))

    def _suspend(self, owner: Caller, key: str) -> None:
        """Its owner wants it to wait, and to go on a while later."""
        self._people.send(owner, SuspendJob(job=key))
        wait_ms = self._random.randrange(300_000)
        self._jobs.expect(wait_ms)
        self._clock.after(wait_ms, lambda: self._resume(owner, key))

    def _resume(self, owner: Caller, key: str) -> None:
        """Until it is over: while there is trouble somebody may not hear of it."""
        if key not in self._twin.world.jobs:
            return
        self._people.send(owner, ResumeJob(job=key))
        self._clock.after(120_000, lambda: self._resume(owner, key))
