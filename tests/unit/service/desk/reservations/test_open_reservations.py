"""Open reservations wait for an event with their image in place, and start soon enough after it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, Submission
from outrider.service.answers.decision import Decision
from outrider.service.answers.events import EventTaken
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.requests import Modify, SignedCall, Trigger
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, reserve, show, wanted

MARGIN_S = 40
SETTINGS = Settings(
    link_rate_bytes_per_s=RATE,
    reserve_s=60,
    look_every_s=5,
    allows_preemptible=True,
    most_requeue_grace_s=60,
    requeue_margin_s=MARGIN_S,
)
FROM_S, UNTIL_S, WITHIN_S, LASTS_S = 600, 4200, 120, 1800
WINDOW = f"open_from: now+{FROM_S}s, open_until: now+{UNTIL_S}s, ready_within: {WITHIN_S}s"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, nodes=2, settings=SETTINGS)
    made.sleep(320)
    yield made
    made.close()


def opened(site: Sandbox, more: str = "", nodes: int = 1) -> Decision:
    answer = reserve(site, when=WINDOW + more, duration=f"{LASTS_S}s", nodes=nodes)
    assert answer.result == "accepted"
    return answer


def trigger(site: Sandbox, name: str, *, is_end: bool = False) -> ReservationDetails:
    answer = site.ask(Trigger(name=name, is_end=is_end))
    assert isinstance(answer, ReservationDetails), answer
    return answer


def submit(site: Sandbox, limit_s: int, *, node: str = "n1", reservation: str | None = None) -> str:
    """A job that runs to its limit and names no image."""
    return site.rms.outside.submit(
        Submission(
            user=ALICE.user,
            uid=ALICE.uid,
            argv=("work",),
            nodes_wanted=1,
            resources=Resources.of(cpus=8),
            limit_s=limit_s,
            reservation=reservation,
        ),
        eligible=(node,),
    )


def state(site: Sandbox, key: str) -> JobState | None:
    job = site.job(key)
    return None if job is None else job.state


def in_batch_system(site: Sandbox, name: str) -> tuple[int, int]:
    (found,) = (each for each in site.rms.look().reservations if each.name == name)
    return found.start_s, found.end_s


def test_owners_job_waits_for_the_event_and_starts_with_its_image(site: Sandbox) -> None:
    name = opened(site).name
    key = submit(site, LASTS_S, reservation=name)
    site.sleep(FROM_S + 1000)
    waiting = show(site, name).reservation
    assert state(site, key) is JobState.PENDING

    begun_s = site.now_s
    trigger(site, name)
    site.sleep(10)

    job = site.job(key)
    assert waiting.state == "ready"
    assert waiting.why.startswith("it waits for its event until")
    assert show(site, name).reservation.state == "active"
    assert job is not None
    assert job.start_s is not None
    assert job.start_s <= begun_s + 2
    assert in_batch_system(site, name) == (begun_s, begun_s + LASTS_S)


@pytest.mark.parametrize("at_s", [FROM_S, FROM_S + 17, 2000, UNTIL_S - 1])
def test_whenever_the_event_comes_nodes_are_clear_in_time(site: Sandbox, at_s: int) -> None:
    accepted_s = site.now_s
    name = opened(site, nodes=2).name
    keys = [submit(site, limit_s, node=node) for limit_s in (45, 70, 79) * 40 for node in ("n1", "n2")]
    bound = submit(site, LASTS_S, reservation=name)
    site.sleep(at_s - (site.now_s - accepted_s))

    event_s = site.now_s
    trigger(site, name)
    site.sleep(WITHIN_S + 1)

    job = site.job(bound)
    assert any(state(site, key) is None for key in keys)
    assert job is not None
    assert job.start_s is not None
    assert event_s <= job.start_s <= event_s + WITHIN_S


def test_jobs_that_end_in_time_run_there_meanwhile_and_longer_ones_do_not(site: Sandbox) -> None:
    name = opened(site).name
    (node,) = (each for each in ("n1", "n2") if show(site, name).reservation.nodes == each)
    site.sleep(FROM_S + 200)

    short, long = submit(site, 45, node=node), submit(site, 200, node=node)
    site.sleep(5)

    assert state(site, short) is JobState.RUNNING
    site.sleep(300)
    assert state(site, short) is None
    assert state(site, long) is JobState.PENDING
    assert show(site, name).reservation.state == "ready"


def test_window_without_an_event_ends_with_a_receipt(site: Sandbox) -> None:
    name = opened(site).name

    site.sleep(UNTIL_S + 2)

    found = show(site, name)
    assert found.reservation.state == "ended"
    assert found.receipt is not None
    assert found.receipt.is_met
    assert found.receipt.words.startswith("no event came until ")
    assert site.rms.look().reservations == ()


def test_file_is_looked_for_within_the_window_alone(site: Sandbox) -> None:
    name = opened(site, ", when_file: /data/run.done").name
    site.happened.add("/data/run.done")
    site.sleep(FROM_S - 5)
    before = show(site, name).reservation.window
    site.sleep(15)

    after = show(site, name).reservation

    assert before is not None
    assert before.triggered_s is None
    assert after.window is not None
    assert after.window.triggered_s is not None
    assert after.window.event == "file /data/run.done is there"
    assert after.state == "active"


def test_job_that_ends_is_an_event_even_if_it_does_while_the_service_is_away(site: Sandbox) -> None:
    key = submit(site, FROM_S + 300, node="n2")
    site.sleep(10)
    name = opened(site, f", when_job: '{key}'").name
    site.sleep(FROM_S + 200)
    waited = show(site, name).reservation.window
    site.clock.at_s += 150
    site.restart()
    site.sleep(10)

    window = show(site, name).reservation.window

    assert waited is not None
    assert waited.triggered_s is None
    assert window is not None
    assert window.event == f"job {key} has ended"


def test_job_of_somebody_else_is_no_event(site: Sandbox) -> None:
    key = submit(site, 600)
    site.sleep(10)

    answer = site.ask(wanted(site, when=f"{WINDOW}, when_job: '{key}'"), BOB)

    assert isinstance(answer, Trouble)
    assert "not one of yours" in answer.message


def test_time_is_an_event_and_another_ends_it(site: Sandbox) -> None:
    accepted_s = site.now_s
    name = opened(site, ", when_time: now+1000s, until_event: 'time:now+1500s'").name
    site.sleep(1010)
    begun = show(site, name).reservation
    site.sleep(500)

    over = show(site, name)

    assert begun.window is not None
    assert begun.window.triggered_s == accepted_s + 1000
    assert begun.state == "active"
    assert over.reservation.state == "ended"
    assert over.ended_s == accepted_s + 1500
    assert over.receipt is not None
    assert "ended by its event" in over.receipt.words


def signed(secret: str, name: str, what: str, at_s: int) -> SignedCall:
    mac = hmac.new(secret.encode(), f"{name} {what} {at_s}".encode(), hashlib.sha256).hexdigest()
    return SignedCall(name=name, what="begin" if what == "begin" else "end", at_s=at_s, signature=mac)


def test_signed_call_begins_it_once_whoever_makes_it(site: Sandbox) -> None:
    decision = opened(site, ", when_call: true")
    name, secret = decision.name, decision.secret
    site.sleep(FROM_S + 10)
    call = signed(secret, name, "begin", site.now_s)

    answers: list[Answer] = [
        site.ask(signed("guess" + secret[5:], name, "begin", site.now_s), BOB),
        site.ask(signed(secret, name, "begin", site.now_s - 301), BOB),
        site.ask(signed(secret, name, "end", site.now_s), BOB),
        site.ask(signed(secret, "another-1", "begin", site.now_s), BOB),
        site.ask(call, BOB),
        site.ask(call, BOB),
    ]

    assert [each.code if isinstance(each, Trouble) else "taken" for each in answers] == [
        "not-allowed",
        "not-allowed",
        "conflict",
        "not-allowed",
        "taken",
        "conflict",
    ]
    assert isinstance(answers[4], EventTaken)
    assert len(secret) == 64
    assert secret not in repr(show(site, name))


def test_only_its_user_may_trigger_it_and_only_in_its_window(site: Sandbox) -> None:
    name = opened(site).name

    strange, early = site.ask(Trigger(name=name), BOB), site.ask(Trigger(name=name))
    site.sleep(FROM_S + 5)
    trigger(site, name)
    again = site.ask(Trigger(name=name))

    codes = [each.code for each in (strange, early, again) if isinstance(each, Trouble)]
    assert codes == ["not-allowed", "conflict", "conflict"]


def test_what_cannot_be_promised_is_refused(tmp_path: Path) -> None:
    site = Sandbox(tmp_path, nodes=1)
    site.sleep(320)

    in_haste = site.ask(wanted(site, when=WINDOW.replace(f"ready_within: {WITHIN_S}s", "ready_within: 59s")))
    site.close()

    assert isinstance(in_haste, Trouble)
    assert "allow that much" in in_haste.message


def test_open_reservation_is_kept_over_a_restart_and_not_changed(site: Sandbox) -> None:
    name = opened(site).name
    site.sleep(FROM_S + 500)
    site.restart()
    site.sleep(200)

    changed = site.ask(Modify(name=name, duration_s=60))
    start_s, _ = in_batch_system(site, name)
    begun = trigger(site, name)

    assert isinstance(changed, Trouble)
    assert site.now_s < start_s <= site.now_s + WITHIN_S - MARGIN_S
    assert begun.reservation.start_s == site.now_s


def test_job_that_can_be_requeued_stays_until_the_event_and_is_gone_in_time(site: Sandbox) -> None:
    key = site.submit(more="preemptible: requeue\n", argv=("sleep", "9000"), limit_s=9000, nodes=2)
    site.sleep(60)
    assert state(site, key) is JobState.RUNNING
    name = opened(site).name
    bound = submit(site, LASTS_S, reservation=name)
    site.sleep(FROM_S + 900)
    assert state(site, key) is JobState.RUNNING

    event_s = site.now_s
    told = trigger(site, name).reservation
    site.sleep(WITHIN_S)

    job = site.job(bound)
    assert told.start_s == event_s + MARGIN_S
    assert not any("WARNING" in line for line in site.log.lines)
    assert state(site, key) in (JobState.HELD, JobState.PENDING)
    assert job is not None
    assert job.start_s is not None
    assert job.start_s <= event_s + WITHIN_S
