"""Best-effort jobs on their way to their images, seen from outside of the desk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsReservation, Sight, Submission
from outrider.service.answers.jobs import JobDetails, JobList, Verdict
from outrider.service.ports import NodeImage
from outrider.service.requests import AskStart, ListJobs, ShowJob
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, digest_of, reserve, show

UBUNTU = digest_of("ubuntu")
FIRST_LOOK_S = 35


def states(sandbox: Sandbox, key: str) -> list[tuple[int, str, str]]:
    """What has become of a job, and when."""
    return [(each.at_s, each.what, each.why) for each in sandbox.rms.log if each.subject == key]


def started_on(sandbox: Sandbox, key: str) -> str:
    return next((why for _, what, why in states(sandbox, key) if what == "starting"), "")


def put(sandbox: Sandbox, *names: str) -> None:
    """The image has been in these pools for long."""
    for name in names:
        sandbox.pools[name].images[UBUNTU] = NodeImage(digest=UBUNTU, size_bytes=10 * RATE, uri="x")
    sandbox.sleep(301)


def details(sandbox: Sandbox, key: str) -> JobDetails:
    answer = sandbox.ask(ShowJob(job=key))
    assert isinstance(answer, JobDetails), answer
    return answer


def test_held_job_is_released_to_a_node_with_its_image(sandbox: Sandbox) -> None:
    key = sandbox.submit()
    begun_s = sandbox.now_s
    sandbox.sleep(60)

    pending_s = next(at_s for at_s, what, _ in states(sandbox, key) if what == "pending")
    brought = sandbox.pools[started_on(sandbox, key)].images[UBUNTU]
    assert begun_s < brought.added_s <= pending_s
    assert sandbox.rms.outside.ticket(key) == f"ticket {key} 1001 {UBUNTU[:11]}"


def test_job_that_nobody_held_is_held_until_its_image_is_there(sandbox: Sandbox) -> None:
    key = sandbox.submit(is_held=False, nodes=4)
    for name in sandbox.pools:
        sandbox.rms.outside.drain(name)
    sandbox.sleep(FIRST_LOOK_S)
    held = sandbox.job(key)
    for name in sandbox.pools:
        sandbox.rms.outside.repair(name)
    sandbox.sleep(60)

    assert held is not None
    assert held.state is JobState.HELD
    assert held.is_held_by_us
    assert [what for _, what, _ in states(sandbox, key)][-2:] == ["starting", "running"]


def test_image_that_is_there_is_not_brought_again(sandbox: Sandbox) -> None:
    put(sandbox, "n3")
    key = sandbox.submit()
    sandbox.sleep(60)

    assert started_on(sandbox, key) == "n3"
    assert all(not pool.fetches for pool in sandbox.pools.values())


def test_first_job_beside_reservations_is_led_where_it_can_end(sandbox: Sandbox) -> None:
    """Nobody has worked out before when nodes are busy: there was no job."""
    reserved = reserve(sandbox, nodes=3, start="now+20minutes", duration="1h")
    sandbox.sleep(300)
    key = sandbox.submit(limit_s=7200, caller=BOB)
    sandbox.sleep(60)

    assert reserved.nodes == "n[1-3]"
    assert started_on(sandbox, key) == "n4"


def test_jobs_with_one_image_share_one_transfer(sandbox: Sandbox) -> None:
    keys = [sandbox.submit(nodes=1, caller=who) for who in (ALICE, BOB, ALICE)]
    sandbox.sleep(60)

    assert len({started_on(sandbox, key) for key in keys}) == 3
    assert len(sandbox.resolved) == 2, "once for each user"
    begun = [line for line in sandbox.log.lines if line.startswith("best-effort transfer begins")]
    assert len(begun) == 1


def test_best_effort_is_held_back_while_a_reservation_has_the_link(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/large"] = 100 * RATE
    key = sandbox.submit("large", cpus=1)
    sandbox.sleep(40)
    reserve(sandbox, image="debian", size_bytes=20 * RATE, start="now+90s", nodes=1)
    sandbox.sleep(10)
    (slowed,) = {
        each.rate_bytes_per_s
        for pool in sandbox.pools.values()
        for each in pool.fetches
        if each.owner == f"job-{key}" and each.rate_bytes_per_s != RATE
    }
    sandbox.sleep(300)

    assert slowed == RATE // 1000
    rates = [each.rate_bytes_per_s for pool in sandbox.pools.values() for each in pool.fetches]
    assert rates[0] == RATE, "before"
    assert show(sandbox, "render-1").receipt is None
    assert show(sandbox, "render-1").reservation.state == "active"
    assert started_on(sandbox, key), "it goes on afterwards"


def test_deadline_is_not_slowed_down_by_a_job_that_waits_for_the_same_image(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/ubuntu"] = 30 * RATE
    sandbox.submit(nodes=4)
    sandbox.sleep(40)
    reserve(sandbox, image="ubuntu", size_bytes=30 * RATE, start="now+2minutes", nodes=4)
    sandbox.sleep(130)

    assert show(sandbox, "render-1").reservation.state == "active"
    last = {name: pool.fetches[-1].rate_bytes_per_s for name, pool in sandbox.pools.items()}
    assert set(last.values()) == {RATE}


def test_node_that_empties_its_pool_is_released_from_no_more(sandbox: Sandbox) -> None:
    sandbox.rms.outside.reserve(
        RmsReservation(
            name="others",
            nodes=tuple(sandbox.pools),
            start_s=sandbox.now_s + 3600,
            end_s=sandbox.now_s + 7200,
            users=("eve",),
            is_ours=False,
        )
    )
    key = sandbox.submit(limit_s=7200)
    sandbox.sleep(60)
    released = sandbox.job(key)
    for pool in sandbox.pools.values():
        pool.images.clear()
        pool.is_away = True
    sandbox.sleep(400)
    again = sandbox.job(key)

    assert released is not None
    assert released.state is JobState.PENDING
    assert again is not None
    assert (again.state, again.is_held_by_us) == (JobState.HELD, True)


def test_requeued_job_waits_for_its_image_again(sandbox: Sandbox) -> None:
    key = sandbox.submit(argv=("sleep", "3000"))
    sandbox.sleep(60)
    first = started_on(sandbox, key)
    sandbox.pools[first].images.clear()
    sandbox.rms.outside.drain(first)
    sandbox.rms.outside.requeue(key, is_held=True)
    sandbox.rms.outside.release(key)
    sandbox.sleep(60)

    starts = [why for _, what, why in states(sandbox, key) if what == "starting"]
    assert UBUNTU in sandbox.pools[starts[-1]].images
    assert starts[-1] != first


def test_restarted_service_leads_jobs_on(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/ubuntu"] = 40 * RATE
    key = sandbox.submit()
    sandbox.sleep(45)
    sandbox.restart()
    sandbox.sleep(80)

    assert UBUNTU in sandbox.pools[started_on(sandbox, key)].images
    fetched = [name for name, pool in sandbox.pools.items() if pool.fetches]
    assert fetched == [started_on(sandbox, key)], "where it had begun"


def test_pin_of_a_job_ends_with_its_wait(sandbox: Sandbox) -> None:
    key = sandbox.submit(argv=("sleep", "500"))
    sandbox.sleep(100)

    job = sandbox.job(key)
    assert job is not None
    assert job.state is JobState.RUNNING
    assert not any(owner == f"job-{key}" for pool in sandbox.pools.values() for _, owner in pool.pins)


def test_what_is_wrong_with_an_image_is_said_and_the_job_stays_held(sandbox: Sandbox) -> None:
    missing = sandbox.submit("nothing-there")
    faulty = sandbox.submit(more="digset: sha256:00\n")
    sandbox.sleep(100)

    assert "there is nothing at https://images.example.org/nothing-there" in sandbox.rms.outside.shown(
        missing
    )
    assert "digset" in sandbox.rms.outside.shown(faulty)
    assert "did you mean digest?" in sandbox.rms.outside.shown(faulty)
    assert {sandbox.job(key).state for key in (missing, faulty)} == {JobState.HELD}  # type: ignore[union-attr]


def test_image_that_is_found_later_is_brought_then(sandbox: Sandbox) -> None:
    key = sandbox.submit("later")
    sandbox.sleep(60)
    sandbox.sizes["https://images.example.org/later"] = RATE
    sandbox.sleep(120)

    assert started_on(sandbox, key)


def test_job_that_waits_for_too_long_is_told_why(impatient: Sandbox) -> None:
    sandbox = impatient
    key = sandbox.submit(nodes=4)
    sandbox.rms.outside.drain("n1")
    sandbox.sleep(200)

    shown = sandbox.rms.outside.shown(key)
    assert "it has waited for longer than 2 min, and stays held" in shown
    assert "3 of the nodes that it may run on are up, and it wants 4" in shown
    assert details(sandbox, key).job.is_overdue


def test_job_goes_round_full_pools(sandbox: Sandbox) -> None:
    for name in ("n1", "n2", "n4"):
        sandbox.pools[name].limit_bytes = 5 * RATE
    sandbox.sleep(301)
    key = sandbox.submit()
    sandbox.sleep(60)

    assert started_on(sandbox, key) == "n3"


def test_node_that_fails_to_fetch_is_gone_round(sandbox: Sandbox) -> None:
    sandbox.pools["n1"].broken = "its disk is broken"
    key = sandbox.submit()
    sandbox.sleep(120)

    assert started_on(sandbox, key) not in ("", "n1")


def test_job_is_bound_to_the_reservation_of_its_workspace(sandbox: Sandbox) -> None:
    decision = reserve(sandbox, image="ubuntu", start="now+5minutes")
    key = sandbox.submit(more="name: render\n")
    sandbox.sleep(100)

    job = sandbox.job(key)
    assert job is not None
    assert (job.reservation, job.state) == (decision.name, JobState.PENDING)
    assert sandbox.rms.outside.ticket(key).startswith(f"ticket {key} ")


def test_job_of_another_user_is_not_bound(sandbox: Sandbox) -> None:
    reserve(sandbox, image="ubuntu", start="now+5minutes", caller=BOB)
    key = sandbox.submit(more="name: render\n", cpus=1)
    sandbox.sleep(100)

    assert all(job.reservation is None for job in sandbox.rms.look().jobs if job.key == key)


def test_job_in_a_reservation_gets_its_ticket(sandbox: Sandbox) -> None:
    decision = reserve(sandbox, start="now+10minutes")
    sandbox.sleep(5)
    key = sandbox.submit(reservation=decision.name, is_held=False)
    sandbox.sleep(40)

    assert sandbox.rms.outside.ticket(key).startswith(f"ticket {key} 1001")


def test_start_waits_for_nodes_without_the_image(sandbox: Sandbox) -> None:
    key = sandbox.submit(nodes=2, argv=("sleep", "900"))
    sandbox.sleep(FIRST_LOOK_S)
    early = sandbox.ask(AskStart(job=key, nodes=("n1", "n2")), ADMIN)
    sandbox.sleep(30)
    job = sandbox.job(key)
    assert job is not None
    late = sandbox.ask(AskStart(job=key, nodes=job.nodes), ADMIN)

    assert isinstance(early, Verdict)
    assert (early.verdict, "is not known to be there yet on n[1-2]" in early.words) == ("wait", True)
    assert isinstance(late, Verdict)
    assert late.verdict == "go"
    assert sandbox.ask(AskStart(job="999", nodes=("n1",)), ADMIN) == Verdict(verdict="go")


def test_nobody_but_administrators_asks_for_a_start(sandbox: Sandbox) -> None:
    answer = sandbox.ask(AskStart(job="1", nodes=("n1",)), ALICE)

    assert getattr(answer, "code", "") == "not-allowed"


def test_private_image_is_named_to_its_user_alone(sandbox: Sandbox) -> None:
    sandbox.submit(more="private: true\n", nodes=4, argv=("sleep", "900"))
    sandbox.sleep(FIRST_LOOK_S)

    mine, others = (sandbox.ask(ListJobs(), who) for who in (ALICE, BOB))
    assert isinstance(mine, JobList)
    assert isinstance(others, JobList)
    assert mine.jobs[0].image is not None
    assert mine.jobs[0].image.uri == "https://images.example.org/ubuntu"
    assert others.jobs[0].image is not None
    assert (others.jobs[0].image.uri, others.jobs[0].words) == (None, "")


def test_instance_of_a_job_that_is_gone_is_released(sandbox: Sandbox) -> None:
    key = sandbox.submit(argv=("sleep", "2000"))
    sandbox.sleep(60)
    node = started_on(sandbox, key)
    sandbox.pools[node].jobs = [f"job-{key}", "job-999"]
    sandbox.sleep(400)

    assert sandbox.pools[node].jobs == [f"job-{key}"]


def test_job_is_led_to_nodes_that_it_may_use(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "n2")
    key = sandbox.submit(eligible=("n3", "n4"))
    sandbox.sleep(60)

    assert started_on(sandbox, key) in ("n3", "n4")


def test_workspace_called_job_does_not_take_a_jobs_pins(sandbox: Sandbox) -> None:
    decision = reserve(sandbox, name="job")

    assert decision.name == "job-workspace-1"


def test_settings_leave_deadlines_what_best_effort_does_not_have() -> None:
    settings = Settings(link_rate_bytes_per_s=100, best_effort_rate_bytes_per_s=30)

    assert settings.deadline_rate_bytes_per_s == 70


def test_job_with_an_image_in_a_foreign_reservation_is_held_there_and_told(sandbox: Sandbox) -> None:
    put(sandbox, "n1")
    now_s = sandbox.now_s
    theirs = RmsReservation(
        name="night-1", nodes=("n1",), start_s=now_s + 60, end_s=now_s + 7200, users=(ALICE.user,)
    )
    sandbox.rms.outside.reserve(theirs)
    handed_in = sandbox.submit(reservation="night-1", is_held=False)
    moved = sandbox.submit()
    sandbox.rms.bind(moved, "night-1")
    plain = sandbox.rms.outside.submit(
        Submission(
            user=ALICE.user, uid=ALICE.uid, argv=("true",), nodes_wanted=1, resources=Resources.of(cpus=1),
            limit_s=60, metadata=None, reservation="night-1",
        )
    )  # fmt: skip
    sandbox.sleep(300)
    held = [sandbox.job(key) for key in (handed_in, moved)]
    words = [sandbox.rms.outside.shown(key) for key in (handed_in, moved)]
    sandbox.rms.bind(moved, None)
    sandbox.sleep(120)

    assert [(job.state, job.is_held_by_us) for job in held if job] == [(JobState.HELD, True)] * 2
    for text in words:
        assert "reservation night-1 is not made by Outrider, so no image comes to its nodes" in text
    assert started_on(sandbox, handed_in) == ""
    assert started_on(sandbox, plain) == "n1"
    assert started_on(sandbox, moved) != ""


def test_job_that_is_let_go_in_a_foreign_reservation_is_held_again(sandbox: Sandbox) -> None:
    now_s = sandbox.now_s
    theirs = RmsReservation(
        name="night-1", nodes=("n1",), start_s=now_s + 3600, end_s=now_s + 7200, users=(ALICE.user,)
    )
    sandbox.rms.outside.reserve(theirs)
    key = sandbox.submit(reservation="night-1")
    sandbox.sleep(60)
    sandbox.rms.release(key)
    sandbox.sleep(120)
    job = sandbox.job(key)

    assert job is not None
    assert job.state is JobState.HELD
    holds = [why for _, what, why in states(sandbox, key) if what == "held"]
    assert len(holds) == 3


def test_number_that_is_given_to_another_users_job_brings_nothing_of_the_first_along(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch system that comes back from an earlier state gives out its last numbers once more."""
    for name in sandbox.pools:
        sandbox.rms.outside.drain(name)
    key = sandbox.submit(more="private: true\n")
    sandbox.sleep(FIRST_LOOK_S)
    asked_by = [each.uid for each in sandbox.resolved]
    look = sandbox.rms.look

    def forgetful() -> Sight:
        sight = look()
        jobs = [replace(each, uid=BOB.uid, user=BOB.user) if each.key == key else each for each in sight.jobs]
        return replace(sight, jobs=tuple(jobs))

    monkeypatch.setattr(sandbox.rms, "look", forgetful)
    sandbox.sleep(FIRST_LOOK_S)

    assert asked_by == [ALICE.uid]
    assert [each.uid for each in sandbox.resolved] == [ALICE.uid, BOB.uid]
