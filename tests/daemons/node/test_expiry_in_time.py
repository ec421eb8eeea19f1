"""Things expire when their time is over, without anybody calling."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import NotAllowed
from cachemgr.pool import instance_book
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier, eventually

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.pool import ImagePool

Start = Callable[..., Inside]
A, B = "http://x/a", "http://x/b"


class ShiftedClock(SystemClock):
    """This machine's clock, and a jump."""

    def __init__(self) -> None:
        self.shift_s = 0

    def now_s(self) -> int:
        return super().now_s() + self.shift_s


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier, clock: ShiftedClock) -> Inside:
    carrier.contents = {A: b"a" * MIB, B: b"b" * MIB}
    # An interval far away, so that only what is known to expire wakes the timer.
    return inside(clock=clock, sweep_interval="1d", alias_lifetime="1h")


def swept(daemon: Inside, clock: ShiftedClock, shift_s: int) -> None:
    clock.shift_s = shift_s
    daemon.daemon.timer.sweep()  # type: ignore[union-attr]


def added(daemon: Inside, **fields: object) -> str:
    daemon.ask("add", **fields)
    daemon.settle()
    return str(daemon.ask("find", name=fields["uri"])["digest"])


def test_image_leaves_when_its_promise_ends_and_not_at_the_next_sweep(daemon: Inside) -> None:
    end_s = CLOCK.now_s() + 2
    added(daemon, uri=A, expires_s=end_s)
    folder = Path(daemon.pool) / "images"

    eventually("it has left", lambda: list(folder.iterdir()) == [], daemon.log)

    assert end_s <= CLOCK.now_s() <= end_s + 15
    eventually("it is logged", lambda: "image expired" in daemon.log(), daemon.log)
    assert daemon.ask("stats")['outrider_evicted_images_total{reason="expired"}'] == 1


def test_instance_leaves_when_its_lease_ends_and_not_at_the_next_sweep(daemon: Inside) -> None:
    end_s = CLOCK.now_s() + 2
    digest = added(daemon, uri=A)
    daemon.ask("instance", name=digest, owner="job", until_s=end_s)
    folder = Path(daemon.pool) / "instances"

    eventually("it has left", lambda: list(folder.iterdir()) == [], daemon.log)

    assert end_s <= CLOCK.now_s() <= end_s + 15
    assert daemon.ask("show", name=digest)["pin_list"] == []


def test_instance_that_only_root_can_remove_keeps_no_other_from_leaving(
    daemon: Inside, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = added(daemon, uri=A)
    for owner in ("one", "two", "three"):
        daemon.ask("instance", name=digest, owner=owner, until_s=CLOCK.now_s() + 600)
    folder = Path(daemon.pool) / "instances"
    stuck = sorted(os.listdir(folder))[0]
    remove = instance_book.remove_leftover

    def refused(pool: ImagePool, maker: Maker, key: str) -> bool:
        if key == stuck:
            raise NotAllowed("it holds what belongs to the job's user: root has to remove it")
        return remove(pool, maker, key)

    monkeypatch.setattr(instance_book, "remove_leftover", refused)
    swept(daemon, clock, 700)

    eventually("the others have left", lambda: os.listdir(folder) == [stuck], daemon.log)
    assert "root has to remove it" in daemon.log()


def test_strangers_among_the_names_keep_none_from_expiring(daemon: Inside, clock: ShiftedClock) -> None:
    added(daemon, uri=A)
    folder = Path(daemon.pool) / "aliases"
    (folder / "notes").mkdir()
    (folder / "0.json").mkdir()
    swept(daemon, clock, 100 * 86400)

    eventually("it has expired", lambda: sorted(os.listdir(folder)) == ["0.json", "notes"], daemon.log)

    assert "sweep of aliases failed" not in daemon.log()


def test_pinned_image_outlives_its_promise_until_the_pin_ends(daemon: Inside, clock: ShiftedClock) -> None:
    now_s = CLOCK.now_s()
    pin = {"owner": "o", "until_s": now_s + 600}
    digest = added(daemon, uri=A, expires_s=now_s + 300, pin=pin)
    swept(daemon, clock, 400)
    held = [image["digest"] for image in daemon.ask("ls")["images"]]
    swept(daemon, clock, 700)

    assert held == [digest]
    assert daemon.ask("ls")["images"] == []


def test_unpinned_image_beyond_its_promise_leaves_at_once(daemon: Inside, clock: ShiftedClock) -> None:
    now_s = CLOCK.now_s()
    digest = added(daemon, uri=A, expires_s=now_s + 300, pin={"owner": "o", "until_s": now_s + 900})
    swept(daemon, clock, 400)
    daemon.ask("unpin", name=digest, owner="o")

    eventually("it has left", lambda: "image expired" in daemon.log(), daemon.log)
    assert daemon.ask("ls")["images"] == []


def test_address_is_forgotten_when_it_is_not_believed_any_more(daemon: Inside, clock: ShiftedClock) -> None:
    added(daemon, uri=A)
    files = Path(daemon.pool) / "aliases"
    before = len(list(files.iterdir()))
    swept(daemon, clock, 3700)

    assert (before, list(files.iterdir())) == (1, [])
    assert daemon.ask("ls")["images"] != []


def test_what_arrives_for_nobody_is_dropped(
    daemon: Inside, clock: ShiftedClock, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, 1)
    name = daemon.ask("add", uri=A)["transfer"]
    daemon.ask("transfer-set", transfer=name, cancel=True)
    gate.set()
    eventually("it has ended", lambda: daemon.ask("transfers")["transfers"][0]["ended_s"], daemon.log)
    swept(daemon, clock, 86_000)
    kept = len(daemon.ask("ls")["arriving"])
    swept(daemon, clock, 87_000)

    assert kept == 1
    assert daemon.ask("ls")["arriving"] == []
    assert daemon.ask("stats")["outrider_pool_reserved_bytes"] == 0


def test_what_still_arrives_is_never_dropped(
    daemon: Inside, clock: ShiftedClock, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, 1)
    daemon.ask("add", uri=A)
    eventually("it has begun", lambda: carrier.started_at)
    swept(daemon, clock, 100_000)
    gate.set()
    daemon.settle()

    assert daemon.ask("ls")["arriving"] == []


def test_ended_transfers_are_forgotten_after_an_hour(daemon: Inside, clock: ShiftedClock) -> None:
    added(daemon, uri=A)
    swept(daemon, clock, 3500)
    before = len(daemon.ask("transfers")["transfers"])
    swept(daemon, clock, 90_000)

    assert before == 1
    assert daemon.ask("transfers")["transfers"] == []


def test_failing_task_does_not_keep_the_others_from_their_work(
    inside: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cachemgr.daemon import timer

    done = threading.Event()

    def fail(node: object) -> int | None:
        raise ZeroDivisionError("planted")

    def note(node: object) -> int | None:
        done.set()
        return None

    monkeypatch.setattr(timer, "TASKS", (timer.TimerTask("images", fail), timer.TimerTask("ingests", note)))
    daemon = inside()

    assert done.wait(60)
    assert "sweep of images failed | ZeroDivisionError: planted" in daemon.log()


def test_name_of_an_evicted_image_goes_soon_without_anybody_checking(daemon: Inside) -> None:
    digest = added(daemon, uri=A)
    aliases = Path(daemon.pool) / "aliases"
    named = len(list(aliases.iterdir()))
    daemon.ask("evict", name=digest)

    eventually("its name has gone", lambda: list(aliases.iterdir()) == [], daemon.log)

    assert named == 1
    assert daemon.ask("check")["findings"] == []


def test_what_expires_does_so_after_the_clock_was_set_back(daemon: Inside, clock: ShiftedClock) -> None:
    year_s = 366 * 86_400
    digest = added(daemon, uri=A)
    swept(daemon, clock, year_s)
    clock.shift_s = 0
    end_s = CLOCK.now_s() + 100
    daemon.node.pool.change_image(dataclasses.replace(daemon.node.pool.find(digest), expires_s=end_s))
    swept(daemon, clock, 3 * 86_400)

    assert daemon.ask("ls")["images"] == []
