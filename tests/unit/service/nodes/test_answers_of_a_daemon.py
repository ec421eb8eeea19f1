"""What a node's daemon answers that is slow, strange, or of another version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, CacheError, DiskFailed, NoDaemon
from outrider.service.nodes.agent import tell_daemon
from outrider.service.ports import NodeRoom, NodeTrouble, TellNode, Unpin

DIGEST = "sha256:" + "a" * 64


class Answering:
    """A daemon of which only its answers matter."""

    def __init__(self, answers: Mapping[str, dict[str, Any]], clock: SlowClock) -> None:
        self._answers = answers
        self._clock = clock
        self.timeouts: list[float] = []

    def ask(
        self, verb: str, fields: Mapping[str, object] | None = None, *, timeout_s: float = 60.0
    ) -> dict[str, Any]:
        self.timeouts.append(timeout_s)
        self._clock.monotonic += 15
        if verb not in self._answers:
            raise NoDaemon("it hung up")
        return self._answers[verb]


class SlowClock:
    """Time passes only when the daemon is asked."""

    def __init__(self) -> None:
        self.monotonic = 0.0

    def now_s(self) -> int:
        return 1_000

    def monotonic_s(self) -> float:
        return self.monotonic

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


EMPTY: dict[str, dict[str, Any]] = {
    "promise": {"capacity_bytes": 100, "others": [], "users_bytes": 50},
    "transfers": {"transfers": []},
    "ls": {"images": [], "arriving": [{"digest": None, "size_bytes": 7, "arrived_bytes": 0}]},
    "stats": {"outrider_pool_limit_bytes": 100},
}


def test_daemon_that_has_not_counted_yet_is_counted_for() -> None:
    clock = SlowClock()
    report = tell_daemon(Answering(EMPTY, clock), TellNode(node="n1"), clock=clock)

    assert (report.limit_bytes, report.used_bytes, report.at_s) == (100, 7, 1_000)


@pytest.mark.parametrize(
    "changed",
    [
        {"transfers": {}},
        {"transfers": {"transfers": ["t1"]}},
        {"ls": {"images": [{"digest": 5}], "arriving": []}},
        {"stats": {"outrider_pool_limit_bytes": "many"}},
        {"stats": {"outrider_pool_limit_bytes": -1}},
        {
            "promise": {
                "capacity_bytes": 100,
                "others": [{"size_bytes": "many", "until_s": 1}],
                "users_bytes": 50,
            }
        },
    ],
)
def test_strange_answers_are_trouble_and_no_traceback(changed: dict[str, dict[str, Any]]) -> None:
    clock = SlowClock()

    with pytest.raises(NodeTrouble, match="unusable") as trouble:
        tell_daemon(Answering({**EMPTY, **changed}, clock), TellNode(node="n1"), clock=clock)
    assert not trouble.value.is_away


class Older(Answering):
    """A daemon that knows of no promises, or whose disk does not take a record of them."""

    def __init__(self, refusal: CacheError) -> None:
        super().__init__(EMPTY, SlowClock())
        self._refusal = refusal

    def ask(
        self, verb: str, fields: Mapping[str, object] | None = None, *, timeout_s: float = 60.0
    ) -> dict[str, Any]:
        if verb == "promise":
            raise self._refusal
        return super().ask(verb, fields, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("refusal", "room"),
    [
        (BadRequest("there is no verb 'promise'"), None),
        (DiskFailed("the disk is full"), NodeRoom(capacity_bytes=0)),
    ],
    ids=["an older daemon", "a full disk"],
)
def test_node_that_keeps_no_promise_is_told_its_orders_all_the_same(
    refusal: CacheError, room: NodeRoom | None
) -> None:
    call = TellNode(node="n1", promised_bytes=5, promised_until_s=2_000)

    report = tell_daemon(Older(refusal), call, clock=SlowClock())

    assert (report.limit_bytes, report.room) == (100, room)


def test_all_waiting_for_a_node_has_one_end() -> None:
    clock = SlowClock()
    slow = Answering({**EMPTY, "unpin": {"was_pinned": False}}, clock)
    orders = tuple(Unpin(digest=DIGEST, owner=str(number)) for number in range(10))

    with pytest.raises(NodeTrouble, match="takes too long"):
        tell_daemon(slow, TellNode(node="n1", orders=orders), clock=clock, tell_s=40)
    # 15 s each: 20 are allowed at first, then what is left of 40.
    assert slow.timeouts == [20, 20, 10]


def test_daemon_that_hangs_up_half_way_is_away() -> None:
    clock = SlowClock()
    broken = Answering({"transfers": {"transfers": []}}, clock)

    with pytest.raises(NodeTrouble, match="does not answer") as trouble:
        tell_daemon(broken, TellNode(node="n1"), clock=clock)
    assert trouble.value.is_away
