"""A daemon as a process: starting, being watched, being told to stop, being killed, starting again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, CacheError, InUse, NoDaemon
from cachemgr.daemon import timer
from cachemgr.daemon.network.listener import ListeningPlace
from cachemgr.daemon.notify import watchdog_s
from cachemgr.network.client import DaemonClient
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.layout import PoolLayout
from cachemgr.pool.pool import ImagePool
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    Outside,
    ScriptedCarrier,
    as_user,
    eventually,
    make_pool,
    needs_root,
    pythons,
    sha256,
)
from tests.repository import ROOT

Start = Callable[..., Outside]
CONTENT = bytes(range(256)) * (8 * MIB // 256)


class Pausing(BaseHTTPRequestHandler):
    """Sends the image, with ranges, but nothing beyond the 5th MiB before it may."""

    gate = threading.Event()
    asked: list[str] = []  # noqa: RUF012 - emptied by the fixture

    def do_HEAD(self) -> None:
        self.head(0)

    def do_GET(self) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        self.asked.append(str(begin))
        self.head(begin)
        try:
            while begin < len(CONTENT):
                if begin >= 5 * MIB:
                    self.gate.wait(20)
                self.wfile.write(CONTENT[begin : begin + MIB // 4])
                begin += MIB // 4
        except OSError:
            self.close_connection = True

    def head(self, begin: int) -> None:
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def uri() -> Iterator[str]:
    Pausing.gate.clear()
    Pausing.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Pausing) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/image"
        Pausing.gate.set()
        server.shutdown()
        thread.join()


def begun(daemon: Outside, uri: str) -> str:
    """Add the image, and wait until most of it has arrived."""
    pin = {"owner": "o", "until_s": CLOCK.now_s() + 600}
    name = str(daemon.ask("add", uri=uri, digest=sha256(CONTENT), pin=pin)["transfer"])

    def arrived() -> bool:
        return any(each["bytes"] >= 4 * MIB for each in daemon.ask("transfers")["transfers"])

    eventually("most has arrived", arrived, daemon.log)
    return name


@pytest.mark.parametrize("python", pythons())
def test_daemon_works_under_every_python_of_a_node(outside: Start, folder: Path, python: str) -> None:
    daemon = outside(python=python)
    (folder / "image").write_bytes(CONTENT)
    daemon.ask("add", uri=str(folder / "image"), wait=False)
    eventually("it is there", lambda: daemon.ask("ls")["images"], daemon.log)
    made = daemon.ask("instance", name=sha256(CONTENT), owner="o", until_s=CLOCK.now_s() + 60)

    assert Path(made["path"]).read_bytes() == CONTENT
    assert daemon.ask("release", owner="o")["removed"] == 1
    assert daemon.end() == 0
    assert "Traceback" not in daemon.log()


def test_terminated_daemon_notes_what_arrived_and_the_next_goes_on(outside: Start, uri: str) -> None:
    first = outside()
    begun(first, uri)
    status = first.end()
    gone = not os.path.exists(first.socket)
    second = outside()
    Pausing.gate.set()
    eventually("it is there", lambda: second.ask("ls")["images"], second.log)

    assert (status, gone) == (0, True)
    assert second.ask("find", name=sha256(CONTENT))["size_bytes"] == len(CONTENT)
    assert second.ask("show", name=sha256(CONTENT))["pin_list"][0]["owner"] == "o"
    assert int(Pausing.asked[-1]) >= 4 * MIB


def test_killed_daemon_is_replaced_and_goes_on_where_it_was(outside: Start, uri: str) -> None:
    first = outside(limit_bytes=400 * MIB)
    begun(first, uri)
    first.end(signal.SIGKILL)
    stale = os.path.exists(first.socket)
    Pausing.gate.set()
    second = outside(limit_bytes=400 * MIB)
    eventually("it is there", lambda: second.ask("ls")["images"], second.log)

    assert stale
    assert second.ask("ls")["arriving"] == []
    assert second.ask("check")["findings"] == []
    with open(second.ask("find", name=sha256(CONTENT))["path"], "rb") as file:
        assert file.read() == CONTENT


def test_daemon_of_a_service_user_serves_jobs_of_others(outside: Start, folder: Path) -> None:
    needs_root()
    python = "/usr/bin/python3"
    if not os.path.exists(python):
        pytest.skip("no Python is here that a service user is sure to be able to read")
    service = pwd.getpwnam("nobody")
    make_pool(folder / "pool")
    for path in (folder / "pool", *(folder / "pool").rglob("*")):
        os.chown(path, service.pw_uid, service.pw_gid)
    (folder / "image").write_bytes(CONTENT)
    daemon = outside(user="nobody", python=python)
    daemon.ask("add", uri=str(folder / "image"))
    eventually("it is there", lambda: daemon.ask("ls")["images"], daemon.log)
    made = daemon.ask("instance", name=sha256(CONTENT), owner="o", until_s=CLOCK.now_s() + 60, uid=2001)

    def write() -> int:
        with open(made["path"], "r+b") as file:
            return file.write(b"mine")

    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert f"Uid:\t{service.pw_uid}\t{service.pw_uid}\t" in status
    assert as_user(2001, write)["gives"] == 4
    assert "raises" in as_user(2002, write)
    assert daemon.ask("release", owner="o")["removed"] == 1
    assert daemon.end() == 0


def test_damage_and_an_odd_address_keep_no_daemon_from_serving(outside: Start, folder: Path) -> None:
    first = outside()
    pin = {"owner": "o", "until_s": CLOCK.now_s() + 600}
    first.ask("add", uri="odd", size_bytes=5, digest="0" * 64, sources=["http://127.0.0.1:9/x"], pin=pin)
    first.end()
    damaged = folder / "pool" / "ingest" / ("f" * 64)
    damaged.mkdir()
    (damaged / "image.json").write_text("torn")
    second = outside()

    assert second.ask("ping")["pid"] == second.process.pid
    assert "Traceback" not in second.log()


@pytest.mark.parametrize("is_behind_link", [True, False])
def test_second_daemon_of_one_pool_is_refused_whatever_path_leads_there(
    outside: Start, is_behind_link: bool
) -> None:
    first = outside()
    pool = first.folder / "pool"
    if is_behind_link:
        (first.folder / "link").symlink_to(pool)
        pool = first.folder / "link"
    second = subprocess.run(
        [sys.executable, "-m", "cachemgr.daemon", "--config", "/dev/null"],
        env={
            "PYTHONPATH": str(ROOT),
            "OUTRIDER_CACHEMGR_POOL": str(pool),
            "OUTRIDER_CACHEMGR_SOCKET": str(first.folder / "t"),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert second.returncode == InUse.exit_code
    assert f"another daemon serves the pool {first.folder}/pool" in second.stderr
    assert first.ask("ping")["pid"] == first.process.pid


@pytest.mark.parametrize("name", ["s", "s.new"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_socket_is_not_replaced_by_one(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "precious").write_text("of somebody")
    path = tmp_path / name
    if kind == "link":
        path.symlink_to(tmp_path / "precious")
    else:
        path.write_text("of somebody")
    place = ListeningPlace(str(tmp_path / "s"))
    with pytest.raises(BadRequest, match=f"{path} is there and is not a socket: move it away"):
        place.listen()
    place.leave()

    assert path.read_text() == (tmp_path / "precious").read_text() == "of somebody"


def test_socket_of_a_successor_is_left_alone(tmp_path: Path) -> None:
    place = ListeningPlace(str(tmp_path / "s"))
    with closing(place.listen()):
        (tmp_path / "s").rename(tmp_path / "own")
        (tmp_path / "s").write_text("of somebody")
        place.leave()

    assert (tmp_path / "s").read_text() == "of somebody"


def test_link_in_the_place_of_the_trash_empties_no_other_folder(folder: Path) -> None:
    make_pool(folder / "pool")
    (folder / "precious").mkdir()
    (folder / "precious/file").write_text("of somebody")
    (folder / "pool/trash").rmdir()
    (folder / "pool/trash").symlink_to(folder / "precious")
    (folder / "pool/lock").write_text("busy")
    root = str(folder / "pool")
    pool = ImagePool(RealDisk(), root, CLOCK, SqliteIndex(PoolLayout(root).index))
    with closing(pool), pytest.raises(CacheError), pool.changing("looking"):
        """What an earlier process has left in the trash is deleted now."""

    assert (folder / "precious/file").read_text() == "of somebody"


def test_pool_behind_a_link_that_is_turned_elsewhere_stays_the_same_for_a_daemon(
    folder: Path, outside: Start
) -> None:
    (folder / "link").symlink_to(make_pool(folder / "real"))
    daemon = outside(pool=str(folder / "link"))
    (folder / "link").unlink()
    (folder / "link").symlink_to(make_pool(folder / "other"))

    assert daemon.ask("ping")["pool"] == f"{folder}/real"
    assert daemon.ask("check")["findings"] == []


def test_second_daemon_refuses_while_the_first_lives(outside: Start) -> None:
    first = outside()
    second = subprocess.run(
        [sys.executable, "-m", "cachemgr.daemon", "--config", str(first.path)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert second.returncode == InUse.exit_code
    assert "another daemon listens" in second.stderr
    assert first.ask("ping")["pid"] == first.process.pid


def test_clients_under_way_get_their_answer_when_the_daemon_stops(outside: Start, uri: str) -> None:
    daemon = outside()
    told: list[str] = []

    def wait() -> None:
        with DaemonClient(daemon.socket) as client:
            try:
                client.ask("add", {"uri": uri}, on_progress=lambda progress: told.append("progress"))
            except Exception as error:  # noqa: BLE001 - compared below
                told.append(type(error).__name__)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually("it waits", lambda: told)
    began_s = CLOCK.monotonic_s()
    status = daemon.end()
    took_s = CLOCK.monotonic_s() - began_s
    thread.join()

    assert status == 0
    assert told[-1] == "Cancelled"
    assert took_s < 5


def test_supervisor_hears_of_readiness_life_and_end(outside: Start, folder: Path) -> None:
    heard: list[str] = []
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as line:
        line.bind(str(folder / "notify"))
        line.settimeout(20)
        daemon = outside(environment={"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"})
        while heard.count("WATCHDOG=1") < 2:
            heard.append(line.recv(100).decode())
        daemon.process.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in heard:
            heard.append(line.recv(100).decode())

    assert heard[0] == "READY=1"
    assert heard[-1] == "STOPPING=1"
    assert daemon.process.wait(60) == 0


def test_watchdog_is_told_twice_in_its_time() -> None:
    own = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}

    assert watchdog_s(own, 0) == 15
    assert watchdog_s({**own, "WATCHDOG_PID": "1"}, 8) == 4
    assert watchdog_s({}, 0) is None


def test_socket_handed_over_by_systemd_is_served(folder: Path, outside: Start) -> None:
    daemon = outside()
    daemon.end()
    path = str(folder / "handed")
    program = (
        "import os, sys\nos.dup2(int(sys.argv.pop(1)), 3)\nos.environ['LISTEN_PID'] = str(os.getpid())\n"
        "from cachemgr.daemon.__main__ import main\nraise SystemExit(main(sys.argv[1:]))"
    )
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(path)
        listener.listen(4)
        number = str(listener.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", program, number, "--config", str(daemon.path)],
            env={"PYTHONPATH": str(ROOT), "LISTEN_FDS": "1"},
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
        )
        with DaemonClient(path) as client:
            pid = client.ask("ping")["pid"]
        process.terminate()

        assert pid == process.pid
        assert process.wait(60) == 0
        # Whoever comes now waits there for the next daemon.
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as waiting:
            waiting.connect(path)


def test_daemon_serves_although_what_was_arriving_cannot_be_read(
    inside: Callable[..., Inside], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold("http://x/a")
    carrier.contents = {uri: uri[-1:].encode() * MIB for uri in ("http://x/a", "http://x/b")}
    carrier.hold("http://x/b")
    for uri in carrier.contents:
        daemon.ask("add", uri=uri, pin={"owner": "o", "until_s": CLOCK.now_s() + 600})
    eventually("both arrive", lambda: len(carrier.started_at) == len(carrier.contents), daemon.log)
    daemon.stop()
    gate.set()
    carrier.gates.clear()
    broken = min((daemon.folder / "pool" / "ingest").iterdir())
    shutil.rmtree(broken / "pins")
    (broken / "pins").write_text("not a folder")

    again = inside()
    eventually("the other has arrived", lambda: again.ask("ls")["images"], again.log)
    again.settle()

    assert len(again.ask("ls")["images"]) == 1


def test_what_arrives_says_for_whom_it_is_pinned(
    inside: Callable[..., Inside], carrier: ScriptedCarrier
) -> None:
    daemon, gate = inside(), carrier.hold("http://x/a")
    carrier.contents = {"http://x/a": b"a" * MIB}
    daemon.ask("add", uri="http://x/a", pin={"owner": "o", "until_s": CLOCK.now_s() + 600})
    before = daemon.ask("ls")["arriving"][0]["owners"]
    daemon.ask("unpin", name="http://x/a", owner="o")
    after = daemon.ask("ls")["arriving"][0]["owners"]
    gate.set()

    assert (before, after) == (["o"], [])


def test_hit_is_served_before_the_sweeping_up_has_ended(
    inside: Callable[..., Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    slow = timer.TimerTask("images", lambda node: going_on.wait(20) and None)
    monkeypatch.setattr(timer, "TASKS", (slow, timer.TimerTask("ingests", lambda node: None)))
    daemon = inside()
    found = daemon.ask("ping")
    going_on.set()

    assert found["is_index_ready"] is False
    with pytest.raises(NoDaemon):
        DaemonClient(daemon.socket + "x")


def test_path_too_long_for_a_socket_is_refused_with_its_limit(folder: Path) -> None:
    with pytest.raises(Exception, match="too long"):
        ListeningPlace(str(folder / ("s" * 120)))


def test_daemon_has_as_many_open_files_as_the_system_allows(outside: Callable[..., Outside]) -> None:
    daemon = outside(most_open_files=256)
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    line = next(each for each in limits.splitlines() if each.startswith("Max open files"))

    assert int(line.split()[3]) == min(int(line.split()[4]), 65_536)
