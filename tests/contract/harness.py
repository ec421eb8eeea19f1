"""What the contract's tests need besides the batch system: other people, time, and bad luck.

An implementation joins by a file NAME_harness.py beside this one, with a dictionary HARNESSES: conftest.py
finds it. Clauses that real systems keep only approximately, because they look every few seconds or sweep
twice a minute, are told apart by the harness's lags; a harness without lags is held to the second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

import pytest

from outrider.core.model import Resources
from outrider.rms.base import BatchSystem, JobState, Refused, RmsJob, RmsReservation, Sight, Submission
from tests.contract.sights import inconsistencies

ONE_LOOK_S = 1
MOST_TRIES = 10
ASKED = 4
"""So often a job is asked to be suspended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """A user known to the batch system, who may submit."""

    user: str
    uid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Lags:
    """How late things may be. Approximate on a real system, exact on one without lags.

    `change_s`: from a change, or from the instant at which a job may start, until it has.
    `end_s`: from a limit, a cancellation or a reservation's end until the job is off its nodes.
    `save_s`: from a suspension until the nodes are free. `requeue_s`: from the loss of its
    nodes until a job may start again. `lead_s`: how long before its start a reservation has
    to be made so that nothing is missed. `delete_s`: how long an administrator takes to get rid of
    a reservation that jobs wait for. `quiet_s`: how long it takes to believe that nothing
    happens, mostly as long as a change takes.

    On a clock that cannot be set, time costs time: `pace` is by how much reservations are shorter
    that a test waits for the end of, and a test that waits for longer than `patience_s` is left
    out (None: none is).
    """

    change_s: int
    end_s: int
    save_s: int
    requeue_s: int
    lead_s: int
    delete_s: int = 0
    quiet_s: int | None = None
    pace: int = 1
    patience_s: int | None = None


class Harness(Protocol):
    """A batch system, empty and with at least four equal nodes that are up, and its surroundings."""

    @property
    def system(self) -> BatchSystem: ...

    @property
    def nodes(self) -> tuple[str, ...]: ...

    @property
    def whole_node(self) -> Resources:
        """What a job asks for that wants a node to itself."""

    @property
    def less_of_a_node(self) -> Resources:
        """A part of that, of which a node has room for two or more."""

    @property
    def people(self) -> tuple[Person, Person]: ...

    @property
    def lags(self) -> Lags: ...

    @property
    def unstarted_at_end(self) -> JobState:
        """What becomes of a job that did not start in its reservation: held, or ended."""

    @property
    def reruns_after_failure(self) -> bool:
        """Whether a job waits again whose node failed, or has ended."""

    @property
    def machine(self) -> str:
        """What a job that is submitted here says of its virtual machine; nothing where it can have none."""

    def now_s(self) -> int: ...

    def pass_time(self, seconds: int) -> None: ...

    def pass_until_next_look(self) -> None:
        """A second, or less where time cannot be set."""

    def command(self, run_s: int) -> tuple[str, ...]:
        """A command that works so long and can be suspended."""

    def submit_as_user(self, submission: Submission, *, eligible: tuple[str, ...] = ()) -> str:
        """A job that does not come from the service, its metadata carried as users' metadata is.

        Its user wants it on `eligible` alone, if any are named.
        """

    def starting_nothing(self) -> AbstractContextManager[None]:
        """Meanwhile no job starts that is submitted, where the system can be told so."""

    def hold_as_user(self, job: str) -> None: ...

    def shown_to_user(self, job: str) -> str:
        """Whatever a user sees where jobs are listed."""

    def ticket_on_nodes(self, job: str) -> str:
        """What the hooks on a job's nodes are given to see as its ticket."""

    def reserve_as_administrator(self, wanted: RmsReservation) -> None: ...

    def delete_as_administrator(self, reservation: str) -> None:
        """Deletes a reservation in which no job runs."""

    def fail(self, node: str) -> None:
        """Makes a node crash; it may take a while until that is noticed."""

    def drain(self, node: str) -> None: ...

    def repair(self, node: str) -> None:
        """Lets a node be up that failed or was drained; it may take a while until that is noticed."""


class Scene:
    """What the tests say often, over any harness. Every look that they take is checked."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.system = harness.system
        self.nodes = harness.nodes
        self.lags = harness.lags
        self._known: set[str] = set()
        self._ended: set[str] = set()

    def look(self) -> Sight:
        """What is seen now; it fits together, and no job comes back that had ended."""
        sight = self.system.look()
        shown = {job.key for job in sight.jobs}
        self._ended |= self._known - shown
        self._known |= shown

        assert inconsistencies(sight) == []
        assert sorted(shown & self._ended) == []
        return sight

    def job(self, key: str) -> RmsJob | None:
        """A job as it is seen now; None once it has ended."""
        return seen(self.look(), key)

    def state(self, key: str) -> JobState:
        job = self.job(key)
        return JobState.ENDED if job is None else job.state

    def reservations(self) -> dict[str, RmsReservation]:
        return {each.name: each for each in self.look().reservations}

    def wait_for(self, claim: str, is_so: Callable[[Sight], bool], within_s: int) -> Sight:
        """Looks every second, or more often, until it is so; says what was seen last if it never is."""
        by_s = self.harness.now_s() + within_s
        while not is_so(sight := self.look()):
            if self.harness.now_s() > by_s:
                pytest.fail(f"not within {within_s} s: {claim}; seen last: {sight}")
            self.harness.pass_until_next_look()
        return sight

    def wait_for_state(self, key: str, *states: JobState, within_s: int | None = None) -> RmsJob | None:
        """Waits until a job is in one of these states."""

        def is_so(sight: Sight) -> bool:
            job = seen(sight, key)
            return (JobState.ENDED if job is None else job.state) in states

        names = " or ".join(state.value for state in states)
        longest_s = self.lags.change_s if within_s is None else within_s
        return seen(self.wait_for(f"job {key} is {names}", is_so, longest_s + ONE_LOOK_S), key)

    def suspend(self, key: str) -> RmsJob | None:
        """Suspends a job, and waits until it has left its nodes. One that has only just begun may not have
        heard of it, and is asked again while it runs."""
        self.system.suspend(key)
        again_s = self.harness.now_s() + self.lags.save_s // ASKED

        def is_suspended(sight: Sight) -> bool:
            nonlocal again_s
            job = seen(sight, key)
            if job is not None and job.state is JobState.RUNNING and self.harness.now_s() >= again_s:
                again_s = self.harness.now_s() + self.lags.save_s // ASKED
                self.system.suspend(key)
            return job is not None and job.state is JobState.SUSPENDED

        within_s = self.lags.save_s + ONE_LOOK_S
        return seen(self.wait_for(f"job {key} is suspended", is_suspended, within_s), key)

    def watch(self, until_s: int) -> list[Sight]:
        """A look every second, as long as they end before that instant."""
        sights = []
        while self.harness.now_s() < until_s:
            sight = self.look()
            if self.harness.now_s() < until_s:
                sights.append(sight)
            self.harness.pass_until_next_look()
        return sights

    def settle(self) -> None:
        """Gives whatever could start the time to do so."""
        quiet_s = self.lags.change_s if self.lags.quiet_s is None else self.lags.quiet_s
        self.harness.pass_time(quiet_s + ONE_LOOK_S)

    def paced(self, seconds: int) -> int:
        """So long, or less where time cannot be set."""
        return seconds // self.lags.pace

    def waits(self, seconds: int) -> None:
        """Says for how long a test waits at least; it is left out where nobody has that patience."""
        patience_s = self.lags.patience_s
        if patience_s is not None and seconds > patience_s:
            pytest.skip(f"waits for {seconds} s: with OUTRIDER_TEST_LONG=1 it is done")

    def in_time_s(self) -> int:
        """The start of a reservation that is made now."""
        return self.harness.now_s() + self.lags.lead_s

    def reservation(
        self, name: str, nodes: tuple[str, ...], start_s: int, duration_s: int = 120
    ) -> RmsReservation:
        """One for the first person."""
        return RmsReservation(
            name=name,
            nodes=nodes,
            start_s=start_s,
            end_s=start_s + duration_s,
            users=(self.harness.people[0].user,),
        )

    def submission(
        self,
        *,
        nodes_wanted: int = 1,
        run_s: int = 100_000,
        limit_s: int | None = 3600,
        metadata: str | None = None,
        reservation: str | None = None,
        person: int = 0,
        machine: str = "",
    ) -> Submission:
        """A job that wants whole nodes."""
        who = self.harness.people[person]
        return Submission(
            user=who.user,
            uid=who.uid,
            argv=self.harness.command(run_s),
            nodes_wanted=nodes_wanted,
            resources=self.harness.whole_node,
            limit_s=limit_s,
            metadata=metadata,
            reservation=reservation,
            machine=machine,
        )

    def waiting_job(self, *, nodes_wanted: int = 1, limit_s: int = 3600) -> str:
        """A job of the first person that cannot start, since it is held by us.

        It is held after it was submitted, so it may have started: then another one is tried.
        """
        for _ in range(MOST_TRIES):
            is_held = False
            with self.harness.starting_nothing():
                key = self.system.submit(self.submission(nodes_wanted=nodes_wanted, limit_s=limit_s))
                with suppress(Refused):
                    self.system.hold(key, "waits for its image")
                    is_held = True
            if is_held:
                assert self.state(key) is JobState.HELD
                return key
            self.system.cancel(key, "it has started too early for this test")
            self.wait_for_state(key, JobState.ENDED, within_s=self.lags.end_s)
        pytest.fail(f"{MOST_TRIES} jobs have started before they could be held")

    def running_job(
        self,
        *,
        nodes_wanted: int = 1,
        run_s: int = 100_000,
        limit_s: int | None = 3600,
        machine: str = "",
    ) -> str:
        submission = self.submission(nodes_wanted=nodes_wanted, run_s=run_s, limit_s=limit_s, machine=machine)
        key = self.system.submit(submission)
        self.wait_for_state(key, JobState.RUNNING)
        return key


def seen(sight: Sight, key: str) -> RmsJob | None:
    return next((job for job in sight.jobs if job.key == key), None)
