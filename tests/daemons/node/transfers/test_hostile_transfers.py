"""What users do to the transfers of others: files that never close, slots that never end, claims."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from cachemgr.base.errors import InUse, SourceFailed
from cachemgr.base.rate import LEAST_STEP_BYTES, RateLimit
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.transfers.transfer import PoolTransfer
from cachemgr.daemon.transfers.transfers import Transfers
from cachemgr.daemon.transfers.users_rate import OfUsers
from cachemgr.fetch.bring import Origin, TransferTerms
from cachemgr.pool.records import PoolImage
from tests.daemons.node.daemons import CLOCK, Inside, eventually

Start = Callable[..., Inside]


def fails(transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
    raise SourceFailed("nobody has it")


@pytest.fixture
def table() -> Transfers:
    import io

    return Transfers(
        slots=2, most_waiting=8, rate_bytes_per_s=None, clock=CLOCK, log=DaemonLog(io.StringIO())
    )


def begin(table: Transfers, key: str, *origins: Origin) -> PoolTransfer:
    return table.join(key, uri=key, size_bytes=1, uid=2001, origins=origins, work=fails)[0]


def of_user(name: str) -> Origin:
    return Origin(uri="file:///x", name=name, scheme="file", descriptor=0)


def test_file_that_never_closes_stops_nobody_elses_transfer(
    table: Transfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, released = threading.Event(), threading.Event()

    def close(descriptor: int) -> None:
        closing.set()
        assert released.wait(60)

    with monkeypatch.context() as hung:
        hung.setattr(os, "close", close)
        begin(table, "a", of_user("a"))
        assert closing.wait(60)
        asked: list[object] = []
        asker = threading.Thread(target=lambda: asked.append(table.counts()))
        asker.start()
        asker.join(30)
        is_answered = bool(asked)
        released.set()
        asker.join(60)
        table.stop(20)

    assert is_answered


def test_transfer_without_a_thread_ends_and_leaves_its_slot(
    table: Transfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        unlucky = [begin(table, key) for key in ("a", "b", "c")]
    later = begin(table, "d")
    eventually("the next one ends", lambda: later.has_ended)

    assert all(isinstance(each.error, InUse) for each in unlucky)
    assert isinstance(later.error, SourceFailed)


def test_users_share_a_rate_that_ends_when_the_service_wants_the_image(inside: Start) -> None:
    daemon, limits, is_over = inside(user_rate="1000"), [], threading.Event()

    def work(transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
        limits.append(terms.limits[-1])
        assert is_over.wait(60)
        raise SourceFailed("enough")

    def join(key: str, uid: int, *, is_ordinary: bool) -> None:
        daemon.node.transfers.join(
            key, uri=key, size_bytes=1, uid=uid, origins=[], work=work, is_ordinary=is_ordinary
        )

    for key, uid in (("a", 2001), ("b", 2002)):
        join(key, uid, is_ordinary=True)
    eventually("both run", lambda: len(limits) == 2, daemon.log)
    before = [each.rate_bytes_per_s for each in limits]
    join("a", 0, is_ordinary=False)
    after = sorted(str(each.rate_bytes_per_s) for each in limits)
    steps = sorted(each.step_bytes(1 << 20) for each in limits)
    is_over.set()
    daemon.settle()

    assert before == [1000, 1000]
    assert after == ["1000", "None"]
    assert steps == [LEAST_STEP_BYTES, 1 << 20]


def test_who_waits_for_the_users_rate_goes_on_when_the_service_wants_the_image() -> None:
    shared, is_ordinary = RateLimit(1, CLOCK), [True]
    limit = OfUsers(shared, lambda: is_ordinary[0], CLOCK)
    waiting = threading.Thread(target=limit.take, args=(1 << 20,))
    waiting.start()
    is_waiting = waiting.is_alive()
    is_ordinary[0] = False
    waiting.join(60)

    assert is_waiting
    assert not waiting.is_alive()
