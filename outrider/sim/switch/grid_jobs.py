"""Virtual jobs that run the NAS grid benchmarks: nine machines, and tasks that wait for one another.

The context switch's paper names the benchmarks and how long each of its jobs runs alone (its Figure 12),
but neither the tasks of each machine nor the memory. Shapes are those of the benchmarks' definition, with
tasks of one length; memory is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

MACHINES = 9
MEMORIES_MB = (512, 1024, 2048)
PAPER_JOBS = (
    ("VP.A", 984),
    ("ED.W", 689),
    ("VP.W", 966),
    ("HC.A", 346),
    ("MB.A", 640),
    ("ED.A", 682),
    ("HC.W", 344),
    ("MB.W", 775),
)
"""In the order in which a queue starts them on the two lanes of Figure 12, and what each takes in seconds."""


@dataclass(slots=True)
class BenchmarkTask:
    """What one machine computes once others have computed."""

    machine: int
    left_s: float
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class GridJob:
    """A job: the memory of each machine in MB, and its tasks."""

    name: str
    memories_mb: tuple[int, ...]
    tasks: list[BenchmarkTask] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return all(task.left_s <= 0 for task in self.tasks)

    def ready(self) -> list[BenchmarkTask]:
        """The tasks that compute now, if their machines can."""
        tasks = self.tasks
        return [
            task
            for task in tasks
            if task.left_s > 0 and all(tasks[before].left_s <= 0 for before in task.after)
        ]


def grid_job(name: str, alone_s: float, memories_mb: tuple[int, ...]) -> GridJob:
    """ED.A is the benchmark ED in the size A. Raises ValueError for a benchmark that there is not."""
    shapes = {"ED": _distributed, "HC": _chain, "VP": _pipeline, "MB": _bag}
    shape = shapes.get(name.partition(".")[0])
    if shape is None:
        raise ValueError(f"no benchmark {name}: there are {', '.join(shapes)}")
    return GridJob(name, memories_mb, shape(alone_s))


def paper_jobs(seed: int, memories_mb: tuple[int, ...] = MEMORIES_MB, stretch: float = 1.0) -> list[GridJob]:
    """The eight of section 5.2, `stretch` times as long, with the memory of each machine drawn."""
    random = Random(f"grid jobs {seed}")
    return [
        grid_job(name, alone_s * stretch, tuple(random.choice(memories_mb) for _ in range(MACHINES)))
        for name, alone_s in PAPER_JOBS
    ]


def _distributed(alone_s: float) -> list[BenchmarkTask]:
    """Embarrassingly distributed: all at once."""
    return [BenchmarkTask(machine, alone_s) for machine in range(MACHINES)]


def _chain(alone_s: float) -> list[BenchmarkTask]:
    """Helical chain: one after the other."""
    return [
        BenchmarkTask(machine, alone_s / MACHINES, (machine - 1,) if machine else ())
        for machine in range(MACHINES)
    ]


def _pipeline(alone_s: float) -> list[BenchmarkTask]:
    """Visualisation pipeline: three steps for each of three pictures; at most five tasks in a row."""
    return [
        BenchmarkTask(
            machine,
            alone_s / 5,
            tuple(before for before, is_there in ((machine - 3, row), (machine - 1, step)) if is_there),
        )
        for row in range(3)
        for step in range(3)
        for machine in (3 * row + step,)
    ]


def _bag(alone_s: float) -> list[BenchmarkTask]:
    """Mixed bag: three layers of three, each after all of the one before."""
    return [
        BenchmarkTask(
            machine,
            alone_s / 3,
            tuple(range(3 * (machine // 3) - 3, 3 * (machine // 3))) if machine > 2 else (),
        )
        for machine in range(MACHINES)
    ]
