"""Virtual nodes and the embedded batch system together: from a file to a job that reads its image."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.network.client import DaemonClient
from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsJob, RmsNode, Submission
from outrider.rms.embedded import EmbeddedSystem, ProcessLauncher
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.hooks import PoolHooks
from outrider.service.nodes.promised import Promised
from outrider.service.nodes.virtual import Shape
from outrider.service.ports import Fetch, Relay, TellNode
from tests.daemons.node.daemons import CLOCK, MIB, eventually

CAPACITY = Resources.of(cpus=1)
CONTENT = b"what the job reads\n" * 1_000
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Quiet:
    def _drop(self, event: str, **fields: object) -> None:
        pass

    debug = info = warning = error = _drop


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="whole-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def nodes(folder: Path) -> Iterator[EmbeddedNodes]:
    found = EmbeddedNodes(
        folder / "nodes", ["n1", "n2"], Shape(limit_bytes=64 * MIB), clock=CLOCK, log=Quiet(), environment={}
    )
    found.start()
    yield found
    found.stop()


@pytest.fixture
def launcher(folder: Path) -> ProcessLauncher:
    return ProcessLauncher(folder / "jobs")


@pytest.fixture
def system(folder: Path, nodes: EmbeddedNodes, launcher: ProcessLauncher) -> Iterator[EmbeddedSystem]:
    promised = Promised()
    promised.learn_jobs(lambda job: DIGEST)
    hooks = PoolHooks(nodes.sockets, promised, clock=CLOCK, log=Quiet())
    found = EmbeddedSystem(
        [RmsNode(name=name, capacity=CAPACITY) for name in ("n1", "n2")],
        folder / "journal",
        clock=CLOCK,
        launcher=launcher,
        log=Quiet(),
        hooks=hooks.as_hooks(),
    )
    found.start()
    yield found
    found.stop(ends_jobs=True)


def job_of(system: EmbeddedSystem, key: str) -> RmsJob | None:
    return next((job for job in system.look().jobs if job.key == key), None)


def submit(system: EmbeddedSystem, text: str) -> str:
    return system.submit(
        Submission(
            user="root",
            uid=os.geteuid(),
            argv=("/bin/sh", "-c", text),
            nodes_wanted=2,
            resources=CAPACITY,
            limit_s=60,
            metadata=DIGEST,
        )
    )


def bring(nodes: EmbeddedNodes, node: str, source: str | Relay) -> None:
    """The image is on that node."""
    order = Fetch(
        digest=DIGEST,
        uri="the-image",
        size_bytes=len(CONTENT),
        sources=(source,),
        owner="render-1",
        until_s=CLOCK.now_s() + 600,
    )
    nodes.tell(TellNode(node=node, orders=(order,)))
    eventually(f"the image is on {node}", lambda: nodes.tell(TellNode(node=node, wants_images=True)).images)


def instances(nodes: EmbeddedNodes) -> list[object]:
    found: list[object] = []
    for path in nodes.sockets.values():
        with DaemonClient(path) as client:
            found += client.ask("instances")["instances"]
    return found


def test_job_waits_for_its_image_then_reads_it_and_leaves_nothing(
    folder: Path, nodes: EmbeddedNodes, system: EmbeddedSystem, launcher: ProcessLauncher
) -> None:
    image = folder / "image"
    image.write_bytes(CONTENT)
    gate = folder / "gate"
    os.mkfifo(gate)
    key = submit(system, f'cat "$OUTRIDER_IMAGE"; read line < {gate}; echo more >> "$OUTRIDER_IMAGE"')
    eventually("it waits", lambda: (job := job_of(system, key)) is not None and job.state is JobState.HELD)
    shown = system.outside.shown(key)
    bring(nodes, "n1", str(image))
    bring(nodes, "n2", Relay(node="n1", digest=DIGEST))
    system.release(key)
    eventually("it has read", lambda: launcher.output_of(key).exists() and _size(launcher, key) > 0)
    during = len(instances(nodes))
    gate.write_text("go\n")
    eventually("it has ended", lambda: job_of(system, key) is None)

    assert "is not in the pool" in shown
    assert during == 2
    assert launcher.output_of(key).read_bytes() == CONTENT
    assert instances(nodes) == []
    with DaemonClient(nodes.sockets["n1"]) as client:
        kept = Path(client.ask("find", {"name": DIGEST})["path"])
    assert kept.read_bytes() == CONTENT


def _size(launcher: ProcessLauncher, key: str) -> int:
    return launcher.output_of(key).stat().st_size


def test_pool_that_is_away_keeps_a_job_waiting_and_says_why(
    nodes: EmbeddedNodes, system: EmbeddedSystem
) -> None:
    nodes.stop()
    key = submit(system, "true")
    eventually("it waits", lambda: (job := job_of(system, key)) is not None and job.state is JobState.HELD)

    assert "no daemon answers" in system.outside.shown(key)
