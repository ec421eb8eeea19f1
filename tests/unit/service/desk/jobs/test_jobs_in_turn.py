"""Jobs of queues in which Outrider decides who starts, seen from outside of the desk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs import schedule
from outrider.core.besteffort.jobs.order import Order
from outrider.core.besteffort.jobs.schedule import JobSchedule, ScheduleRules, Walk
from outrider.rms.base import JobState, RmsReservation, Sight
from outrider.service.answers.jobs import JobDetails
from outrider.service.desk.desk import Desk, Event, Outcome
from outrider.service.ports import NodeImage
from outrider.service.requests import Caller, ShowJob
from outrider.service.settings import ScheduleSettings, Settings
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, digest_of

LOOK_S = 30
SOON_S = 2 * LOOK_S + 10
"""Two looks: one that shows what is there, and one that shows what came of it."""
HOUR_S = 3600
UBUNTU = digest_of("ubuntu")


def settings(
    rules: ScheduleRules | None = None, order: Order = Order.FCFS, queues: tuple[str, ...] = ("main",)
) -> Settings:
    return Settings(
        link_rate_bytes_per_s=RATE,
        reserve_s=60,
        schedule=ScheduleSettings(queues=queues, rules=rules or ScheduleRules(), order=order),
    )


@pytest.fixture
def easy(tmp_path: Path) -> Iterator[Sandbox]:
    """Four nodes, EASY backfilling."""
    made = Sandbox(tmp_path, settings=settings())
    yield made
    made.close()


def submit(
    sandbox: Sandbox,
    image: str | None = "ubuntu",
    *,
    nodes: int = 1,
    limit_s: int = HOUR_S,
    is_held: bool = True,
    queue: str = "",
    caller: Caller = ALICE,
) -> str:
    """A job that runs until its limit."""
    return sandbox.submit(
        image,
        nodes=nodes,
        limit_s=limit_s,
        is_held=is_held,
        queue=queue,
        caller=caller,
        argv=("sleep", "1000000"),
    )


def state(sandbox: Sandbox, key: str) -> JobState | None:
    found = sandbox.job(key)
    return None if found is None else found.state


def nodes_of(sandbox: Sandbox, key: str) -> tuple[str, ...]:
    found = sandbox.job(key)
    assert found is not None
    return found.nodes


def details(sandbox: Sandbox, key: str) -> JobDetails:
    answer = sandbox.ask(ShowJob(job=key), ADMIN)
    assert isinstance(answer, JobDetails), answer
    return answer


def started_s(sandbox: Sandbox, key: str) -> int:
    return next(each.at_s for each in sandbox.rms.log if each.subject == key and each.what == "running")


def test_job_without_an_image_is_held_until_its_turn_and_starts_on_its_nodes(easy: Sandbox) -> None:
    first = submit(easy, None, nodes=4, limit_s=HOUR_S)
    second = submit(easy, None, nodes=2, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    before = state(easy, second)
    planned = details(easy, second)
    easy.sleep(HOUR_S)

    assert before is JobState.HELD
    assert planned.job.start_s is not None
    assert abs(planned.job.start_s - (started_s(easy, first) + HOUR_S)) <= SOON_S
    assert planned.job.nodes == "n[1-2]"
    assert nodes_of(easy, second) == ("n1", "n2")


def test_job_that_nobody_held_is_held_as_well(easy: Sandbox) -> None:
    submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    late = submit(easy, None, is_held=False, nodes=4)
    easy.sleep(SOON_S)

    found = easy.job(late)
    assert found is not None
    assert found.state is JobState.HELD
    assert found.is_held_by_us


def test_short_job_goes_first_where_it_delays_nobody(easy: Sandbox) -> None:
    submit(easy, None, nodes=3, limit_s=HOUR_S)
    wide = submit(easy, None, nodes=4, limit_s=HOUR_S)
    long = submit(easy, None, nodes=1, limit_s=2 * HOUR_S)
    short = submit(easy, None, nodes=1, limit_s=HOUR_S // 2)
    easy.sleep(SOON_S)

    assert [state(easy, key) for key in (wide, long, short)] == [
        JobState.HELD,
        JobState.HELD,
        JobState.RUNNING,
    ]
    assert nodes_of(easy, short) == ("n4",)


def test_without_backfilling_nobody_goes_first(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, settings=settings(ScheduleRules(backfilling=Backfilling.OFF)))
    submit(sandbox, None, nodes=3, limit_s=HOUR_S)
    submit(sandbox, None, nodes=4, limit_s=HOUR_S)
    short = submit(sandbox, None, nodes=1, limit_s=HOUR_S // 2)
    sandbox.sleep(SOON_S)

    assert state(sandbox, short) is JobState.HELD
    sandbox.close()


def test_whoever_asks_waits_for_a_slice_of_the_thinking_about_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SLICE", 1)
    sandbox = Sandbox(tmp_path, settings=settings(ScheduleRules(places=None)))
    plain_slice, plain_event = JobSchedule.go_on, Desk.handle
    slices: list[int] = []

    def go_on(self: JobSchedule, now_s: int, available: int) -> Walk:
        slices[-1] += 1
        return plain_slice(self, now_s, available)

    def handle(self: Desk, event: Event, now_s: int) -> Outcome:
        slices.append(0)
        return plain_event(self, event, now_s)

    monkeypatch.setattr(JobSchedule, "go_on", go_on)
    monkeypatch.setattr(Desk, "handle", handle)
    keys = [submit(sandbox, None, nodes=4, limit_s=HOUR_S) for _ in range(6)]
    sandbox.sleep(SOON_S)
    planned = [details(sandbox, key).job.start_s for key in keys[1:]]
    sandbox.close()

    assert max(slices) == 1
    assert sum(slices) >= len(keys)
    assert None not in planned


def test_largest_comes_first_where_size_is_the_order(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, settings=settings(order=Order.SIZE))
    submit(sandbox, None, nodes=4, limit_s=HOUR_S)
    sandbox.sleep(SOON_S)
    small = submit(sandbox, None, nodes=1, limit_s=2 * HOUR_S)
    large = submit(sandbox, None, nodes=4, limit_s=HOUR_S)
    sandbox.sleep(HOUR_S)

    assert (state(sandbox, small), state(sandbox, large)) == (JobState.HELD, JobState.RUNNING)
    sandbox.close()


@pytest.mark.parametrize(("pool_s", "share_percent"), [(80, 100), (300, 25)], ids=["pool", "share"])
def test_who_is_first_in_a_strict_order_has_the_room_of_those_that_it_holds_up(
    tmp_path: Path, pool_s: int, share_percent: int
) -> None:
    """A smaller job had begun to bring its image, and the larger one's does not fit beside it: into a pool,
    or into what their user may keep."""
    rules = settings(ScheduleRules(backfilling=Backfilling.OFF), Order.SIZE)
    sandbox = Sandbox(tmp_path, settings=replace(rules, user_share_percent=share_percent))
    sandbox.sizes |= {
        f"https://images.example.org/{name}": s * RATE for name, s in (("ubuntu", 40), ("debian", 48))
    }
    for pool in sandbox.pools.values():
        pool.limit_bytes = pool_s * RATE
    sandbox.sleep(LOOK_S)
    small = submit(sandbox)
    sandbox.sleep(LOOK_S)
    small_is = details(sandbox, small).job.state
    large = submit(sandbox, "debian", nodes=4)
    sandbox.sleep(3 * SOON_S)
    large_is = state(sandbox, large)
    sandbox.sleep(2 * HOUR_S)

    assert (small_is, large_is) == ("staging", JobState.RUNNING)
    assert started_s(sandbox, small) > started_s(sandbox, large)
    sandbox.close()


def test_job_starts_as_soon_as_its_image_is_on_exactly_its_nodes(easy: Sandbox) -> None:
    submit(easy, None, nodes=2, limit_s=HOUR_S)
    key = submit(easy, nodes=2, limit_s=HOUR_S)
    easy.sleep(SOON_S + LOOK_S)

    nodes = nodes_of(easy, key)
    assert set(nodes) == {"n3", "n4"}
    assert {name for name, pool in easy.pools.items() if pool.fetches} == {"n3", "n4"}
    assert all(easy.pools[name].images[UBUNTU].added_s <= started_s(easy, key) for name in nodes)
    assert easy.rms.outside.ticket(key).startswith(f"ticket {key}")


def test_image_of_a_job_that_waits_for_nodes_is_there_before_its_turn(easy: Sandbox) -> None:
    first = submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    key = submit(easy, nodes=3, limit_s=HOUR_S, caller=BOB)
    easy.sleep(SOON_S)
    before = details(easy, key).job
    easy.sleep(HOUR_S)

    assert before.state == "staged"
    assert before.held
    assert "is planned to start about" in before.words
    assert state(easy, first) is None
    assert nodes_of(easy, key) == ("n1", "n2", "n3")


def test_job_that_waits_beside_its_image_goes_first_on_a_node_that_is_free_before(easy: Sandbox) -> None:
    others = [submit(easy, None, limit_s=HOUR_S) for _ in range(3)]
    last = submit(easy, None, limit_s=600)
    easy.sleep(SOON_S)
    key = submit(easy, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    is_brought = {name for name, pool in easy.pools.items() if pool.fetches}
    easy.sleep(started_s(easy, last) + 600 - 85 - easy.now_s)
    easy.rms.cancel(others[0], "")
    later = submit(easy, limit_s=HOUR_S)
    easy.sleep(65)

    assert is_brought == {"n4"}
    assert state(easy, last) is JobState.RUNNING
    assert nodes_of(easy, key) == ("n1",)
    assert state(easy, later) is JobState.HELD


def test_job_whose_node_does_not_say_that_it_has_the_image_is_not_released_to_it(easy: Sandbox) -> None:
    easy.pools["n1"].images[UBUNTU] = NodeImage(digest=UBUNTU, size_bytes=10 * RATE, uri="x")
    easy.sleep(301)
    easy.pools["n1"].is_away = True
    key = submit(easy, nodes=1, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    before = state(easy, key)
    easy.pools["n1"].is_away = False
    easy.sleep(SOON_S)

    assert before is JobState.HELD
    assert nodes_of(easy, key) == ("n1",)


@pytest.mark.parametrize("is_new_service", [False, True])
def test_job_that_was_sent_back_has_the_place_in_the_queue_that_it_had(
    easy: Sandbox, *, is_new_service: bool
) -> None:
    first = submit(easy, None, nodes=4)
    easy.sleep(SOON_S)
    others = [submit(easy, None, nodes=4) for _ in range(2)]
    easy.sleep(SOON_S)
    easy.rms.requeue(first, started_s(easy, first), "it makes way")
    if is_new_service:
        easy.restart()
    easy.sleep(2 * HOUR_S + 10 * LOOK_S)

    runs = [each.subject for each in easy.rms.log if each.what == "running"]
    assert runs == [first, others[0], first, others[1]] or runs == [first, first, *others]


def test_jobs_go_round_a_reservation(easy: Sandbox) -> None:
    start_s = easy.now_s + HOUR_S
    easy.rms.outside.reserve(
        RmsReservation(
            name="maintenance", nodes=("n1", "n2"), start_s=start_s, end_s=start_s + HOUR_S, users=("root",)
        )
    )
    long = submit(easy, None, nodes=2, limit_s=2 * HOUR_S)
    wide = submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)

    assert nodes_of(easy, long) == ("n3", "n4")
    assert state(easy, wide) is JobState.HELD
    planned_s = details(easy, wide).job.start_s
    assert planned_s is not None
    assert planned_s >= start_s + HOUR_S


def test_jobs_of_other_queues_are_the_batch_systems(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, settings=settings(queues=("gang",)))
    other = submit(sandbox, None, is_held=False, nodes=1)
    ours = submit(sandbox, None, is_held=False, nodes=4, queue="gang")
    sandbox.sleep(SOON_S)

    found = sandbox.job(ours)
    assert state(sandbox, other) is JobState.RUNNING
    assert found is not None
    assert found.is_held_by_us
    sandbox.close()


def test_job_that_waits_for_others_has_no_turn_before_that(
    easy: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = submit(easy, None, nodes=4, limit_s=HOUR_S)
    look = easy.rms.look

    def look_blocked() -> Sight:
        sight = look()
        return replace(sight, jobs=tuple(replace(job, is_blocked=job.key == blocked) for job in sight.jobs))

    monkeypatch.setattr(easy.rms, "look", look_blocked)
    other = submit(easy, None, nodes=4, limit_s=HOUR_S // 2)
    easy.sleep(SOON_S)
    before = (state(easy, blocked), state(easy, other), details(easy, blocked).job.words)
    monkeypatch.undo()
    easy.sleep(HOUR_S // 2 + SOON_S)

    assert before[:2] == (JobState.HELD, JobState.RUNNING)
    assert "waits for other jobs" in before[2]
    assert state(easy, blocked) is JobState.RUNNING


def test_limit_that_is_changed_while_a_job_waits_counts(
    easy: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(easy, None, nodes=3, limit_s=HOUR_S)
    submit(easy, None, nodes=4, limit_s=HOUR_S)
    long = submit(easy, None, nodes=1, limit_s=2 * HOUR_S)
    easy.sleep(SOON_S)
    before = state(easy, long)
    look = easy.rms.look

    def look_shorter() -> Sight:
        sight = look()
        jobs = (replace(job, limit_s=600) if job.key == long else job for job in sight.jobs)
        return replace(sight, jobs=tuple(jobs))

    monkeypatch.setattr(easy.rms, "look", look_shorter)
    easy.sleep(SOON_S)

    assert (before, state(easy, long)) == (JobState.HELD, JobState.RUNNING)


def test_nothing_that_is_held_starts_while_the_service_is_away(easy: Sandbox) -> None:
    running = submit(easy, None, nodes=4, limit_s=HOUR_S)
    waiting = submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    begun = state(easy, running)
    easy.clock.at_s += 2 * HOUR_S

    assert begun is JobState.RUNNING
    assert state(easy, running) is None
    assert state(easy, waiting) is JobState.HELD


def test_service_that_comes_back_goes_on_in_the_same_order(easy: Sandbox) -> None:
    submit(easy, None, nodes=4, limit_s=HOUR_S)
    second = submit(easy, None, nodes=3, limit_s=HOUR_S)
    third = submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    easy.clock.at_s += 2 * HOUR_S
    easy.restart()
    easy.sleep(SOON_S + LOOK_S)

    assert (state(easy, second), state(easy, third)) == (JobState.RUNNING, JobState.HELD)


def test_job_that_does_not_start_gives_its_place_to_others(easy: Sandbox) -> None:
    easy.rms.outside.drain("n1")
    easy.rms.outside.drain("n2")
    easy.rms.outside.drain("n3")
    easy.sleep(LOOK_S)
    stuck = submit(easy, None, nodes=1, limit_s=HOUR_S)
    other = submit(easy, None, nodes=1, limit_s=HOUR_S)
    # Whatever Slurm has against it: the twin holds it for its user as soon as it is released.
    release = easy.rms.release

    def release_in_vain(job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        if job != stuck:
            release(job, nodes, ticket)

    easy.rms.release = release_in_vain  # type: ignore[method-assign]
    easy.sleep(SOON_S)
    before = state(easy, other)
    easy.sleep(300)

    assert before is JobState.HELD
    assert state(easy, other) is JobState.RUNNING


def test_job_that_a_reservation_keeps_from_its_nodes_gets_others_at_once(easy: Sandbox) -> None:
    release, told = easy.rms.release, list[tuple[str, ...]]()

    def release_late(job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        told.append(nodes)
        if len(told) == 1:
            start_s = easy.now_s + HOUR_S // 2
            easy.rms.outside.reserve(
                RmsReservation(
                    name="theirs",
                    nodes=nodes,
                    start_s=start_s,
                    end_s=start_s + HOUR_S,
                    users=("root",),
                    is_ours=False,
                )
            )
        release(job, nodes, ticket)

    easy.rms.release = release_late  # type: ignore[method-assign]
    key = submit(easy, None, nodes=1, limit_s=HOUR_S)
    easy.sleep(SOON_S)

    assert told == [("n1",), ("n2",)]
    assert nodes_of(easy, key) == ("n2",)


def test_queues_that_are_handed_back_are_the_batch_systems_until_they_are_taken_over(easy: Sandbox) -> None:
    submit(easy, None, nodes=4, limit_s=HOUR_S)
    plain = submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    easy.is_handed_back = True
    easy.sleep(LOOK_S)
    handed_back = state(easy, plain)
    easy.is_handed_back = False
    easy.sleep(SOON_S)

    assert handed_back is JobState.PENDING
    assert state(easy, plain) is JobState.HELD


def test_image_of_a_job_is_still_brought_when_its_queue_is_handed_back(easy: Sandbox) -> None:
    submit(easy, None, nodes=4, limit_s=HOUR_S)
    easy.sleep(SOON_S)
    key = submit(easy, nodes=2, limit_s=HOUR_S)
    easy.is_handed_back = True
    easy.sleep(2 * SOON_S)

    assert state(easy, key) is JobState.PENDING
    assert easy.rms.outside.ticket(key).startswith(f"ticket {key}")
