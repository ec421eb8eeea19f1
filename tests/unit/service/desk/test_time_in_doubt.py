"""Somebody sets the clock while things are pending: nothing is over by a time that is in doubt, and what
was written at a wrong time does not stand in the way of the right one."""

from __future__ import annotations

import pytest

from cachemgr.base.steady import Reckoning
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.answers.site import Status
from outrider.service.requests import Cancel, ShowStatus
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import RATE, Sandbox, reserve, show, wanted

DAY_S, YEAR_S = 86_400, 31_557_600
WORDS = "the clock was set 1 day ahead"
NOW_S = 1_800_000_000
JUMPS_S = (1, 60, DAY_S, 10 * YEAR_S)
BOTH_WAYS_S = tuple(sign * each for each in JUMPS_S for sign in (1, -1))


@pytest.fixture
def busy(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A site with a reservation that runs, one whose image is arriving, one that waits, and a held job."""
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60)
    made = Sandbox(tmp_path_factory.mktemp("busy"), settings=settings, now_s=NOW_S)
    for pool in made.pools.values():
        pool.rate_bytes_per_s = RATE
    made.sizes["https://images.example.org/fedora"] = 300 * RATE
    reserve(made, start="now+2minutes", duration="10m")
    made.sleep(180)
    reserve(made, name="waits", start="now+2hours", duration="10m")
    reserve(made, name="arrives", image="fedora", size_bytes=300 * RATE, start="now+6minutes", duration="30m")
    made.submit(image="fedora")
    made.sleep(20)
    return made


def states(sandbox: Sandbox) -> dict[str, str]:
    names = ("render-1", "waits-2", "arrives-3")
    return {name: show(sandbox, name).reservation.state for name in names}


def status(sandbox: Sandbox) -> Status:
    found = sandbox.ask(ShowStatus())
    assert isinstance(found, Status)
    return found


def pass_time(sandbox: Sandbox, time: Reckoning, seconds: int, by_s: int) -> None:
    """Let time pass as the loop would tell the desk of it while the clock is off by so much."""
    for _ in range(seconds):
        sandbox.clock.at_s += 1
        time.look(sandbox.clock.at_s + by_s, float(sandbox.clock.at_s))
        sandbox.desk.set_doubt(WORDS if time.is_doubtful else "")
        assert time.now_s == sandbox.clock.at_s or not time.is_doubtful
        sandbox.turn()


@pytest.mark.parametrize("by_s", BOTH_WAYS_S)
def test_jump_and_back_while_all_is_pending_changes_nothing(busy: Sandbox, by_s: int) -> None:
    before = states(busy)
    time = Reckoning(busy.now_s, float(busy.now_s))
    pass_time(busy, time, 6, by_s)
    during, words = states(busy), status(busy).troubles
    pass_time(busy, time, 6, 0)
    pins = {owner: until_s for pool in busy.pools.values() for (_, owner), until_s in pool.pins.items()}
    after = status(busy)
    again = reserve(busy, name="more", start="now+3hours")
    busy.sleep(3 * 3600)

    assert before == during == {"render-1": "active", "waits-2": "ready", "arrives-3": "preparing"}
    assert words == ((WORDS,) if abs(by_s) > 10 else ())
    assert after.is_promising
    assert again.result == "accepted"
    assert min(pins.values()) > NOW_S
    assert states(busy) == dict.fromkeys(before, "ended")
    assert all(show(busy, name).receipt.is_met for name in before)  # type: ignore[union-attr]


def test_nothing_is_over_and_nothing_promised_while_the_time_is_in_doubt(busy: Sandbox) -> None:
    busy.desk.set_doubt(WORDS)
    busy.sleep(1200)
    during = states(busy)
    refused = busy.ask(wanted(busy, name="more"))
    cancelled = busy.ask(Cancel(name="waits-2"))
    busy.desk.set_doubt("")
    busy.sleep(10)
    accepted = busy.ask(wanted(busy, name="more"))

    assert during["render-1"] == during["arrives-3"] == "active"
    assert isinstance(refused, Trouble)
    assert (refused.code, refused.message) == ("unavailable", f"nothing is promised now: {WORDS}")
    assert not isinstance(cancelled, Trouble)
    assert states(busy) == {"render-1": "ended", "waits-2": "cancelled", "arrives-3": "active"}
    assert isinstance(accepted, Decision)
    assert accepted.result == "accepted"


@pytest.mark.parametrize("by_s", [DAY_S, YEAR_S, 10 * YEAR_S])
def test_clock_that_is_believed_ahead_ends_what_it_jumps_over_and_goes_on(busy: Sandbox, by_s: int) -> None:
    busy.clock.at_s += by_s
    busy.restart()
    busy.sleep(120)
    new = reserve(busy, name="more", start="now+10minutes", duration="10m")
    busy.sleep(1800)

    assert set(states(busy).values()) <= {"ended", "failed"}
    assert new.result == "accepted", new
    assert show(busy, "more-4").reservation.state == "ended"


@pytest.mark.parametrize("by_s", [DAY_S, YEAR_S, 10 * YEAR_S])
def test_clock_that_is_believed_back_leaves_promises_and_makes_new_ones(busy: Sandbox, by_s: int) -> None:
    before = states(busy)
    busy.clock.at_s -= by_s
    busy.restart()
    busy.sleep(600)
    new = reserve(busy, name="more", start="now+10minutes", duration="10m")
    busy.sleep(1800)

    assert before.keys() == states(busy).keys()
    assert not {"ended", "failed", "cancelled"} & set(states(busy).values())
    assert new.result == "accepted", new
    assert show(busy, "more-4").reservation.state == "ended"
    assert not [line for line in busy.log.lines if "store cannot be used" in line]


@pytest.mark.parametrize("by_s", [DAY_S, 10 * YEAR_S])
def test_what_was_put_off_at_a_wrong_time_is_done_at_the_right_one(sandbox: Sandbox, by_s: int) -> None:
    sandbox.clock.at_s += by_s
    sandbox.restart()
    sandbox.sleep(60)
    sandbox.rms.faults.be_unreachable_until(sandbox.now_s + 100)
    reserve(sandbox, start="now+1hour")
    sandbox.sleep(50)
    sandbox.clock.at_s -= by_s
    sandbox.rms.faults.be_unreachable_until(0)
    sandbox.restart()
    sandbox.sleep(60)

    assert [each.name for each in sandbox.rms.look().reservations] == ["render-1"]
