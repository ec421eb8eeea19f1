"""Virtual nodes: real daemons in folders, which live and die with the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.network.client import DaemonClient
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.virtual import EmbeddedError, Shape
from outrider.service.ports import Fetch, NodeReport, Relay, TellNode
from tests.daemons.node.daemons import MIB, eventually, sha256
from tests.repository import ROOT

CLOCK = SystemClock()
CONTENT = b"0123456789abcdef" * (2 * MIB // 16)
DIGEST = f"sha256:{sha256(CONTENT)}"
SHAPE = Shape(limit_bytes=64 * MIB)


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _add(self, event: str, **fields: object) -> None:
        self.lines.append(f"{event} {fields}")

    debug = info = warning = error = _add

    def text(self) -> str:
        return "\n".join(self.lines)


Start = Callable[..., EmbeddedNodes]


@pytest.fixture
def log() -> Lines:
    return Lines()


@pytest.fixture
def start(folder: Path, log: Lines) -> Iterator[Start]:
    started: list[EmbeddedNodes] = []

    def begin(*names: str, shape: Shape = SHAPE) -> EmbeddedNodes:
        found = EmbeddedNodes(folder / "e", names, shape, clock=CLOCK, log=log, environment={})
        started.append(found)
        found.start()
        return found

    yield begin
    for each in started:
        each.stop()


def report(nodes: EmbeddedNodes, name: str, *orders: Any) -> NodeReport:
    return nodes.tell(TellNode(node=name, orders=orders, wants_images=True))


def image_in(folder: Path) -> Path:
    path = folder / "image"
    path.write_bytes(CONTENT)
    return path


def fetch(*sources: str | Relay) -> Fetch:
    return Fetch(
        digest=DIGEST,
        uri="an-image",
        size_bytes=len(CONTENT),
        sources=sources,
        owner="render-17",
        until_s=CLOCK.now_s() + 3600,
    )


def is_running(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_image_goes_from_a_file_to_one_node_and_from_there_to_the_next(
    start: Start, folder: Path, log: Lines
) -> None:
    nodes = start("n1", "n2")
    path = image_in(folder)
    report(nodes, "n1", fetch(str(path)))
    eventually("it is on n1", lambda: report(nodes, "n1").images, log.text)
    path.unlink()
    report(nodes, "n2", fetch(Relay(node="n1", digest=DIGEST)))
    eventually("it is on n2", lambda: report(nodes, "n2").images, log.text)

    assert [each.digest for each in report(nodes, "n2").images or ()] == [DIGEST]
    assert report(nodes, "n2").limit_bytes == SHAPE.limit_bytes


def test_pool_is_adopted_by_the_next_service_with_its_content_and_the_same_port(
    start: Start, folder: Path, log: Lines
) -> None:
    nodes = start("n1")
    report(nodes, "n1", fetch(str(image_in(folder))))
    eventually("it is on n1", lambda: report(nodes, "n1").images, log.text)
    before = nodes.relay_of("n1")
    nodes.stop()
    again = start("n1", shape=Shape(limit_bytes=32 * MIB))
    found = report(again, "n1")

    assert [each.digest for each in found.images or ()] == [DIGEST]
    assert (found.limit_bytes, again.relay_of("n1")) == (32 * MIB, before)


def test_daemon_that_dies_is_started_again(start: Start, log: Lines) -> None:
    nodes = start("n1")
    pid = nodes.pids["n1"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        return nodes.pids["n1"] not in (None, pid) and "n1" in _answering(nodes)

    eventually("another one serves", is_back, log.text)
    assert any("node's daemon ended" in line for line in log.lines)


def _answering(nodes: EmbeddedNodes) -> list[str]:
    return [name for name, node in nodes._nodes.items() if node.answers()]


def test_daemon_that_dies_again_and_again_is_started_ever_more_slowly(folder: Path, log: Lines) -> None:
    class Clock(SystemClock):
        later_s = 0.0

        def monotonic_s(self) -> float:
            return super().monotonic_s() + self.later_s

    clock = Clock()
    nodes = EmbeddedNodes(folder / "e", ["n1"], SHAPE, clock=clock, log=log, environment={})
    nodes._prepare()
    node = nodes._nodes["n1"]
    node.prepare()
    (folder / "e" / "n1" / "pool" / "pool.json").write_text("no pool")
    nodes._begin(node)
    for _ in range(3):
        eventually("it has died", lambda: not node.is_alive(), log.text)
        nodes.look_after()
        clock.later_s += 1.5
        nodes.look_after()
    nodes.stop()
    pauses = [line for line in log.lines if "daemon ended" in line]

    assert [line.partition("again_in_s': ")[2].rstrip("}") for line in pauses] == ["0.25", "0.5", "1.0"]


def test_stopped_nodes_leave_no_process_and_no_socket(start: Start, folder: Path) -> None:
    nodes = start("n1", "n2")
    pids = [pid for pid in nodes.pids.values() if pid is not None]
    nodes.stop()

    assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)
    assert not list((folder / "e").glob("*/s"))


def test_node_that_does_not_end_is_killed_and_leaves_no_socket(start: Start, folder: Path) -> None:
    nodes = start("n1")
    pid = nodes.pids["n1"]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    nodes.stop(0.2)

    assert not is_running(pid)
    assert not list((folder / "e").glob("*/s"))


SERVICE = """
import os, sys
from pathlib import Path
from cachemgr.network.client import DaemonClient
from cachemgr.base.clock import SystemClock
from cachemgr.daemon.log import DaemonLog
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.virtual import Shape

nodes = EmbeddedNodes(
    Path(sys.argv[1]), ["n1"], Shape(limit_bytes=1 << 26),
    clock=SystemClock(), log=DaemonLog(sys.stderr), environment=os.environ,
)
nodes.start()
print(nodes.pids["n1"], flush=True)
sys.stdin.read()
"""


def test_killed_service_takes_its_nodes_along_and_the_next_one_can_start(
    start: Start, folder: Path, log: Lines
) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(folder / "e")],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        was_running = is_running(pid)
        service.kill()
    nodes = start("n1")

    assert was_running
    eventually("the orphan has ended", lambda: not is_running(pid))
    assert _answering(nodes) == ["n1"]


def test_folder_belongs_to_one_service_at_a_time(start: Start) -> None:
    start("n1")

    with pytest.raises(EmbeddedError, match="another service runs virtual nodes in"):
        start("n2")


def test_path_that_no_socket_can_have_is_refused_before_anything_is_made(folder: Path, log: Lines) -> None:
    deep = folder / ("x" * 100)

    with pytest.raises(EmbeddedError, match="choose a folder whose path is shorter by"):
        EmbeddedNodes(deep, ["n1"], SHAPE, clock=CLOCK, log=log, environment={})
    assert not deep.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-n", "lock", "a\nb", "n" * 64])
def test_names_that_would_be_other_paths_are_refused(folder: Path, log: Lines, name: str) -> None:
    with pytest.raises(EmbeddedError, match="cannot be the name of a virtual node"):
        EmbeddedNodes(folder, [name], SHAPE, clock=CLOCK, log=log, environment={})


def test_daemon_that_cannot_serve_is_told_with_its_own_words(folder: Path, log: Lines) -> None:
    (folder / "e" / "n1" / "pool").mkdir(parents=True)
    (folder / "e" / "n1" / "pool" / "stranger").touch()
    nodes = EmbeddedNodes(folder / "e", ["n1"], SHAPE, clock=CLOCK, log=log, environment={})

    with pytest.raises(EmbeddedError, match="is not empty"):
        nodes.start()


def test_key_of_the_relays_is_made_once_and_is_nobody_elses(start: Start, folder: Path) -> None:
    start("n1").stop()
    key = folder / "e" / "relay.key"
    before = key.read_bytes()
    start("n1")

    assert key.read_bytes() == before
    assert key.stat().st_mode & 0o777 == 0o600


def test_rates_of_the_shape_hold_on_the_node(start: Start) -> None:
    shape = Shape(limit_bytes=64 * MIB, rate_bytes_per_s=MIB, relay_rate_bytes_per_s=2 * MIB)
    nodes = start("n1", shape=shape)

    with DaemonClient(nodes.sockets["n1"]) as client:
        assert client.ask("limits") == {"rate_bytes_per_s": MIB, "relay_rate_bytes_per_s": 2 * MIB}
