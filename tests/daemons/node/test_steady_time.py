"""What time it is when somebody sets the clock: the rule alone, and a daemon with things pending."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.clock_offset import StoredOffset
from cachemgr.base.errors import InUse, NoRoom
from cachemgr.base.steady import BACK, BELIEVED, DOUBTFUL, ClockChange, Reckoning, SteadyClock, in_words
from cachemgr.daemon import main
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.metrics import NodeMetrics
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from cachemgr.relay.tickets import make_ticket
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, sha256

Start = Callable[..., Inside]
DAY_S, YEAR_S = 86_400, 31_557_600
BEGIN_S = 1_800_000_000
JUMPS_S = (1, 9, 60, 3_600, DAY_S, YEAR_S, 10 * YEAR_S)
BOTH_WAYS_S = tuple(sign * each for each in JUMPS_S for sign in (1, -1))
KEY = b"k" * 32
A, B, C = "http://x/a", "http://x/b", "http://x/c"


class Clocks(SystemClock):
    """Two clocks in a test's hands: time passes for both, and one can be set."""

    def __init__(self) -> None:
        self.passed_s = 0
        self.set_s = 0

    def now_s(self) -> int:
        return super().now_s() + self.passed_s + self.set_s

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


def reckoning(**limits: int) -> Reckoning:
    return Reckoning(BEGIN_S, 50.0, **{"step_s": 10, "doubt_s": 120, **limits})


@pytest.mark.parametrize("by_s", [each for each in BOTH_WAYS_S if abs(each) > 10])
def test_clock_that_is_back_soon_has_cost_no_time(by_s: int) -> None:
    time = reckoning()
    away = time.look(BEGIN_S + 5 + by_s, 55.0)
    meanwhile = time.now_s, time.past_s, time.is_doubtful
    back = time.look(BEGIN_S + 11, 61.0)

    assert away == ClockChange(DOUBTFUL, by_s)
    assert meanwhile == (BEGIN_S + 5, BEGIN_S, True)
    assert back == ClockChange(BACK, 0)
    assert (time.now_s, time.past_s, time.is_doubtful, time.steps) == (BEGIN_S + 11, BEGIN_S + 11, False, 0)


@pytest.mark.parametrize("by_s", [each for each in BOTH_WAYS_S if abs(each) > 10])
def test_clock_that_stays_is_believed_in_the_end_and_not_before(by_s: int) -> None:
    time = reckoning()
    changes = [time.look(BEGIN_S + by_s + passed_s, 50.0 + passed_s) for passed_s in (1, 60, 120, 121, 130)]

    assert changes == [ClockChange(DOUBTFUL, by_s), None, None, ClockChange(BELIEVED, by_s), None]
    assert (time.now_s, time.past_s, time.steps) == (BEGIN_S + by_s + 130, BEGIN_S + by_s + 130, 1)


@pytest.mark.parametrize("by_s", [1, -1, 9, -9])
def test_small_correction_is_followed_at_once_and_time_never_goes_back(by_s: int) -> None:
    time = reckoning()
    seen, changes = [], []
    for passed_s in range(1, 20):
        changes.append(time.look(BEGIN_S + by_s + passed_s, 50.0 + passed_s))
        seen.append(time.now_s)

    assert changes == [None] * 19
    assert seen == sorted(seen)
    assert seen[-1] == BEGIN_S + by_s + 19


def test_clock_that_is_moved_again_has_to_stay_again() -> None:
    time = reckoning()
    time.look(BEGIN_S + DAY_S, 50.0)
    again = time.look(BEGIN_S + 2 * DAY_S + 100, 150.0)
    soon = time.look(BEGIN_S + 2 * DAY_S + 200, 250.0)

    assert again == ClockChange(DOUBTFUL, 2 * DAY_S)
    assert (soon, time.is_doubtful, time.left_s(250.0)) == (None, True, 20)
    assert time.look(BEGIN_S + 2 * DAY_S + 220, 270.0) == ClockChange(BELIEVED, 2 * DAY_S)


def test_clock_that_wanders_slowly_is_followed() -> None:
    time = reckoning()
    changes = [time.look(BEGIN_S + each * 61, 50.0 + each * 60) for each in range(1, 1_000)]

    assert set(changes) == {None}
    assert time.now_s == BEGIN_S + 999 * 61


def test_process_that_stood_still_between_two_readings_sees_no_jump() -> None:
    class Stopped(SystemClock):
        """Stopped for an hour after the first of the two clocks was read."""

        monotonic = iter([0.0, 0.1, 1.0, 3601.0, 3601.0, 3601.1])
        wall = iter([BEGIN_S, BEGIN_S + 1, BEGIN_S + 3601])

        def monotonic_s(self) -> float:
            return next(self.monotonic, 3601.2)

        def now_s(self) -> int:
            return next(self.wall, BEGIN_S + 3601)

    changes: list[ClockChange] = []
    clock = SteadyClock(Stopped(), tell=changes.append)

    assert clock.now_s() == BEGIN_S + 3601
    assert changes == []


@pytest.mark.parametrize(
    ("by_s", "words"),
    [
        (DAY_S, "1 day ahead"),
        (-10 * YEAR_S, "10 years back"),
        (61, "1 minute ahead"),
        (-11, "11 seconds back"),
    ],
)
def test_jump_is_told_in_words(by_s: int, words: str) -> None:
    assert in_words(by_s) == words


def test_doubt_is_said_with_its_end_and_the_remedy() -> None:
    clocks = Clocks()
    clock = SteadyClock(clocks, step_s=10, doubt_s=120)
    before = clock.doubt
    clocks.set_s = DAY_S

    assert before == ""
    assert clock.doubt == (
        "the clock was set 1 day ahead: nothing ends and nothing is promised until it is back, or has "
        "stayed so for 120 s more; set it right, or wait"
    )


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S, 10 * YEAR_S])
def test_process_that_is_started_again_meanwhile_knows_what_time_it_was(tmp_path: Path, by_s: int) -> None:
    clocks, offset_store = Clocks(), StoredOffset(str(tmp_path / "clock.json"))
    SteadyClock(clocks, offset_store=offset_store).now_s()
    clocks.set_s = by_s
    clocks.passed_s = 50
    changes: list[ClockChange] = []
    again = SteadyClock(clocks, offset_store=StoredOffset(str(tmp_path / "clock.json")), tell=changes.append)
    during_s, true_s = again.now_s(), clocks.now_s() - by_s
    is_doubtful = again.is_doubtful
    clocks.set_s = 0
    again.now_s()

    assert abs(during_s - true_s) <= 2
    assert is_doubtful
    assert [each.kind for each in changes] == [DOUBTFUL, BACK]


def test_clock_that_was_believed_is_what_is_remembered(tmp_path: Path) -> None:
    clocks, offset_store = Clocks(), StoredOffset(str(tmp_path / "clock.json"))
    clock = SteadyClock(clocks, offset_store=offset_store)
    clock.now_s()
    clocks.set_s = DAY_S
    clock.now_s()
    clocks.passed_s = 121
    clock.now_s()

    assert not SteadyClock(clocks, offset_store=offset_store).is_doubtful


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version":2,"boot_id":"x","offset_s":1}', '{"version":1,"boot_id":"x","offset_s":1}'],
)
def test_what_is_remembered_of_another_boot_or_makes_no_sense_counts_for_nothing(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "clock.json").write_text(text)
    clock = SteadyClock(Clocks(), offset_store=StoredOffset(str(tmp_path / "clock.json")))

    assert abs(clock.now_s() - SystemClock().now_s()) <= 2
    assert not clock.is_doubtful


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier, clocks: Clocks) -> Inside:
    """With an image that is promised, an instance, an address that is believed, and a transfer."""
    carrier.contents = {A: b"a" * MIB, B: b"b" * MIB, C: b"c" * (4 * MIB)}
    clock = SteadyClock(clocks, step_s=10, doubt_s=600)
    started = inside(clock=clock, sweep_interval="1d", alias_lifetime="1h", limit_bytes=6 * MIB)
    now_s = clocks.now_s()
    started.ask("add", uri=A, expires_s=now_s + 300, pin={"owner": "reservation", "until_s": now_s + 600})
    started.settle()
    started.ask("instance", name=A, owner="job", until_s=now_s + 600)
    carrier.hold(B, 0)
    started.ask("add", uri=B, pin={"owner": "later", "until_s": now_s + 600})
    return started


def kept(daemon: Inside) -> dict[str, object]:
    """What is pending there."""
    found = daemon.ask("ls")
    return {
        "images": [(each["uri"], each["pins"]) for each in found["images"]],
        "arriving": [each["uri"] for each in found["arriving"]],
        "instances": len(daemon.ask("instances")["instances"]),
        "names": len(os.listdir(Path(daemon.pool) / "aliases")),
    }


def sweep(daemon: Inside) -> None:
    """Look at everything that may be over, now."""
    timer: Any = daemon.daemon.timer  # type: ignore[union-attr]
    with timer._changed:
        timer._due_s = dict.fromkeys(timer._due_s, 0)
    timer.sweep()


PENDING = {"images": [(A, 2)], "arriving": [B], "instances": 1, "names": 1}


@pytest.mark.parametrize("by_s", BOTH_WAYS_S)
def test_jump_and_back_ends_nothing_that_is_pending(
    daemon: Inside, clocks: Clocks, carrier: ScriptedCarrier, by_s: int
) -> None:
    clocks.set_s = by_s
    sweep(daemon)
    meanwhile = kept(daemon)
    with pytest.raises((NoRoom, InUse)):
        # There would be room if the pins were not believed any more.
        daemon.ask("add", uri=C)
    renewed = daemon.ask("pin", name=A, owner="reservation", until_s=clocks.now_s() - by_s + 900)
    clocks.passed_s += 6
    clocks.set_s = 0
    sweep(daemon)

    assert meanwhile == kept(daemon) == PENDING
    assert renewed["uri"] == A
    assert daemon.ask("ping")["clock_trouble"] == ""
    carrier.gates[B][1].set()
    daemon.settle()
    assert {each["uri"] for each in daemon.ask("ls")["images"]} == {A, B}


@pytest.mark.parametrize("by_s", [DAY_S, 10 * YEAR_S])
def test_clock_that_stays_ahead_ends_things_only_when_it_is_believed(
    daemon: Inside, clocks: Clocks, carrier: ScriptedCarrier, by_s: int
) -> None:
    clocks.set_s = by_s
    sweep(daemon)
    first = daemon.ask("ping")["clock_trouble"]
    clocks.passed_s += 590
    sweep(daemon)
    late = kept(daemon)
    clocks.passed_s += 20
    sweep(daemon)
    # The transfer goes on, and what it brings is nobody's: look before it can have ended.
    after = kept(daemon)
    carrier.gates[B][1].set()

    assert first.startswith(f"the clock was set {in_words(by_s)}")
    assert late == PENDING
    assert after["images"] == []
    assert daemon.ask("ping")["clock_trouble"] == ""


@pytest.mark.parametrize("by_s", [-DAY_S, -10 * YEAR_S])
def test_clock_that_is_believed_when_it_was_set_back_expires_things_again(
    daemon: Inside, clocks: Clocks, carrier: ScriptedCarrier, by_s: int
) -> None:
    clocks.set_s = by_s
    sweep(daemon)
    clocks.passed_s += 610
    sweep(daemon)
    old = kept(daemon)
    now_s = clocks.now_s()
    daemon.ask("unpin", name=A, owner="reservation")
    daemon.ask("release", owner="job")
    daemon.ask("pin", name=A, owner="new", until_s=now_s + 100)
    clocks.passed_s += 200
    sweep(daemon)
    new_pins = daemon.ask("find", name=A)["pins"]
    carrier.gates[B][1].set()

    assert old == PENDING
    assert new_pins == 0


def test_daemon_says_when_its_clock_is_doubted_and_when_not_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import io

    from cachemgr import config as configs

    clocks, text, metrics = Clocks(), io.StringIO(), NodeMetrics()
    monkeypatch.setattr(main, "SystemClock", lambda: clocks)
    clock = main._steady_clock(
        configs.config({"pool": str(tmp_path)}), DaemonLog(text, level="info"), metrics
    )
    clocks.set_s = DAY_S
    clock.now_s()
    doubted = metrics.value("outrider_clock_doubtful")
    clocks.set_s = 0
    clock.now_s()
    clocks.set_s = -DAY_S
    clock.now_s()
    clocks.passed_s = 601
    clock.now_s()

    assert doubted == 1
    assert metrics.value("outrider_clock_doubtful") == 0
    assert text.getvalue().splitlines() == [
        'warning clock is doubtful words="the clock was set 1 day ahead" doubt_s=600',
        'info clock is back words="the clock is back where it should be" doubt_s=600',
        'warning clock is doubtful words="the clock was set 1 day back" doubt_s=600',
        'warning clock is believed words="the clock was set 1 day back" doubt_s=600',
    ]


@pytest.mark.parametrize("by_s", BOTH_WAYS_S)
def test_tickets_are_good_while_the_nodes_clock_is_off(
    inside: Start, carrier: ScriptedCarrier, folder: Path, clocks: Clocks, by_s: int
) -> None:
    carrier.contents = {A: b"a" * MIB}
    (folder / "key").write_bytes(KEY)
    clock = SteadyClock(clocks, step_s=10, doubt_s=600)
    node = inside(clock=clock, relay_key=str(folder / "key"), relay_listen="127.0.0.1:0")
    node.ask("add", uri=A)
    node.settle()
    digest, until_s = sha256(b"a" * MIB), clocks.now_s() + 3600
    clocks.set_s = by_s
    job = make_job_ticket(KEY, JobTicket(job="17", uid=4242, digest=digest, expires_s=until_s))
    made = node.ask("claim", job="17", uid=4242, ticket=job)
    relayed = relay_status(node, digest, make_ticket(KEY, f"sha256:{digest}", until_s))
    clocks.passed_s += 7200
    clocks.set_s = 0
    late = relay_status(node, digest, make_ticket(KEY, f"sha256:{digest}", until_s))

    assert made["digest"] == f"sha256:{digest}"
    assert (relayed, late) == (200, 401)


def relay_status(node: Inside, digest: str, ticket: str) -> int:
    assert node.daemon is not None
    assert node.daemon.relay is not None
    connection = http.client.HTTPConnection("127.0.0.1", node.daemon.relay.port, timeout=240)
    with closing(connection):
        connection.request(
            "HEAD", f"/v1/images/sha256:{digest}", headers={"Authorization": f"Outrider {ticket}"}
        )
        return connection.getresponse().status
