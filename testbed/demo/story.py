"""What is shown, step by step. Each step is a command; Slurm and the service decide what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.errors import BrokenError, RefusedError
from testbed.demo import files
from testbed.demo.machine import CountingMachine
from testbed.demo.measured import ComparedJob, MeasuredStart, start_of, table
from testbed.demo.stage import NODES, RATE_BITS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cachemgr.base.clock import Clock
    from outrider.cli.demo.screen import DemoScreen
    from testbed.demo.stage import DemoCluster

INTRODUCTION = f"""A job's image takes time to reach its nodes, and a batch system counts that time as the
job's. Outrider has the image there before the job's clock starts. Below: a private Slurm on this machine,
with {NODES} nodes, a head and a server of images as hosts of their own, links of
{RATE_BITS_PER_S // 1_000_000} Mbit/s, and what a user types on the head."""
MOST_S = 90
LOOK_S = 0.2
_JOB = re.compile(r"^Submitted batch job (\d+)", re.MULTILINE)
_NAMED = re.compile(r"^(\S+) is reserved", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoTimes:
    """How large, when and how long. Starts are seconds after the command is typed."""

    image_bytes: Mapping[str, int]
    duration: str
    too_soon_in_s: int
    has_machine: bool
    """Whether a job in a virtual machine is shown, too."""
    reserved: tuple[tuple[str, int], ...]
    """The images of reservations, in the order in which they are asked for, and when they start."""


FULL = DemoTimes(
    image_bytes={"render": 60_000_000, "train": 90_000_000, "solve": 48_000_000, "guest": 1_000_000},
    duration="10s",
    too_soon_in_s=6,
    has_machine=True,
    reserved=(("train", 36), ("solve", 32)),
)
BRIEF = DemoTimes(
    image_bytes={"render": 16_000_000, "train": 24_000_000},
    duration="8s",
    too_soon_in_s=3,
    has_machine=False,
    reserved=(("train", 11),),
)


class ClusterDemo:
    """The demo from its first line to its last."""

    def __init__(self, stage: DemoCluster, screen: DemoScreen, clock: Clock, plot: DemoTimes) -> None:
        self._stage = stage
        self._screen = screen
        self._clock = clock
        self._plot = plot
        self._jobs: dict[str, str] = {}
        self._usual: dict[str, MeasuredStart] = {}
        self._ours: dict[str, MeasuredStart] = {}
        self._machine = CountingMachine(stage, screen, self._await)

    def tell(self) -> None:
        self._open()
        self._screen.part("As usual: each node of a job fetches the image first")
        self._show("usual.sh", files.USUAL)
        self._fetch("render", "render")
        self._screen.say(
            f"\nSlurm has counted {_seconds(self._usual['render'])} s of fetching as the job's own time."
        )
        self._cold()
        self._warm()
        if self._plot.has_machine:
            self._machine.begin(lambda: self._submitted("sbatch count.sh"))
        self._refused()
        names = self._reserve()
        self._arrive()
        self._run_in(names)
        self._receipts(names)
        self._screen.part("The same jobs once more as usual, for comparison")
        for row, image in (("render, again", "render"), *((f"{each}, reserved", each) for each in names)):
            self._fetch(row, image)
        self._machine.finish()
        self._screen.part("What it was good for")
        rows = [ComparedJob(name=each, usual=self._usual[each], ours=self._ours[each]) for each in self._ours]
        self._screen.print(f"\n{table(rows)}")

    def _open(self) -> None:
        self._screen.part("A cluster: Slurm, and Outrider with an empty pool for images on each node")
        self._screen.run("sinfo")
        self._screen.run("outrider nodes")

    def _fetch(self, row: str, image: str) -> None:
        """A job in the usual way."""
        before_bytes = self._stage.sent_bytes(image)
        job = self._submitted(f"sbatch usual.sh {image}")
        self._stage.wait_over(job)
        self._screen.run(f"cat slurm-{job}.out")
        self._usual[row] = self._start(job, image, before_bytes)

    def _cold(self) -> None:
        """A best-effort job whose image is nowhere yet."""
        self._screen.part("With Outrider: the script names its image, and Slurm starts it when that is there")
        self._show("render.sh", files.best_effort("render"))
        before_bytes = self._stage.sent_bytes("render")
        job = self._submitted("sbatch render.sh")
        self._await(f"the image of job {job} to arrive", lambda: self._stage.is_underway(job))
        if self._stage.state_of(job) == "PENDING":
            self._screen.run("squeue")
            self._screen.run(f"outrider show {job}", expected=None)
        self._finish(job)
        self._ours["render"] = self._start(job, "render", before_bytes)
        self._screen.say(
            f"\nOf its own time the job has waited {_seconds(self._ours['render'])} s for its image."
        )

    def _warm(self) -> None:
        self._screen.part("Again: the job is steered to the nodes that have the image")
        before_bytes = self._stage.sent_bytes("render")
        job = self._submitted("sbatch render.sh")
        self._finish(job)
        self._screen.say("\nWhat a node did for it: a disk of the job's own, copy-on-write over the image.")
        self._instances(job)
        self._ours["render, again"] = self._start(job, "render", before_bytes)

    def _refused(self) -> None:
        plot = self._plot
        self._screen.part("A reservation that cannot have its image in time is refused, with what would work")
        name = plot.reserved[0][0]
        self._show(f"{name}.yaml", files.workspace(name, plot.duration))
        for other, _ in plot.reserved[1:]:
            self._stage.write(f"{other}.yaml", files.workspace(other, plot.duration))
        self._stage.write("job.sh", files.in_reservation())
        command = f"outrider reserve {name}.yaml --start now+{plot.too_soon_in_s}s"
        self._screen.run(command, expected=RefusedError.exit_code)

    def _reserve(self) -> dict[str, str]:
        """Reservations by their images, each with a job in it."""
        self._screen.part("Later is fine: accepted is a promise, with a plan for the image")
        names = {}
        for image, in_s in self._plot.reserved:
            text = self._screen.run(f"outrider reserve {image}.yaml --start now+{in_s}s")
            names[image] = _found(_NAMED, text, "an accepted reservation has no name")
        self._screen.say("\njob.sh is render.sh without the line for the image, which the reservation knows.")
        for name in names.values():
            self._jobs[name] = self._submitted(f"sbatch --reservation={name} job.sh")
        return names

    def _arrive(self) -> None:
        self._screen.part("Images arrive before their deadlines")
        self._screen.run("outrider watch --every 1", until=lambda: not self._stage.transfers())

    def _run_in(self, names: Mapping[str, str]) -> None:
        self._screen.part("The reservations begin, and their jobs with them")
        self._screen.run("outrider timeline --until now+1minute")
        self._machine.is_told()
        self._screen.run("squeue")
        due_ms = {image: self._stage.due_ms(name) for image, name in names.items()}
        job = ""
        for image in sorted(names, key=lambda each: due_ms[each]):
            job = self._jobs[names[image]]
            self._finish(job)
            self._ours[f"{image}, reserved"] = self._start(job, image, 0, due_ms[image])
            self._machine.is_away()
        self._instances(job)

    def _receipts(self, names: Mapping[str, str]) -> None:
        self._screen.part("Receipts")
        for name in names.values():
            self._await(f"{name} to be over", lambda name=name: self._stage.details(name).receipt is not None)  # type: ignore[misc]
            self._screen.run(f"outrider show {name}")

    def _finish(self, job: str) -> None:
        self._stage.wait_over(job)
        self._screen.run(f"cat slurm-{job}.out")

    def _instances(self, job: str) -> None:
        """How long the copy took that a job works on, on the node of its script."""
        node = self._stage.first_node_of(job)
        self._screen.run(f"grep -o 'instance ready.*owner=job-{job} .*' {self._stage.node_log()}", at=node)

    def _show(self, name: str, text: str) -> None:
        self._stage.write(name, text)
        self._screen.run(f"cat {name}")

    def _submitted(self, command: str) -> str:
        return _found(_JOB, self._screen.run(command), f"`{command}` names no job")

    def _start(self, job: str, image: str, before_bytes: int, due_ms: int | None = None) -> MeasuredStart:
        stage = self._stage
        sent_bytes = stage.sent_bytes(image) - before_bytes
        return start_of(job, stage.controller_log(), stage.output_of(job), sent_bytes, due_ms)

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        until_s = self._clock.monotonic_s() + MOST_S
        while not is_so():
            if self._clock.monotonic_s() > until_s:
                raise BrokenError(f"waited {MOST_S} s for {what}")
            self._clock.sleep(LOOK_S)


def _seconds(start: MeasuredStart) -> str:
    return f"{start.own_ms / 1_000:.1f}"


def _found(pattern: re.Pattern[str], text: str, otherwise: str) -> str:
    found = pattern.search(text)
    if found is None:
        raise BrokenError(otherwise)
    return found[1]
