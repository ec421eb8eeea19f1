"""Jobs of the embedded batch system in real guests: suspended, resumed, and resumed at another node."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cachemgr.machines.keeper import PROGRAM
from outrider.core.model import Resources
from outrider.rms.base import JobState, Refused, RmsJob, RmsNode, Submission
from outrider.rms.embedded import EmbeddedSystem, MachineHost, ProcessLauncher
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.hooks import PoolHooks
from outrider.service.nodes.moving import MoveFields, move_machine
from outrider.service.nodes.promised import Promised
from outrider.service.nodes.virtual import Shape
from outrider.service.ports import Fetch, TellNode
from testbed.linux_guest import APPEND, linux_guest
from tests.daemons.node.daemons import CLOCK, MIB
from tests.waiting import awaited

CAPACITY = Resources.of(cpus=1, memory_mib=512)
CONTENT = b"\0" * MIB
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
LINES = f"image: https://images.example.org/disk.raw\ndigest: {DIGEST}\nrun: vm\nboot: debian\n"
COUNTING = "echo began; i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 1; done; echo $i >counted"
BOOT_S = 240
# No machine runs with the rights of root: with root's, jobs here are those of a user who has nothing.
USER = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def eventually(what: str, is_so: Callable[[], object], evidence: Callable[[], object] = str) -> None:
    """A guest that is translated boots for a minute."""
    assert awaited(is_so, BOOT_S), f"never: {what}: {evidence()}"


class Quiet:
    def _drop(self, event: str, **fields: object) -> None:
        pass

    debug = info = warning = error = _drop


@dataclass
class Site:
    """Two virtual nodes that have the image, and the batch system of both."""

    folder: Path
    nodes: EmbeddedNodes
    start: Callable[[], EmbeddedSystem]
    system: EmbeddedSystem

    def submit(self, text: str, more: str = "", memory_mib: int = 96, uid: int = USER.pw_uid) -> str:
        return self.system.submit(
            Submission(
                user=USER.pw_name,
                uid=uid,
                argv=("/bin/sh", "-c", text),
                nodes_wanted=1,
                resources=Resources.of(cpus=1, memory_mib=memory_mib),
                limit_s=3600,
                metadata=LINES + more,
            )
        )

    def job(self, key: str) -> RmsJob | None:
        return next((job for job in self.system.look().jobs if job.key == key), None)

    def state(self, key: str) -> JobState:
        found = self.job(key)
        return JobState.ENDED if found is None else found.state

    def said(self, key: str) -> list[str]:
        path = self.folder / f"jobs/{key}.out"
        return path.read_text().split() if path.exists() else []

    def told(self, key: str) -> object:
        """What there is to see of a job that does not come on."""
        return self.said(key), self.job(key)

    def wait_until_said(self, key: str, word: str) -> None:
        eventually(f"job {key} says {word}", lambda: word in self.said(key), lambda: self.told(key))

    def wait_for(self, key: str, state: JobState) -> None:
        eventually(f"job {key} is {state.value}", lambda: self.state(key) is state)

    def suspend(self, key: str) -> None:
        job = self.job(key)
        assert job is not None
        assert job.start_s is not None
        self.system.save(key, job.start_s, "test", is_kept=True)
        self.wait_for(key, JobState.SUSPENDED)

    def restart(self) -> None:
        """The service ends and begins again; what runs goes on."""
        self.system.stop()
        self.system = self.start()

    def left(self) -> list[str]:
        """What there is of machines."""
        return sorted(path.name for path in (self.folder / "machines").glob("outrider-*/job-*"))


@pytest.fixture
def site() -> Iterator[Site]:
    if not os.path.exists(PROGRAM) and "CI" not in os.environ:
        pytest.skip(f"needs {PROGRAM}: make tools")
    folder = Path(tempfile.mkdtemp(prefix="embedded-machines-"))
    folder.chmod(0o755)
    boot, guest = folder / "boot/debian", linux_guest()
    boot.mkdir(parents=True)
    shutil.copy(guest.kernel, boot / "kernel")
    shutil.copy(guest.initrd, boot / "initrd")
    (boot / "append").write_text(APPEND)
    (folder / "image").write_bytes(CONTENT)
    nodes = EmbeddedNodes(
        folder / "nodes", ["n1", "n2"], Shape(limit_bytes=64 * MIB), clock=CLOCK, log=Quiet(), environment={}
    )
    nodes.start()
    promised = Promised()
    promised.learn_jobs(lambda job: DIGEST)
    hooks = PoolHooks(nodes.sockets, promised, clock=CLOCK, log=Quiet()).as_hooks()
    machines = MachineHost(folder=folder / "machines", boot=str(folder / "boot"))
    machines.prepare()

    def start() -> EmbeddedSystem:
        found = EmbeddedSystem(
            [RmsNode(name=name, capacity=CAPACITY) for name in ("n1", "n2")],
            folder / "journal",
            clock=CLOCK,
            launcher=ProcessLauncher(folder / "jobs", machines=machines),
            log=Quiet(),
            hooks=hooks,
        )
        found.start()
        return found

    for node in ("n1", "n2"):
        order = Fetch(
            digest=DIGEST, uri="the-image", size_bytes=len(CONTENT), sources=(f"file://{folder}/image",),
            owner="render-1", until_s=CLOCK.now_s() + 3600,
        )  # fmt: skip
        nodes.tell(TellNode(node=node, orders=(order,)))
        eventually(
            f"the image is on {node}",
            lambda node=node: nodes.tell(TellNode(node=node, wants_images=True)).images,  # type: ignore[misc]
        )
    made = Site(folder, nodes, start, start())
    yield made
    made.system.stop(ends_jobs=True)
    nodes.stop()
    shutil.rmtree(folder)


def test_guest_is_suspended_goes_on_at_another_node_and_counts_on(site: Site) -> None:
    key = site.submit(COUNTING)
    site.wait_until_said(key, "3")
    first = site.job(key)
    assert first is not None
    site.suspend(key)
    asleep, counted = site.job(key), site.said(key)
    (other,) = {"n1", "n2"} - set(first.nodes)
    fields = MoveFields(job=key, uid=USER.pw_uid, sources=first.nodes, targets=(other,), rate_bytes_per_s=MIB)
    move_machine(fields, site.nodes, site.system, 0)
    site.restart()
    site.system.resume(key)
    site.system.release(key, (other,))
    site.wait_for(key, JobState.RUNNING)
    moved = site.job(key)
    site.wait_for(key, JobState.ENDED)
    eventually("nothing is left of its machine", lambda: not site.left())

    assert asleep is not None
    assert (asleep.nodes, asleep.saved_on) == ((), first.nodes)
    assert counted[:4] == ["began", "1", "2", "3"]
    assert moved is not None
    assert moved.nodes == (other,)
    assert site.said(key) == ["began", *map(str, range(1, 41))]
    assert (site.folder / f"jobs/{key}.work/counted").read_text() == "40\n"


def test_suspended_machine_of_a_cancelled_job_is_removed(site: Site) -> None:
    key = site.submit(COUNTING)
    site.wait_until_said(key, "1")
    site.suspend(key)
    kept = site.left()
    site.system.cancel(key, "test")
    eventually("nothing is left of its machine", lambda: not site.left())

    assert kept == [f"job-{key}"]
    assert site.state(key) is JobState.ENDED


@pytest.mark.parametrize(
    ("more", "memory_mib", "words"),
    [
        ("scratch: 8MiB\n", 96, "there is no scratch disk"),
        ("lease: interactive\n", 96, "there are no interactive leases"),
        ("network-rate: 10MB\n", 96, "machines have no network"),
        ("data: https://data.example.org/genes.raw name=genes\n", 96, "there are no data images"),
        ("", 0, "ask for the machine's memory"),
        ("", 400, "can never start"),
    ],
)
def test_what_cannot_be_had_is_refused_at_submission(
    site: Site, more: str, memory_mib: int, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        site.submit(COUNTING, more, memory_mib)


def test_machine_of_root_is_refused(site: Site) -> None:
    with pytest.raises(Refused, match="not as root"):
        site.submit(COUNTING, uid=0)
