"""Machines that go alive to another virtual node: their room, their images, and who is told what."""

from __future__ import annotations

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, Landing, RmsJob, RmsNode, Submission, Unavailable
from outrider.rms.embedded.landing import MOST_S, LandingMachines
from outrider.rms.twin import Twin
from tests.contract.twin_harness import SetClock


class Machines:
    """Says of each machine what it is told to say."""

    def __init__(self) -> None:
        self.word = "goes"
        self.asked: list[tuple[str, str]] = []

    def change(self, job: str, uid: int, stamp: str, image: str) -> str:
        self.asked.append((stamp, image))
        return self.word


class Site:
    """Two nodes of one processor, and a job of an hour on the first."""

    def __init__(self) -> None:
        self.clock = SetClock()
        nodes = [RmsNode(name=name, capacity=Resources.of(cpus=1)) for name in ("n1", "n2")]
        self.twin = Twin(nodes, clock=self.clock)
        self.machines = Machines()
        self.image: str | None = "/n2/image"
        self.cleared: list[tuple[str, str]] = []
        self.kept: list[tuple[str, ...]] = []
        self.landing = LandingMachines(self.twin.world, self.machines, self, self.keep)  # type: ignore[arg-type]
        self.job = self.submitted()

    def prepare(self, job: RmsJob, node: str) -> str | None:
        return self.image

    def clear(self, job: RmsJob, node: str) -> None:
        self.cleared.append((job.key, node))

    def keep(self) -> None:
        self.kept.append(self.twin.world.jobs[self.job].lands_on)

    def submitted(self) -> str:
        key = self.twin.submit(
            Submission(
                user="ada",
                uid=1,
                argv=("sleep", "3600"),
                nodes_wanted=1,
                resources=Resources.of(cpus=1),
                limit_s=3600,
                machine="run=vm,memory=64",
            )
        )
        self.passed(2)
        return key

    def passed(self, seconds: int) -> None:
        self.clock.sleep(seconds)
        self.twin.look()

    def land(self, *, begins: bool = True) -> bool:
        start_s = self.twin.world.jobs[self.job].start_s
        assert start_s is not None
        wanted = Landing(
            job=self.job, start_s=start_s, node="n2", metadata="", rate_bytes_per_s=1, begins=begins
        )
        return self.landing.land(wanted)


def test_room_is_kept_and_written_down_before_the_machine_is_told() -> None:
    site = Site()
    with pytest.raises(Unavailable, match="on its way to n2"):
        site.land()
    late = site.submitted()

    assert site.kept == [("n2",)]
    assert site.twin.world.jobs[late].state is JobState.PENDING
    assert site.machines.asked[0][1] == "/n2/image"


def test_landed_machine_has_its_new_node_alone() -> None:
    site = Site()
    with pytest.raises(Unavailable):
        site.land()
    # After a restart nobody may know the image any more.
    site.image, site.machines.word = None, "changed"
    has_landed = site.land(begins=False)
    late = site.submitted()

    assert has_landed
    assert site.twin.world.jobs[site.job].nodes == ("n2",)
    assert site.cleared == [(site.job, "n1")]
    assert site.twin.world.jobs[late].nodes == ("n1",)
    assert len({stamp for stamp, _ in site.machines.asked}) == 1


@pytest.mark.parametrize("word", ["stays since its disk is full", "goes"])
def test_machine_that_does_not_come_leaves_its_room(word: str) -> None:
    site = Site()
    with pytest.raises(Unavailable):
        site.land()
    site.machines.word = word
    site.passed(MOST_S + 1 if word == "goes" else 1)

    assert not site.land()
    assert site.cleared == [(site.job, "n2")]
    assert site.twin.world.jobs[site.job].nodes == ("n1",)
    assert site.twin.world.jobs[site.job].lands_on == ()


@pytest.mark.parametrize("lack", ["room", "image", "wish"])
def test_machine_is_not_told_to_go_where_it_cannot_be(lack: str) -> None:
    site = Site()
    if lack == "room":
        site.submitted()
    if lack == "image":
        site.image = None

    assert not site.land(begins=lack != "wish")
    assert site.machines.asked == []
    assert site.kept == []
