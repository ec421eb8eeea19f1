"""The command line on another machine than the service: a real munged says who asks, over the loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.cli.errors import InputError, MissingPartError, NotAllowedError, UnreachableError
from outrider.cli.main import main
from outrider.service.front import Busy
from outrider.service.requests import ShowStatus
from outrider.service.web.connections.munge import Munge
from outrider_client import munge as module
from outrider_client.doors import ServerDoor, door_of, server_door
from outrider_client.munge import hash_request
from outrider_client.transport import Transport
from tests.repository import ROOT
from tests.unit.client.test_asking_client import Clock
from tests.unit.service.web.apiserver import WORKSPACE, ScriptedFront, Server, wait_until
from tests.unit.service.web.munging import UID, Munged, running_munged

Capture = pytest.CaptureFixture[str]
PATIENCE_S = 90


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with running_munged() as found:
        yield found


@pytest.fixture(scope="module")
def server(munged: Munged) -> Iterator[Server]:
    started = Server(munged.folder, munge=Munge(socket=munged.socket))
    yield started
    started.stop()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose programs are found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def front(
    server: Server, munged: Munged, programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> ScriptedFront:
    """The service's front, with OUTRIDER_SERVER naming it and `munge` asking the test's own munged."""
    server.front.reset()
    ask_munged(programs, munged)
    monkeypatch.delenv("OUTRIDER_SOCKET", raising=False)
    for name, value in {"OUTRIDER_SERVER": f"127.0.0.1:{server.port}", "TZ": "UTC", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws.yaml").write_text(WORKSPACE)
    return server.front


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def ask_munged(folder: Path, munged: Munged, *names: str) -> None:
    """Let these programs ask that munged, as they would ask the machine's."""
    for name in names or ("munge",):
        real = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/usr/local/bin")
        assert real is not None
        script(folder, name, f'exec {real} --socket "{munged.socket}" "$@"')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "line",
    [
        "status",
        "reserve ws.yaml",
        "modify render --nodes 3",
        "cancel render-17",
        "list --past --user mia --state ended",
        "explain render-17",
        "submit --reservation render-17 -n 2 ./run.sh",
        "config show",
    ],
)
def test_commands_are_understood_over_the_network(front: ScriptedFront, line: str) -> None:
    assert main(line.split()) == 0
    assert [caller.uid for caller, _ in front.asked] == [os.geteuid()] * len(front.asked)


def test_name_with_odd_letters_is_hashed_as_it_is_sent(front: ScriptedFront, capsys: Capture) -> None:
    """The service knows who asks, and so goes on to look at the name."""
    assert main(["cancel", "ä b?c#d%"]) == InputError.exit_code
    assert "name:" in capsys.readouterr().err


def test_each_attempt_has_a_credential_of_its_own(front: ScriptedFront, server: Server) -> None:
    """The first attempt's has been used: sent again, it would be refused."""
    attempts: list[str] = []
    plain = front.ask

    def busy_twice(caller: object, request: object) -> object:
        attempts.append(type(request).__name__)
        if len(attempts) < 3:
            raise Busy("the desk has too much to do", retry_after_s=1)
        return plain(caller, request)  # type: ignore[arg-type]

    front.ask = busy_twice  # type: ignore[method-assign, assignment]
    try:
        answer = Transport(server_door(f"127.0.0.1:{server.port}"), Clock()).get("/v1/status")
    finally:
        del front.ask

    assert isinstance(answer, dict)
    assert answer["site"] == "site"
    assert attempts == ["ShowStatus"] * 3


def test_user_is_whose_process_makes_the_credential(
    front: ScriptedFront, programs: Path, munged: Munged
) -> None:
    real = shutil.which("munge", path="/usr/bin:/usr/local/bin")
    change = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    script(programs, "munge", f'exec {change} {real} --socket "{munged.socket}" "$@"')

    assert main(["status"]) == 0
    assert [(caller.uid, type(request)) for caller, request in front.asked] == [(UID, ShowStatus)]


def test_key_of_another_site_is_refused_with_what_to_do(
    front: ScriptedFront, programs: Path, capsys: Capture
) -> None:
    with running_munged() as other:
        ask_munged(programs, other)
        code = main(["status"])

    assert code == NotAllowedError.exit_code
    assert "the same MUNGE key" in capsys.readouterr().err
    assert front.asked == []


def test_credential_that_was_used_before_is_told(
    front: ScriptedFront, programs: Path, munged: Munged, capsys: Capture
) -> None:
    stored = munged.encode(hash_request("GET", "/v1/status", "", b""))
    script(programs, "munge", f"echo {stored}")

    assert main(["status"]) == 0
    assert main(["status"]) == NotAllowedError.exit_code
    assert "it was used before" in capsys.readouterr().err


def test_credential_that_has_expired_is_told(
    front: ScriptedFront, programs: Path, munged: Munged, capsys: Capture
) -> None:
    stored = munged.encode(hash_request("GET", "/v1/status", "", b""), "--ttl", "1")
    script(programs, "munge", f"echo {stored}")

    def is_over() -> bool:
        code = main(["status"])
        assert code in (0, NotAllowedError.exit_code)
        return "expired" in capsys.readouterr().err

    wait_until(is_over)


def test_munged_that_does_not_run_is_told_with_a_remedy(
    front: ScriptedFront, programs: Path, tmp_path: Path, capsys: Capture
) -> None:
    real = shutil.which("munge", path="/usr/bin:/usr/local/bin")
    script(programs, "munge", f'exec {real} --socket {tmp_path}/none "$@"')

    assert main(["status"]) == UnreachableError.exit_code
    assert "systemctl status munge" in capsys.readouterr().err
    assert front.asked == []


def test_missing_program_is_told_with_a_remedy(
    front: ScriptedFront, programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (programs / "munge").unlink()
    monkeypatch.setenv("PATH", str(programs))

    assert main(["status"]) == MissingPartError.exit_code
    assert "have MUNGE installed" in capsys.readouterr().err


def test_program_that_hangs_is_ended_with_all_it_started(programs: Path, tmp_path: Path) -> None:
    script(programs, "munge", f"sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    began_s = time.perf_counter()

    with pytest.raises(UnreachableError, match="no answer within 1 s"):
        module.authorisation("GET", "/v1/status", "", b"", timeout_s=1)
    assert time.perf_counter() - began_s < 10
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "text",
    ["exit 0", "echo hello", "yes MUNGE: | head -c 10000000", "yes MUNGE:", r"printf 'MUNGE:a\rX-Evil: 1:'"],
)
def test_what_is_no_credential_is_not_sent(programs: Path, text: str) -> None:
    script(programs, "munge", text)

    with pytest.raises(UnreachableError, match="nobody vouches for you"):
        module.authorisation("GET", "/v1/status", "", b"", timeout_s=10)


def test_remark_before_the_credential_is_left_out(programs: Path, munged: Munged) -> None:
    script(programs, "munge", "echo 'munge: Warning: so it is' >&2; echo MUNGE:AAAA:")

    assert module.authorisation("GET", "/", "", b"", timeout_s=10) == "MUNGE MUNGE:AAAA:"


def test_service_that_does_not_listen_is_told_with_a_remedy(programs: Path) -> None:
    clock = Clock()

    with pytest.raises(UnreachableError, match=r"nobody listens on 127.0.0.1:\d+.*tcp\.listen"):
        Transport(server_door(f"127.0.0.1:{free_port()}"), clock).get("/v1/status")
    assert 0 < sum(clock.slept) <= 5


def test_name_that_no_machine_has_is_told() -> None:
    with pytest.raises(UnreachableError, match="no machine is known by that name"):
        Transport(server_door("no-such-machine.invalid:7707"), Clock()).get("/v1/status")


def test_service_without_munge_sends_to_its_own_machine(
    programs: Path, munged: Munged, tmp_path: Path
) -> None:
    ask_munged(programs, munged)
    folder = Path(tempfile.mkdtemp(prefix="or-"))
    server = Server(folder)
    try:
        with pytest.raises(NotAllowedError, match="use the unix socket"):
            Transport(server_door(f"127.0.0.1:{server.port}"), Clock()).get("/v1/status")
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("head:7707", "head", 7707),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    assert server_door(address) == ServerDoor(host=host, port=port, name=address)


@pytest.mark.parametrize(
    "address",
    [
        "head", "head:", ":7707", "head:0", "head:65536", "head:x", "head:٣", "::1:7707", "[head]:7707",
        "http://head:7707", "a b:1", "head\r\nX:1", f"{'a' * 254}:1", "[]:1", "user@head:1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_an_input_error(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        server_door(address)


@pytest.mark.parametrize(
    ("path", "address", "environment", "name"),
    [
        (None, None, {}, "/run/outrider/outriderd.sock"),
        (None, None, {"OUTRIDER_SOCKET": "a"}, "a"),
        (None, None, {"OUTRIDER_SERVER": "h:1"}, "h:1"),
        (None, None, {"OUTRIDER_SERVER": "", "OUTRIDER_SOCKET": "a"}, "a"),
        ("b", None, {"OUTRIDER_SERVER": "h:1"}, "b"),
        ("b", None, {"OUTRIDER_SERVER": "h:1", "OUTRIDER_SOCKET": "a"}, "b"),
        (None, "g:2", {"OUTRIDER_SERVER": "h:1", "OUTRIDER_SOCKET": "a"}, "g:2"),
    ],
)
def test_option_counts_more_than_a_variable(
    path: str | None, address: str | None, environment: dict[str, str], name: str
) -> None:
    found = door_of(path, address, environment)

    assert found.name == name
    assert ("--server" in found.way) is (":" in name)


@pytest.mark.parametrize(
    ("path", "address", "environment", "named"),
    [
        ("a", "h:1", {}, "--socket and --server"),
        (
            None,
            None,
            {"OUTRIDER_SOCKET": "a", "OUTRIDER_SERVER": "h:1"},
            "OUTRIDER_SOCKET and OUTRIDER_SERVER",
        ),
    ],
)
def test_two_places_at_once_are_an_error(
    path: str | None, address: str | None, environment: dict[str, str], named: str
) -> None:
    with pytest.raises(InputError, match=f"{named} both say"):
        door_of(path, address, environment)


@contextmanager
def outriderd(folder: Path, munged: Munged) -> Iterator[tuple[int, Callable[[], None]]]:
    """The program itself, listening on a port; and what kills and starts it again."""
    programs = folder / "bin"
    programs.mkdir()
    ask_munged(programs, munged, "unmunge")
    port = free_port()
    (folder / "o.yaml").write_text(
        f"version: 1\nstate: {folder}/s\nsocket: {folder}/o.sock\n"
        f"tcp: {{listen: '127.0.0.1:{port}', munge: true}}\n"
        "backend: {kind: embedded, nodes: 'n[1-2]', cpus: 1, memory: 1GiB, pool: 10MB}\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    environment |= {"PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "outrider.service", "--config", f"{folder}/o.yaml", "--init-if-empty"]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with (folder / "log").open("ab") as log:
            running.append(subprocess.Popen(command, stderr=log, cwd=folder, env=environment))

    def restart() -> None:
        running[-1].send_signal(signal.SIGKILL)
        running[-1].wait(PATIENCE_S)
        start()

    start()
    try:
        yield port, restart
    finally:
        running[-1].send_signal(signal.SIGTERM)
        try:
            running[-1].wait(PATIENCE_S)
        finally:
            running[-1].kill()


def test_real_service_answers_over_the_network_and_over_its_own_restart(
    munged: Munged, programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    ask_munged(programs, munged)
    monkeypatch.delenv("OUTRIDER_SOCKET", raising=False)
    folder = Path(tempfile.mkdtemp(prefix="or-"))
    try:
        with outriderd(folder, munged) as (port, restart):
            # One client, as `watch` is: it has heard of the service, so it waits for it to come back.
            asking = Transport(server_door(f"127.0.0.1:{port}"), SystemClock(), timeout_s=PATIENCE_S)
            wait_until(lambda: main(["status", "--server", f"127.0.0.1:{port}"]) == 0)
            first = asking.get("/v1/status")
            restart()
            second = asking.get("/v1/status")
    finally:
        shutil.rmtree(folder)

    assert "embedded" in capsys.readouterr().out
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert int(str(second["started_s"])) >= int(str(first["started_s"]))
