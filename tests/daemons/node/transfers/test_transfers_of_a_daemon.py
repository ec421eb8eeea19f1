"""Transfers as clients see them: joined, ordered by deadline, paused, cancelled, limited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cachemgr.base.errors import (
    BadRequest,
    CacheError,
    Cancelled,
    InUse,
    NoRoom,
    NotInPool,
    SourceFailed,
    WrongBytes,
)
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier, eventually, sha256

Start = Callable[..., Inside]
A, B, C = "http://x/a", "http://x/b", "http://x/c"


@pytest.fixture
def contents(carrier: ScriptedCarrier) -> dict[str, bytes]:
    carrier.contents = {uri: uri[-1:].encode() * 3 * MIB for uri in (A, B, C)}
    return carrier.contents


class Waiting:
    """A client that waits for an image in a thread of its own."""

    def __init__(self, daemon: Inside, **fields: object) -> None:
        self.seen: list[dict[str, Any]] = []
        self.result: dict[str, Any] = {}
        self.error: CacheError | None = None
        self._path, self._fields = daemon.socket, fields
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            with DaemonClient(self._path) as client:
                self.result = client.ask("add", self._fields, on_progress=self.seen.append)
        except CacheError as error:
            self.error = error

    def end(self) -> dict[str, Any]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def state(daemon: Inside, name: str) -> str:
    return {each["transfer"]: str(each["state"]) for each in daemon.ask("transfers")["transfers"]}[name]


def test_image_arrives_and_is_found_by_digest_and_address(inside: Start, contents: dict[str, bytes]) -> None:
    daemon = inside()

    found = Waiting(daemon, uri=A).end()

    assert found["digest"] == f"sha256:{sha256(contents[A])}"
    assert daemon.ask("find", name=A)["digest"] == found["digest"]
    with open(daemon.ask("find", name=found["digest"])["path"], "rb") as file:
        assert file.read() == contents[A]


def test_several_requests_for_one_image_are_one_transfer(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A, MIB)
    waiting = [Waiting(daemon, uri=A) for _ in range(8)]
    eventually("all have joined", lambda: daemon.log().count("transfer joined") == 7, daemon.log)
    gate.set()

    digests = {each.end()["digest"] for each in waiting}

    assert digests == {f"sha256:{sha256(contents[A])}"}
    assert carrier.started_at == [(A, 0)]
    assert all(each.seen[-1]["size_bytes"] == 3 * MIB for each in waiting)
    assert daemon.ask("stats")['outrider_image_requests_total{result="joined"}'] == 7


def test_joined_transfer_has_the_earliest_of_their_deadlines(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A)
    now_s = CLOCK.now_s()
    for deadline_s in (now_s + 900, now_s + 300, now_s + 600):
        shown = daemon.ask("add", uri=A, deadline_s=deadline_s)
    gate.set()

    assert shown["deadline_s"] == now_s + 300


def test_earlier_deadline_pauses_the_running_transfer_which_then_goes_on(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon = inside(transfers="1")
    first_gate, second_gate = carrier.hold(A, MIB), carrier.hold(B, MIB)
    late = daemon.ask("add", uri=A, deadline_s=CLOCK.now_s() + 900)["transfer"]
    eventually("the first has begun", lambda: daemon.ask("transfers")["transfers"][0]["bytes"] == MIB)
    early = daemon.ask("add", uri=B, deadline_s=CLOCK.now_s() + 100)["transfer"]
    first_gate.set()
    seen = (state(daemon, late), state(daemon, early))
    second_gate.set()
    eventually("both are done", lambda: state(daemon, late) == "done", daemon.log)

    assert seen == ("paused", "running")
    ended = {each["transfer"]: each["ended_s"] for each in daemon.ask("transfers")["transfers"]}
    assert ended[early] <= ended[late]
    assert carrier.started_at == [(A, 0), (B, 0)]


def test_no_more_run_at_once_than_configured(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon = inside(transfers="2")
    gates = [carrier.hold(uri) for uri in (A, B, C)]
    names = [daemon.ask("add", uri=uri)["transfer"] for uri in (A, B, C)]
    states = [state(daemon, name) for name in names]
    for gate in gates:
        gate.set()
    eventually("all are done", lambda: {state(daemon, name) for name in names} == {"done"}, daemon.log)

    assert states == ["running", "running", "waiting"]


def test_cancelled_transfer_tells_who_waits_and_keeps_what_arrived(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A, 2 * MIB)
    digest = sha256(contents[A])
    waiting = Waiting(daemon, uri=A, digest=digest)
    eventually("it has begun", lambda: any(each["bytes"] == 2 * MIB for each in waiting.seen))
    daemon.ask("transfer-set", transfer=waiting.seen[0]["transfer"], cancel=True)

    with pytest.raises(Cancelled):
        waiting.end()

    assert daemon.ask("ls")["arriving"][0]["arrived_bytes"] == 2 * MIB
    gate.set()
    Waiting(daemon, uri=A, digest=digest).end()
    assert carrier.started_at == [(A, 0), (A, 2 * MIB)]


def test_paused_transfer_stands_still_until_it_is_resumed(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(transfers="1"), carrier.hold(A)
    held = daemon.ask("add", uri=A)["transfer"]
    daemon.ask("transfer-set", transfer=held, pause=True)
    gate.set()
    Waiting(daemon, uri=B).end()
    seen = state(daemon, held)
    daemon.ask("transfer-set", transfer=held, resume=True)
    eventually("it is done", lambda: state(daemon, held) == "done", daemon.log)

    assert seen == "paused"


def test_waiting_transfer_can_be_cancelled_before_it_begins(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(transfers="1"), carrier.hold(A)
    daemon.ask("add", uri=A)
    waiting = Waiting(daemon, uri=B)
    eventually("it waits", lambda: waiting.seen)
    daemon.ask("transfer-set", transfer=waiting.seen[0]["transfer"], cancel=True)

    with pytest.raises(Cancelled, match="uid 0 asked for it"):
        waiting.end()
    gate.set()
    assert [uri for uri, _ in carrier.started_at] == [A]


def test_failed_source_is_told_and_the_bytes_are_kept_for_the_next(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon = inside()
    carrier.broken[A] = MIB
    digest = sha256(contents[A])
    with pytest.raises(SourceFailed):
        Waiting(daemon, uri=A, digest=digest).end()
    carrier.contents[B] = contents[A]

    Waiting(daemon, uri=A, digest=digest, sources=[B]).end()

    assert carrier.started_at == [(A, 0), (B, MIB)]


def test_wrong_bytes_are_asked_of_another_source_and_then_given_up(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon = inside()
    digest = sha256(contents[A])
    carrier.contents["http://x/forged"] = b"f" * 3 * MIB
    good = Waiting(daemon, uri=A, digest=digest, sources=["http://x/forged", A]).end()
    with pytest.raises(WrongBytes, match="promised as"):
        Waiting(daemon, uri=B, digest=sha256(contents[B]), sources=["http://x/forged"]).end()

    assert good["digest"] == f"sha256:{digest}"
    assert daemon.ask("ls")["arriving"] == []


def test_reservation_that_cannot_be_is_refused_at_once(inside: Start, contents: dict[str, bytes]) -> None:
    daemon = inside(limit_bytes=4 * MIB)
    until_s = CLOCK.now_s() + 600
    Waiting(daemon, uri=A, pin={"owner": "o", "until_s": until_s, "kind": "hold"}).end()

    with pytest.raises(NoRoom, match="held by pins"):
        daemon.ask("add", uri=B)
    with pytest.raises(NoRoom, match="never fit"):
        daemon.ask("add", uri=B, size_bytes=5 * MIB)
    assert daemon.ask("unpin", name=A, owner="o") == {"was_pinned": True}
    assert daemon.ask("add", uri=B, dry_run=True)["evicted"] == [
        {"digest": f"sha256:{sha256(contents[A])}", "size_bytes": 3 * MIB}
    ]
    Waiting(daemon, uri=B).end()
    with pytest.raises(NotInPool):
        daemon.ask("find", name=A)


def test_pin_is_there_before_the_first_byte(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A)
    daemon.ask("add", uri=A, pin={"owner": "o", "until_s": CLOCK.now_s() + 600})
    [ingest] = daemon.node.pool.ingests()
    pinned = list((daemon.folder / "pool" / "ingest" / ingest.key / "pins").glob("*.json"))
    gate.set()
    daemon.settle()

    assert len(pinned) == 1
    assert daemon.ask("show", name=A)["pin_list"][0]["owner"] == "o"


def test_client_that_leaves_in_the_middle_of_an_add_changes_nothing(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A, MIB)
    with DaemonClient(daemon.socket) as client:
        client._send(b'{"v":1,"do":"add","uri":"%s","wait":true}\n' % A.encode(), ())
        client._receive(20)
    gate.set()
    daemon.settle()

    assert daemon.ask("find", name=A)["size_bytes"] == 3 * MIB


def test_rates_are_changed_while_the_daemon_runs(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(rate="1MB/s"), carrier.hold(A)
    before = daemon.ask("limits")["rate_bytes_per_s"]
    after = daemon.ask("limits", rate_bytes_per_s=0, relay_rate_bytes_per_s=500)
    name = daemon.ask("add", uri=A, rate_bytes_per_s=1000)["transfer"]
    changed = daemon.ask("transfer-set", transfer=name, rate_bytes_per_s=2000)
    gate.set()

    assert before == 1_000_000
    assert after == {"rate_bytes_per_s": 0, "relay_rate_bytes_per_s": 500}
    assert changed["limit_bytes_per_s"] == 2000


def test_more_than_may_wait_are_refused(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(transfers="1", transfers_waiting="1"), carrier.hold(A)
    for uri in (A, B):
        daemon.ask("add", uri=uri)
    with pytest.raises(InUse, match="taken already"):
        daemon.ask("add", uri=C)
    gate.set()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"uri": A, "digest": "md5:1"}, "not a sha256 digest"),
        ({"uri": A, "format": "vmdk"}, "no format 'vmdk'"),
        ({"uri": A, "pin": {"owner": "o"}}, "needs the field 'until_s'"),
        ({"uri": A, "pin": {"owner": "o", "until_s": 5}}, "must expire after now"),
        ({"uri": A, "pin": {"owner": "o", "until_s": 5, "kind": "instance"}}, "choose hold or expect"),
        ({"uri": A, "frobnicate": 1}, "no field 'frobnicate'"),
    ],
)
def test_senseless_addition_is_refused_with_its_reason(
    inside: Start, contents: dict[str, bytes], fields: dict[str, object], said: str
) -> None:
    daemon = inside()
    with pytest.raises(BadRequest, match=said):
        daemon.ask("add", **fields)
    assert daemon.ask("ls") == {"images": [], "arriving": []}


def test_transfer_that_never_was_is_missing(inside: Start) -> None:
    daemon = inside()
    for name in ("t1", "x", "t" * 50, "1"):
        with pytest.raises(NotInPool, match="no transfer"):
            daemon.ask("transfer-set", transfer=name, cancel=True)


def test_who_asks_for_what_is_just_being_cancelled_gets_it(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, begun, gate = inside(), threading.Event(), threading.Event()
    carry = carrier.carry

    def carry_slowly(*args: Any) -> tuple[str, ...]:
        if not begun.is_set():
            begun.set()
            assert gate.wait(60)
        return carry(*args)

    monkeypatch.setattr(carrier, "carry", carry_slowly)
    digest = sha256(contents[A])
    first = daemon.ask("add", uri=A, digest=digest)["transfer"]
    assert begun.wait(60)
    daemon.ask("transfer-set", transfer=first, cancel=True)
    waiting = Waiting(daemon, uri=A, digest=digest)
    eventually("it is told of", lambda: waiting.seen, daemon.log)
    gate.set()

    assert waiting.end()["digest"] == f"sha256:{digest}"
    assert state(daemon, first) == "cancelled"


def test_name_of_who_joined_by_another_address_stands_for_the_image(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold(A)
    contents[B] = contents[A]
    digest = sha256(contents[A])
    daemon.ask("add", uri=A, digest=digest)
    daemon.ask("add", uri=B, digest=digest)
    gate.set()
    daemon.settle()

    assert daemon.ask("find", name=B)["digest"] == daemon.ask("find", name=A)["digest"] == f"sha256:{digest}"


def test_refused_addition_reserves_nothing(
    inside: Start, contents: dict[str, bytes], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(transfers="1", transfers_waiting="0"), carrier.hold(A)
    daemon.ask("add", uri=A)
    with pytest.raises(InUse, match="taken already"):
        daemon.ask("add", uri=B, pin={"owner": "o", "until_s": CLOCK.now_s() + 600})
    gate.set()

    assert daemon.ask("stats")["outrider_pool_reserved_bytes"] == 3 * MIB


def test_transfer_for_which_there_is_no_thread_fails_and_makes_way(
    inside: Start, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = inside(transfers="1")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("transfer "):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        shown = daemon.ask("add", uri=A)

    assert (shown["state"], shown["error"]) == ("failed", "busy")
    assert Waiting(daemon, uri=A).end()["size_bytes"] == 3 * MIB
