"""What is said of times, rates and odds is true when it is said."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.answers.decision import Decision
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.requests import Cancel, ShowJob
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, reserve, show, wanted


def until(sandbox: Sandbox, state: str, name: str = "render-1") -> ReservationDetails:
    for _ in range(1_000):
        found = show(sandbox, name)
        if found.reservation.state == state:
            return found
        sandbox.sleep(1)
    raise AssertionError(f"never {state}: {found}")


def job(sandbox: Sandbox, key: str, caller: object = ALICE) -> JobDetails:
    answer = sandbox.ask(ShowJob(job=key), caller)  # type: ignore[arg-type]
    assert isinstance(answer, JobDetails), answer
    return answer


def test_image_is_ready_since_a_time_that_has_been(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=3)
    found = until(sandbox, "ready")

    assert all(each.state == "ready" for each in found.staging)
    for each in found.staging:
        assert each.ready_s is not None
        assert each.ready_s <= sandbox.now_s
    assert found.reservation.ready_s is not None
    assert found.reservation.ready_s <= sandbox.now_s

    sandbox.sleep(30)
    assert show(sandbox, "render-1").staging == found.staging, "it is the same time later on"


def test_nodes_of_a_job_are_ready_since_a_time_that_has_been(sandbox: Sandbox) -> None:
    key = sandbox.submit(nodes=2)
    for _ in range(200):
        sandbox.sleep(1)
        led = sandbox.ask(ShowJob(job=key))
        if isinstance(led, JobDetails) and led.job.state == "staged":
            break

    staging = job(sandbox, key).staging
    assert [each.state for each in staging] == ["ready", "ready"]
    assert all(each.ready_s is not None and each.ready_s <= sandbox.now_s for each in staging)


def slow(sandbox: Sandbox) -> None:
    """A reservation whose image comes far too slowly."""
    reserve(sandbox, size_bytes=100 * RATE, start="now+6minutes")
    while not sandbox.pools["n1"].arriving:
        sandbox.sleep(1)
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE // 100


def test_odds_are_for_what_is_still_open(sandbox: Sandbox) -> None:
    slow(sandbox)
    before = until(sandbox, "endangered")
    assert before.odds_percent is not None
    assert "the odds are" in before.reservation.why

    sandbox.sleep(before.reservation.start_s - sandbox.now_s + 20)
    after = show(sandbox, "render-1")

    assert after.reservation.state == "endangered"
    assert after.odds_percent is None
    assert "odds" not in after.reservation.why
    assert "its start was" in after.reservation.why


def test_reservation_that_came_to_nothing_says_no_odds(sandbox: Sandbox) -> None:
    slow(sandbox)
    start_s = show(sandbox, "render-1").reservation.start_s
    sandbox.sleep(start_s - sandbox.now_s + 4_000)

    found = show(sandbox, "render-1")

    assert found.reservation.state == "failed"
    assert "odds" not in found.reservation.why


def test_refused_job_is_found_in_the_log_and_after_its_end(sandbox: Sandbox) -> None:
    key = sandbox.submit("nowhere")
    sandbox.sleep(30)
    assert job(sandbox, key).job.state == "refused"
    sandbox.rms.cancel(key, "its user has seen it")
    sandbox.sleep(60)

    for caller in (ALICE, ADMIN):
        found = job(sandbox, key, caller)
        assert found.job.state == "over"
        assert [each.outcome for each in found.decisions] == ["refused"]
        assert "there is nothing at https://images.example.org/nowhere" in found.decisions[0].reason
    assert isinstance(sandbox.ask(ShowJob(job=key), BOB), Trouble)
    lines = [line for line in sandbox.log.lines if line.startswith("job is refused")]
    assert len(lines) == 1
    assert f"job={key} user=alice words=there is nothing at" in lines[0]


def test_refused_jobs_of_one_user_do_not_fill_the_store(sandbox: Sandbox) -> None:
    most = sandbox.settings.most_refusals
    assert most is not None
    for number in range(most + 20):
        sandbox.submit(f"nowhere-{number}")
    sandbox.submit("nowhere", caller=BOB)
    for _ in range(60):
        sandbox.sleep(20)

    rows = [row for row in sandbox.store.decisions(most=1_000) if row.outcome == "refused"]
    lines = [line for line in sandbox.log.lines if line.startswith("job is refused")]
    assert len([row for row in rows if row.uid == ALICE.uid]) <= most + 1
    assert len([row for row in rows if row.uid == BOB.uid]) == 1
    assert len(lines) <= most + 2


def test_job_that_nobody_knows_is_not_found(sandbox: Sandbox) -> None:
    assert isinstance(sandbox.ask(ShowJob(job="4711")), Trouble)
    reserve(sandbox)
    assert isinstance(sandbox.ask(Cancel(name="render-1")), ReservationDetails)


def test_image_that_no_pool_holds_is_said_never_to_fit(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.limit_bytes = 20 * RATE
    sandbox.sleep(400)
    sandbox.sizes["https://images.example.org/huge"] = 30 * RATE
    key = sandbox.submit("huge")
    fits = sandbox.submit("ubuntu")
    sandbox.sleep(60)

    found = job(sandbox, key).job
    assert found.state == "waiting"
    assert "it has 3.0 GB and never fits: the pools of 0 of the nodes" in found.words
    assert "the largest pool has 2.0 GB" in found.words
    assert "will be free" not in found.words
    assert sandbox.notes[key][-1].startswith("outrider: image huge waits: it has 3.0 GB and never fits")
    assert job(sandbox, fits).job.state in ("staged", "running")


def test_start_that_is_named_is_the_first_that_is_accepted(sandbox: Sandbox) -> None:
    """Nothing else fits into the pools until the image of another reservation may go."""
    for pool in sandbox.pools.values():
        pool.limit_bytes = 110 * RATE
    sandbox.sleep(400)
    other = reserve(sandbox, image="o", size_bytes=100 * RATE, start="now+5minutes", duration="10m", nodes=4)
    assert (other.result, other.end_s) == ("accepted", sandbox.now_s + 900)

    def planned(start_s: int) -> Decision:
        start = f"now+{start_s - sandbox.now_s}seconds"
        answer = sandbox.ask(replace(wanted(sandbox, size_bytes=100 * RATE, start=start), is_plan=True))
        assert isinstance(answer, Decision)
        return answer

    named_s = planned(sandbox.now_s + 60).earliest_start_s

    assert named_s is not None
    assert planned(named_s).result == "accepted"
    assert {planned(named_s - each).result for each in (1, 10, 60, 100, 159)} == {"refused"}
