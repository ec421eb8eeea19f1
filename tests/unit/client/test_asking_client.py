"""The client: what it sends, what it survives, and what it says when nothing can be done."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from pathlib import Path
from uuid import UUID

import pytest

from outrider.cli.errors import (
    CommandError,
    ConflictError,
    InputError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
    UnreachableError,
)
from outrider_client import transport as module
from outrider_client.transport import Transport, in_path
from tests.unit.cli.canned import Reply, Service, serving


class Clock:
    """Time passes when somebody sleeps, and at no other time."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_s(self) -> int:
        return int(self.monotonic_s())

    def monotonic_s(self) -> float:
        return 1000 + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class StartingClock(Clock):
    """A clock with which a service starts after so many seconds of somebody's waiting."""

    def __init__(self, start: threading.Event, seconds: int) -> None:
        super().__init__()
        self.is_started = threading.Event()
        self._start = start
        self._seconds = seconds

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if sum(self.slept) >= self._seconds:
            self._start.set()
            self.is_started.wait(timeout=240)


def client(service: Service, *, timeout_s: int = 30) -> Transport:
    return Transport(str(service.path), Clock(), timeout_s=timeout_s)


def trouble(code: str, status: int) -> Reply:
    return Reply(status=status, value={"code": code, "message": "it is so", "problems": []})


def test_answer_is_the_json_that_was_sent(service: Service) -> None:
    service.on("GET", "/v1/status", {"site": "köln"})

    assert client(service).get("/v1/status") == {"site": "köln"}


def test_query_holds_what_is_given_and_nothing_else(service: Service) -> None:
    service.on("GET", "/v1/nodes", {})
    client(service).get("/v1/nodes", {"names": "n[1-4]&past=1", "after": None, "most": 5})

    assert service.last("GET").query == {"names": "n[1-4]&past=1", "most": "5"}


def test_each_change_carries_a_key_of_its_own(service: Service) -> None:
    service.on("POST", "/v1/plans", {})
    asking = client(service)
    asking.post("/v1/plans", {})
    asking.post("/v1/plans", {})
    keys = [each.headers["idempotency-key"] for each in service.asked]

    assert [UUID(key).version for key in keys] == [4, 4]
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("not-found", 404, NotFoundError),
        ("not-allowed", 403, NotAllowedError),
        ("ambiguous", 409, ConflictError),
        ("conflict", 409, ConflictError),
        ("invalid", 422, InputError),
        ("unavailable", 503, UnavailableError),
        ("busy", 503, UnavailableError),
        ("of-the-future", 418, UnreachableError),
    ],
)
def test_trouble_has_its_class(service: Service, code: str, status: int, error: type[CommandError]) -> None:
    service.on("GET", "/v1/status", trouble(code, status))

    with pytest.raises(error):
        client(service).get("/v1/status")


def test_message_of_a_trouble_cannot_move_the_cursor(service: Service) -> None:
    value = {"code": "not-found", "message": "no \x1b[2Jsuch\nthing", "problems": []}
    service.on("GET", "/v1/status", Reply(status=404, value=value))

    with pytest.raises(NotFoundError, match=r"^no  \[2Jsuch thing$"):
        client(service).get("/v1/status")


def test_request_that_was_hung_up_on_is_sent_again_with_the_same_key(service: Service) -> None:
    service.on("POST", "/v1/reservations", Reply(hangs_up=True), Reply(hangs_up=True), {"result": "accepted"})

    assert client(service).post("/v1/reservations", {}) == {"result": "accepted"}
    assert len({each.headers["idempotency-key"] for each in service.asked}) == 1
    assert len(service.asked) == 3


def test_service_that_always_hangs_up_is_given_up_in_time(service: Service) -> None:
    service.on("POST", "/v1/reservations", Reply(hangs_up=True))
    clock = Clock()

    with pytest.raises(UnreachableError, match="is not known"):
        Transport(str(service.path), clock, timeout_s=10).post("/v1/reservations", {})
    assert 5 < sum(clock.slept) <= 10


def test_busy_service_is_asked_again_after_the_time_it_named(service: Service) -> None:
    busy = trouble("busy", 503)
    busy.headers["Retry-After"] = "3"
    service.on("GET", "/v1/status", busy, busy, {"site": "a"})
    clock = Clock()

    assert Transport(str(service.path), clock).get("/v1/status") == {"site": "a"}
    assert clock.slept == [3, 3]


def test_image_that_is_being_made_is_waited_for_as_long_as_there_is_news_of_it(service: Service) -> None:
    making = trouble("converting", 503)
    making.headers["Retry-After"] = "20"
    service.on("POST", "/v1/plans", making, making, making, {"result": "accepted"})
    told: list[str] = []
    clock = Clock()

    answer = Transport(str(service.path), clock, timeout_s=30, waiting=told.append).post("/v1/plans", {})

    assert answer == {"result": "accepted"}
    assert sum(clock.slept) == 60
    assert [bool(words) for words in told] == [True, True, True, False]


def test_busy_service_is_not_waited_for_beyond_the_timeout(service: Service) -> None:
    busy = trouble("busy", 503)
    busy.headers["Retry-After"] = "3"
    service.on("GET", "/v1/status", busy)
    clock = Clock()

    with pytest.raises(UnavailableError):
        Transport(str(service.path), clock, timeout_s=7).get("/v1/status")
    assert clock.slept == [3, 3]


@pytest.mark.parametrize("seconds", [module.NEW_PATIENCE_S - 1, 29])
def test_service_that_restarts_is_waited_for(seconds: int) -> None:
    """With 29 seconds only if it was there a moment ago: it hung up on this very request."""
    start, is_over = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="or-") as folder:
        path = Path(folder) / "s"
        clock = StartingClock(start, seconds)
        asking = Transport(str(path), clock, timeout_s=30)
        if seconds > module.NEW_PATIENCE_S:
            with serving(path) as service:
                service.on("GET", "/v1/status", {"site": "early"})
                asking.get("/v1/status")

        def begin() -> None:
            start.wait(timeout=240)
            with serving(path) as service:
                service.on("GET", "/v1/status", {"site": "late"})
                clock.is_started.set()
                is_over.wait(timeout=240)

        thread = threading.Thread(target=begin)
        thread.start()
        try:
            found = asking.get("/v1/status")
        finally:
            start.set()
            is_over.set()
            thread.join()

    assert found == {"site": "late"}


def test_request_on_which_a_service_died_is_told_as_one_of_unknown_outcome(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="or-") as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder) / "s"
        listening.bind(str(path))
        listening.listen()

        def die() -> None:
            connection, _ = listening.accept()
            path.unlink()
            connection.close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(UnreachableError, match="is not known"):
            Transport(str(path), Clock(), timeout_s=10).post("/v1/reservations", {})
        thread.join()


def test_service_that_does_not_run_is_told_with_a_remedy(tmp_path: Path) -> None:
    clock = Clock()

    with pytest.raises(UnreachableError, match=r"not running.*systemctl start outriderd.*--socket"):
        Transport(str(tmp_path / "none"), clock).get("/v1/status")
    assert sum(clock.slept) <= module.NEW_PATIENCE_S


def test_file_that_is_no_socket_is_not_outriderd(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UnreachableError, match=r"not running|not outriderd"):
        Transport(str(tmp_path / "file"), Clock()).get("/v1/status")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(raw=b"<html>hello</html>"),
        Reply(raw=b""),
        Reply(status=500, raw=b"{}"),
        Reply(status=302, value={}),
        Reply(raw=b'{"a": 1'),
        Reply(raw=b"[" * 100_000),
    ],
)
def test_stranger_on_the_socket_is_told(service: Service, reply: Reply) -> None:
    service.on("GET", "/v1/status", reply)

    with pytest.raises(UnreachableError, match="not outriderd"):
        client(service).get("/v1/status")


def test_program_that_speaks_no_http_is_told(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="or-") as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/s"
        listening.bind(path)
        listening.listen()

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"220 mail.example.org ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(UnreachableError, match="not outriderd"):
            Transport(path, Clock()).get("/v1/status")
        thread.join()


def test_service_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="or-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/s")
        listening.listen()

        with pytest.raises(UnreachableError, match="did not answer within 1 s"):
            Transport(f"{folder}/s", Clock(), timeout_s=1).get("/v1/status")


def test_answer_that_is_too_large_is_not_kept(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ANSWER_BYTES", 100)
    service.on("GET", "/v1/status", {"site": "x" * 100})

    with pytest.raises(UnreachableError, match="larger than 100"):
        client(service).get("/v1/status")


def test_path_that_no_socket_can_have_is_an_input_error() -> None:
    with pytest.raises(InputError, match="107"):
        Transport("/run/" + "x" * 110, Clock())


def test_socket_that_may_not_be_used_is_not_allowed(service: Service) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    service.path.chmod(0o600)
    service.path.parent.chmod(0o755)
    child = os.fork()
    if child == 0:  # pragma: no cover - seen through its exit status
        os.setuid(65_534)
        try:
            client(service).get("/v1/status")
        except NotAllowedError:
            os._exit(6)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 6


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a?b=1", "a#b", "é", "a b\r\n"])
def test_name_is_one_step_of_a_path(service: Service, name: str) -> None:
    with pytest.raises(NotFoundError):
        client(service).get(f"/v1/reservations/{in_path(name)}")

    assert service.asked[0].path.startswith("/v1/reservations/")
    assert service.asked[0].path.count("/") == 3
    assert "." not in service.asked[0].path[len("/v1/reservations/") :]
    assert service.asked[0].query == {}
