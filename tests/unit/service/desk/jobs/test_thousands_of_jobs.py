"""Many jobs at once: what follows for each is done in slices, between which others are answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsJob, RmsNode, Sight
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.site import Status
from outrider.service.daemon.threads.inbox import MOST_IN_A_ROW, Inbox
from outrider.service.desk.batch.effect_queue import MOST_CARRIED
from outrider.service.desk.batch.job_effects import subject_of
from outrider.service.desk.batch.reservation_effects import RESERVE
from outrider.service.desk.jobs.manager import READ_AT_ONCE
from outrider.service.desk.jobs.orders import MOST_UNDER_WAY
from outrider.service.desk.jobs.release import SETTLED_AT_ONCE
from outrider.service.ports import Call, Carry, Finished, Look, ResolveImage
from outrider.service.requests import Asked, ShowJob, ShowStatus, Ticked
from outrider.store.records import Effect
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, Sandbox, wanted

JOBS = 4 * READ_AT_ONCE
MANY = 100 * MOST_CARRIED


@pytest.fixture
def busy(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path, nodes=20)


def sight(sandbox: Sandbox, count: int, state: JobState = JobState.HELD) -> Sight:
    jobs = tuple(
        RmsJob(
            key=str(number),
            user=ALICE.user,
            uid=ALICE.uid,
            state=state,
            resources=Resources.of(cpus=8),
            limit_s=3600,
            submitted_s=sandbox.now_s,
            metadata="image: https://images.example.org/ubuntu\n",
            is_held_by_us=state is JobState.HELD,
        )
        for number in range(1, count + 1)
    )
    nodes = tuple(
        RmsNode(name=name, capacity=Resources.of(cpus=8, memory_mib=65_536)) for name in sorted(sandbox.pools)
    )
    return Sight(at_s=sandbox.now_s, nodes=nodes, jobs=jobs, reservations=())


def look(sandbox: Sandbox, seen: Sight) -> tuple[Call, ...]:
    """The desk looks, and sees this."""
    sandbox.clock.at_s += sandbox.settings.look_every_s
    outcome = sandbox.desk.handle(Ticked(), sandbox.now_s)
    (call,) = [each for each in outcome.calls if isinstance(each, Look)]
    return sandbox.desk.handle(Finished(call=call, result=seen), sandbox.now_s).calls


def status(sandbox: Sandbox) -> Status:
    outcome = sandbox.desk.handle(Asked(ticket=1, caller=ADMIN, request=ShowStatus()), sandbox.now_s)
    (reply,) = outcome.replies
    assert isinstance(reply.answer, Status)
    return reply.answer


def rest(sandbox: Sandbox) -> tuple[int, list[Call]]:
    """Let the desk do what is left at this instant; in how many slices, and what it calls for."""
    slices, calls = 0, list[Call]()
    while (next_s := sandbox.desk.next_s()) is not None and next_s <= sandbox.now_s:
        slices += 1
        assert slices < 200, "the desk does not come to rest"
        calls += sandbox.desk.handle(Ticked(), sandbox.now_s).calls
    return slices, calls


def test_jobs_of_one_look_are_taken_in_slice_by_slice(busy: Sandbox) -> None:
    look(busy, sight(busy, JOBS))
    asked = status(busy)
    due_s, now_s = busy.desk.next_s(), busy.now_s
    slices, _ = rest(busy)

    assert asked.jobs["resolving"] == JOBS
    assert due_s == now_s, "what is left is due at once"
    assert slices >= JOBS // READ_AT_ONCE - 1
    busy.close()


def test_request_does_no_work_of_others(busy: Sandbox) -> None:
    look(busy, sight(busy, JOBS))
    for _ in range(50):
        status(busy)
    slices, _ = rest(busy)

    assert slices >= JOBS // READ_AT_ONCE - 1
    busy.close()


def test_every_job_of_many_has_its_nodes_in_the_end(busy: Sandbox) -> None:
    calls = [*look(busy, sight(busy, JOBS)), *rest(busy)[1]]
    (question,) = [each for each in calls if isinstance(each, ResolveImage)]
    busy.desk.handle(Finished(call=question, result=busy.resolve(question)), busy.now_s)
    rest(busy)
    counts = status(busy).jobs
    reply = busy.desk.handle(Asked(ticket=2, caller=ALICE, request=ShowJob(job=str(JOBS))), busy.now_s)

    assert (counts["resolving"], counts["staging"]) == (0, JOBS)
    details = reply.replies[0].answer
    assert isinstance(details, JobDetails)
    assert details.job.node_count >= 1
    busy.close()


def test_job_that_has_gone_before_its_turn_is_forgotten(busy: Sandbox) -> None:
    look(busy, sight(busy, JOBS))
    look(busy, sight(busy, 1))
    rest(busy)

    assert sum(status(busy).jobs.values()) == 1
    busy.close()


def test_batch_system_is_told_a_few_things_at_a_time_and_everything_in_the_end(busy: Sandbox) -> None:
    """Jobs that nobody has held are held, one by one."""
    look(busy, sight(busy, 3 * MOST_CARRIED))
    calls = [*look(busy, sight(busy, 3 * MOST_CARRIED, JobState.PENDING)), *rest(busy)[1]]
    waiting = [each for each in calls if isinstance(each, Carry)]
    first, told = len(waiting), set[str]()
    most = first
    while waiting:
        call = waiting.pop(0)
        told.add(call.effect.subject)
        outcome = busy.desk.handle(Finished(call=call, result=None), busy.now_s)
        waiting += [each for each in outcome.calls if isinstance(each, Carry)]
        most = max(most, len(waiting))

    assert first == most == MOST_CARRIED
    assert len(told) == 3 * MOST_CARRIED
    busy.close()


def test_request_waits_for_a_few_results_and_not_for_all() -> None:
    inbox: Inbox[str] = Inbox(10)
    for number in range(3 * MOST_IN_A_ROW):
        inbox.put_result(f"result {number}")
    inbox.put_request("request", 1)
    taken = [inbox.take(0) for _ in range(3 * MOST_IN_A_ROW + 1)]

    assert taken.index("request") == MOST_IN_A_ROW
    assert [each for each in taken if each != "request"] == [
        f"result {number}" for number in range(3 * MOST_IN_A_ROW)
    ]


@pytest.fixture
def flooded(busy: Sandbox) -> Iterator[tuple[Sandbox, list[Carry]]]:
    """Thousands of jobs of ALICE's are to be held; one of BOB's is held already."""
    look(busy, with_one_of_bobs(sight(busy, MANY), JobState.HELD))
    seen = with_one_of_bobs(sight(busy, MANY, JobState.PENDING), JobState.HELD)
    calls = [*look(busy, seen), *rest(busy)[1]]
    yield busy, [each for each in calls if isinstance(each, Carry)]
    busy.close()


def with_one_of_bobs(seen: Sight, state: JobState) -> Sight:
    is_held = state is JobState.HELD
    own = replace(seen.jobs[0], key="bobs", user=BOB.user, uid=BOB.uid, state=state, is_held_by_us=is_held)
    return replace(seen, jobs=(*seen.jobs, own))


def carried(site: Sandbox, waiting: list[Carry]) -> list[Effect]:
    """What the batch system is asked for, in order; it answers at once."""
    found = list[Effect]()
    while waiting:
        call = waiting.pop(0)
        found.append(call.effect)
        outcome = site.desk.handle(Finished(call=call, result=None), site.now_s)
        waiting += [each for each in (*outcome.calls, *rest(site)[1]) if isinstance(each, Carry)]
    return found


def test_reservation_does_not_wait_behind_thousands_of_one_users_jobs(
    flooded: tuple[Sandbox, list[Carry]],
) -> None:
    site, waiting = flooded
    calls = site.desk.handle(Asked(ticket=3, caller=BOB, request=wanted(site)), site.now_s).calls
    kinds = [
        each.kind for each in carried(site, waiting + [each for each in calls if isinstance(each, Carry)])
    ]

    assert len(kinds) == MANY + 1
    assert kinds.index(RESERVE) < MOST_UNDER_WAY + 2 * SETTLED_AT_ONCE


def test_job_of_who_has_one_does_not_wait_behind_thousands_of_anothers(
    flooded: tuple[Sandbox, list[Carry]],
) -> None:
    site, waiting = flooded
    calls = look(site, with_one_of_bobs(sight(site, MANY, JobState.PENDING), JobState.PENDING))
    subjects = [
        each.subject for each in carried(site, waiting + [each for each in calls if isinstance(each, Carry)])
    ]

    assert len(subjects) == MANY + 1
    assert subjects.index(subject_of("bobs")) < MOST_UNDER_WAY + 2 * SETTLED_AT_ONCE
