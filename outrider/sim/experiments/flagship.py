"""The two workloads that show most: what the demonstration runs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from outrider.core.model import Image, Resources, Workspace
from outrider.core.reservations.admission import Rejected
from outrider.sim.experiments.mixed import run_mixed
from outrider.sim.experiments.parallel import Progress
from outrider.sim.experiments.published import published
from outrider.sim.setup import MEGABYTE, THESIS, thesis_nodes

ROWS = ("short,075-100,75-25", "long,075-100,75-25")
CONFIGURATIONS = ("no virtualisation", "predeployed", "no reuse", "reuse", "all of these")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonLine:
    row: str
    configuration: str
    finish_s: float
    published_s: float | None
    moved_gigabytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedExample:
    """A reservation whose nodes are free and whose image cannot come in time."""

    request: Workspace
    reason: str
    earliest_start_s: int


def flagship(
    *, seeds: int, workers: int | None = None, on_progress: Progress | None = None
) -> tuple[ComparisonLine, ...]:
    """Mean times of both workloads in the thesis' configurations, and with everything we add."""
    runs = run_mixed(CONFIGURATIONS, seeds=seeds, rows=ROWS, workers=workers, on_progress=on_progress)
    printed: dict[str, dict[str, float]] = {}
    for row in ROWS:
        predeployed_s, transferred_s, reused_s = published("8.5")[row]
        printed[row] = {
            "no virtualisation": published("8.3")[row][0],
            "predeployed": predeployed_s,
            "no reuse": transferred_s,
            "reuse": reused_s,
        }
    return tuple(
        ComparisonLine(
            row=row,
            configuration=name,
            finish_s=fmean(run.finish_s for run in runs if (run.row, run.configuration) == (row, name)),
            published_s=printed[row].get(name),
            moved_gigabytes=fmean(
                run.moved_bytes / 10**9 for run in runs if (run.row, run.configuration) == (row, name)
            ),
        )
        for row in ROWS
        for name in CONFIGURATIONS
    )


def refused_example() -> RefusedExample:
    """Two reservations a minute apart: the nodes suffice for both, the link for one."""
    scheduler = THESIS.scheduler(thesis_nodes())

    def asks(name: str, start_s: int) -> Workspace:
        return Workspace(
            name=name,
            instances=8,
            resources=Resources.of(cpus=1),
            duration_s=3600,
            image=Image(uri=f"{name}.qcow2", size_bytes=1800 * MEGABYTE),
            start_s=start_s,
        )

    scheduler.reserve(asks("analysis", 720), 0)
    request = asks("render", 780)
    admission = scheduler.reserve(request, 0).admission
    if not isinstance(admission, Rejected) or admission.earliest_start_s is None:
        raise RuntimeError("the example of a refusal was not refused: its link has become too fast")
    return RefusedExample(
        request=request,
        reason=admission.refusal.sentence(_clock),
        earliest_start_s=admission.earliest_start_s,
    )


def _clock(at_s: int) -> str:
    """The example takes place from noon on."""
    return f"{12 + at_s // 3600}:{at_s // 60 % 60:02}:{at_s % 60:02}"
