"""Users on the best-effort link: none waits for all that another has asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.answers.jobs import JobDetails
from outrider.service.requests import Caller, Modify, ShowJob
from outrider.service.settings import Settings
from tests.amount import first
from tests.unit.service.desk.jobs.test_leading_jobs import states
from tests.unit.service.desk.sandbox import ALICE, BOB, GIB, RATE, Sandbox, reserve, show

CAROL = Caller(uid=1003, user="carol", gids=(100,), groups=("physics",))
LOOK_S = 35
TURN_S = 60
SOON_S = 15


def words_of(sandbox: Sandbox, key: str, caller: Caller) -> str:
    answer = sandbox.ask(ShowJob(job=key), caller)
    assert isinstance(answer, JobDetails), answer
    return answer.job.words


def crowd(sandbox: Sandbox, count: int, *, seconds: int, caller: Caller = ALICE) -> list[str]:
    """Jobs of one user, each with an image of its own that takes the link so long."""
    keys = []
    for number in range(count):
        name = f"{caller.user}-{number:03}"
        sandbox.sizes[f"https://images.example.org/{name}"] = seconds * RATE
        keys.append(sandbox.submit(name, caller=caller, cpus=1, argv=("sleep", "9000")))
    return keys


def wait_s(sandbox: Sandbox, key: str, most_s: int = 1_000) -> int:
    """How long it takes until a job is released, since its image is there."""
    begun_s = sandbox.now_s
    while not any(what == "pending" for _, what, _ in states(sandbox, key)):
        if sandbox.now_s > begun_s + most_s:
            break
        sandbox.sleep(5)
    return sandbox.now_s - begun_s


def test_one_job_does_not_wait_for_500_transfers_of_another_user(sandbox: Sandbox) -> None:
    crowd(sandbox, 500, seconds=20)
    sandbox.sleep(2 * LOOK_S)
    (mine,) = crowd(sandbox, 1, seconds=20, caller=BOB)

    # A look, what was being brought, and its own.
    assert wait_s(sandbox, mine) <= LOOK_S + 2 * 20 + SOON_S


def test_one_image_without_end_holds_nobody_up_for_longer_than_a_turn(sandbox: Sandbox) -> None:
    crowd(sandbox, 1, seconds=5_000)
    sandbox.sleep(LOOK_S + 2 * TURN_S)
    (mine,) = crowd(sandbox, 1, seconds=20, caller=BOB)

    assert wait_s(sandbox, mine) <= LOOK_S + TURN_S + 20 + SOON_S


@pytest.mark.parametrize("minutes", first((15, 30)))
def test_users_who_ask_for_much_get_as_much_as_each_other(sandbox: Sandbox, minutes: int) -> None:
    for pool in sandbox.pools.values():
        pool.limit_bytes = 10_000 * GIB
    sandbox.sleep(sandbox.settings.reconcile_every_s + 1)
    for caller, seconds in ((ALICE, 30), (BOB, 60), (CAROL, 20)):
        crowd(sandbox, minutes * 60 // seconds, seconds=seconds, caller=caller)
    sandbox.sleep(minutes * 60 + 100)
    images = {image.uri: image for pool in sandbox.pools.values() for image in pool.images.values()}
    brought_s = {
        caller.user: sum(each.size_bytes for uri, each in images.items() if f"/{caller.user}-" in uri) // RATE
        for caller in (ALICE, BOB, CAROL)
    }

    assert max(brought_s.values()) - min(brought_s.values()) <= TURN_S + 30, brought_s
    assert sum(brought_s.values()) > minutes * 60 - 200, "and little of the link's time is lost"


def test_who_waits_alone_is_held_to_account_for_nothing_afterwards(sandbox: Sandbox) -> None:
    crowd(sandbox, 40, seconds=20)
    sandbox.sleep(600)
    begun_s = sandbox.now_s
    crowd(sandbox, 40, seconds=20, caller=BOB)
    sandbox.sleep(400)
    brought = [
        image.uri.rpartition("/")[2]
        for pool in sandbox.pools.values()
        for image in pool.images.values()
        if image.added_s > begun_s + LOOK_S + 40
    ]

    shares = [sum(name.startswith(user) for name in brought) for user in ("alice-", "bob-")]
    assert abs(shares[0] - shares[1]) <= 2, brought


def test_expected_end_takes_turns_into_account(sandbox: Sandbox) -> None:
    crowd(sandbox, 50, seconds=20)
    sandbox.sleep(LOOK_S)
    (mine,) = crowd(sandbox, 1, seconds=20, caller=BOB)
    sandbox.sleep(LOOK_S)
    answer = sandbox.ask(ShowJob(job=mine), BOB)

    assert isinstance(answer, JobDetails)
    assert answer.job.ready_s is not None
    assert answer.job.ready_s - sandbox.now_s <= 3 * 20


def test_promise_does_not_suffer_from_users_who_take_turns(sandbox: Sandbox) -> None:
    crowd(sandbox, 40, seconds=30)
    crowd(sandbox, 40, seconds=30, caller=BOB)
    sandbox.sleep(LOOK_S)
    reserve(sandbox, caller=CAROL, image="debian", size_bytes=60 * RATE, start="now+120s", nodes=2, cpus=1)
    sandbox.sleep(121)

    assert show(sandbox, "render-1").reservation.state == "active"


def test_one_user_cannot_fill_the_pools_with_jobs_that_wait(sandbox: Sandbox) -> None:
    crowd(sandbox, 300, seconds=60)
    sandbox.sleep(2 * LOOK_S)
    claims = sandbox.desk.shares()
    others = crowd(sandbox, 3, seconds=20, caller=BOB)
    sandbox.sleep(2 * LOOK_S)

    (row,) = [row for row in claims if row.thing == "pool bytes of jobs that wait"]
    assert row.user == "1001"
    assert 580 * GIB < row.held <= row.most == 600 * GIB
    assert row.refused > 0
    assert not any("waits" in words_of(sandbox, key, BOB) for key in others)
    assert "jobs.user_share" in words_of(sandbox, "300", ALICE)


def test_each_user_leaves_as_much_room_as_it_takes(sandbox: Sandbox) -> None:
    for number in range(4):
        crowd(sandbox, 100, seconds=20, caller=replace(CAROL, uid=2_000 + number, user=f"u{number}"))
        sandbox.sleep(LOOK_S)
    (mine,) = crowd(sandbox, 1, seconds=20, caller=BOB)
    sandbox.sleep(LOOK_S)

    assert "is on its way" in words_of(sandbox, mine, BOB)


def test_job_counts_on_no_copy_that_a_reservation_has_left_midway(tmp_path: Path) -> None:
    """It would have been brought there by nobody's rate, beside what has a deadline."""
    sandbox = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=60, shipping="relay"))
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE
    sandbox.sizes["https://images.example.org/ubuntu"] = 100 * RATE
    reserve(sandbox, nodes=3, size_bytes=100 * RATE, start="now+1hours")
    while not sandbox.pools["n1"].arriving:
        sandbox.sleep(5)
    sandbox.ask(Modify(name="render-1", nodes=2))
    key = sandbox.submit("ubuntu", nodes=4)
    sandbox.sleep(LOOK_S)
    beside = list(sandbox.pools["n3"].fetches)
    sandbox.sleep(600)
    job = sandbox.job(key)
    after = [(each.owner, each.rate_bytes_per_s) for each in sandbox.pools["n3"].fetches]
    sandbox.close()

    assert beside == []
    assert after == [("job-1", RATE)]
    assert job is not None
    assert not job.is_held_by_us
