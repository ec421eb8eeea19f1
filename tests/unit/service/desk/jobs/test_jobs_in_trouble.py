"""Jobs whose images do not come: what their users see, and what others have of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import JobState, Sight
from outrider.rms.twin import Fault
from outrider.rms.twin.jobs import Holder
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.transfers import TransferList
from outrider.service.requests import ListTransfers, ShowJob
from tests.unit.service.desk.sandbox import RATE, Sandbox

FAILING_S = 240
WRONG = "image x was promised as sha256:aa but what came is sha256:bb: correct the digest"


def words_of(sandbox: Sandbox, key: str) -> str:
    answer = sandbox.ask(ShowJob(job=key))
    assert isinstance(answer, JobDetails), answer
    return answer.job.words


def transfers(sandbox: Sandbox) -> TransferList:
    answer = sandbox.ask(ListTransfers())
    assert isinstance(answer, TransferList), answer
    return answer


def break_all(sandbox: Sandbox, words: str, code: str = "source-failed") -> None:
    for pool in sandbox.pools.values():
        pool.broken, pool.broken_code = words, code


def test_wrong_digest_is_told_at_once_and_tried_on_no_other_node(sandbox: Sandbox) -> None:
    break_all(sandbox, WRONG, "wrong-bytes")
    key = sandbox.submit()
    sandbox.sleep(120)
    tried = [name for name, pool in sandbox.pools.items() if pool.fetches]

    assert len(tried) == 1
    assert len(sandbox.pools[tried[0]].fetches) == 1
    assert words_of(sandbox, key) == f"it stays held: {WRONG}"


def test_image_that_has_been_put_right_is_found_by_itself(sandbox: Sandbox) -> None:
    break_all(sandbox, WRONG, "wrong-bytes")
    key = sandbox.submit()
    sandbox.sleep(120)
    break_all(sandbox, "")
    sandbox.sleep(700)

    assert sandbox.job(key) is None, "it has run"


def test_user_sees_why_an_image_does_not_come_and_it_comes_soon_after_all(sandbox: Sandbox) -> None:
    break_all(sandbox, "connection refused")
    key = sandbox.submit()
    sandbox.sleep(FAILING_S)
    words = words_of(sandbox, key)
    break_all(sandbox, "")
    sandbox.sleep(200)

    assert "connection refused" in words
    assert sandbox.job(key) is None, "it has run"


def test_what_does_not_come_keeps_nothing_else_from_the_link(sandbox: Sandbox) -> None:
    for name in ("first", "second"):
        sandbox.sizes[f"https://images.example.org/{name}"] = 10 * RATE
    sandbox.pools["n1"].broken = "connection refused"
    stuck = sandbox.submit("first", eligible=("n1",))
    sandbox.sleep(40)
    other = sandbox.submit("second", eligible=("n2",))
    sandbox.sleep(60)

    job = sandbox.job(other)
    assert job is None or job.nodes == ("n2",), words_of(sandbox, other)
    assert "connection refused" in words_of(sandbox, stuck)


def test_user_is_told_when_nothing_comes_any_more_and_when_it_does(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/ubuntu"] = 100 * RATE
    key = sandbox.submit()
    sandbox.sleep(50)
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = 0
    before = words_of(sandbox, key)
    sandbox.sleep(30)
    words = words_of(sandbox, key)
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE
    sandbox.sleep(5)

    assert "nothing comes" not in before
    assert "nothing comes to n" in words
    assert "nothing comes" not in words_of(sandbox, key)


def test_best_effort_is_listed_with_the_jobs_that_wait_for_it(sandbox: Sandbox) -> None:
    for name in ("first", "second"):
        sandbox.sizes[f"https://images.example.org/{name}"] = 100 * RATE
    keys = [sandbox.submit("first", nodes=2), sandbox.submit("second")]
    sandbox.sleep(40)
    running, waiting = transfers(sandbox).transfers

    assert (running.state, running.for_jobs) == ("running", (keys[0],))
    assert (waiting.state, waiting.for_jobs) == ("waiting", (keys[1],))
    assert 0 < running.arrived_bytes < running.total_bytes == 200 * RATE
    assert running.ready_s is not None
    assert waiting.begin_s >= running.ready_s - 1


def test_job_that_the_batch_system_holds_is_released_again_if_that_was_refused(sandbox: Sandbox) -> None:
    key = sandbox.submit(is_held=False)
    world = sandbox.rms.world
    world.hold(world.jobs[key], Holder.SYSTEM, "its node has sent it back")
    sandbox.rms.faults.plan("release", Fault.REFUSED)
    sandbox.sleep(300)

    assert sandbox.job(key) is None, "it has run"


def test_job_that_was_starting_when_it_was_seen_first_is_led_when_it_comes_back(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = sandbox.submit()
    look = sandbox.rms.look

    def as_if_it_were_starting() -> Sight:
        sight = look()
        jobs = tuple(replace(job, state=JobState.STARTING, nodes=("n1",)) for job in sight.jobs)
        return replace(sight, jobs=jobs)

    with monkeypatch.context() as patched:
        patched.setattr(sandbox.rms, "look", as_if_it_were_starting)
        sandbox.sleep(sandbox.settings.look_every_s + 1)
        during = words_of(sandbox, key)
    sandbox.sleep(200)

    assert during
    assert sandbox.job(key) is None, "it has run"
    assert any(pool.fetches for pool in sandbox.pools.values())
