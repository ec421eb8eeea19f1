"""The data of the thesis' Figures 8.2 to 8.7: curves, and what can be said of them in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from outrider.sim.experiments.deployment import (
    BatchRequest,
    DeploymentRun,
    Testbed,
    lead_bytes,
    run_deployments,
)
from outrider.sim.experiments.disk import STAGING, STAGING_PUBLISHED_GB, run_staging
from outrider.sim.experiments.satisfaction import (
    NOMINAL_BYTES_PER_S,
    client_satisfaction,
)
from outrider.sim.experiments.stager import StagedRequest, Strategy
from outrider.sim.experiments.submissions import busiest_span, cumulative, rate
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.trace import Trace

GIGABYTE = 10**9
# The thesis' traces I and II last half an hour a workspace; their files say 60 s.
SATISFACTION_DURATION_S = 1800
LEAD_AT_S = 3550
PUBLISHED_LEAD_GB = {"III": 25.2, "IV": 27.6}
PUBLISHED_DEPLOYMENT_S = {"III": (440, 305), "IV": (440, 247)}
RATE_EVERY_S = 60

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One curve. As steps, each value holds from its instant to the next one."""

    name: str
    points: Points


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureNumber:
    """A number that the figure shows, and the thesis' where it has one."""

    name: str
    unit: str
    ours: float
    published: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    number: str
    title: str
    panels: tuple[Panel, ...]
    findings: tuple[FigureNumber, ...] = ()

    def finding(self, name: str) -> FigureNumber:
        return next(finding for finding in self.findings if finding.name == name)


def figure(number: str, *, seed: int = 1, seeds: int = 30) -> Figure:
    """A figure of the thesis. Only 8.4 is drawn at random: `seed` is shown, `seeds` are summed up."""
    if number == "8.4":
        return disk_usage(seed=seed, seeds=seeds)
    return _FIGURES[number]()


def satisfaction(number: str, trace: str) -> Figure:
    """The share of its time that each workspace of trace I or II gets, in the order of starts."""
    requests = staging_requests(published_trace(trace, duration_s=SATISFACTION_DURATION_S))
    panels, findings = [], []
    for strategy in Strategy:
        result = client_satisfaction(requests, strategy, NOMINAL_BYTES_PER_S)
        shares = [100 * float(share) for share in result.shares]
        points = tuple((float(place), share) for place, share in enumerate(shares, 1))
        panels.append(
            Panel(
                title=strategy.value,
                x_label="workspace, in order of its start",
                y_label="time got (%)",
                series=(Series(name=strategy.value, points=points),),
            )
        )
        findings += [
            FigureNumber(name=f"{strategy.value}: mean", unit="%", ours=100 * float(result.mean)),
            FigureNumber(name=f"{strategy.value}: worst", unit="%", ours=100 * float(result.worst)),
            FigureNumber(
                name=f"{strategy.value}: got all they asked for",
                unit="% of workspaces",
                ours=100 * float(result.fully_satisfied),
            ),
        ]
    return Figure(
        number=number,
        title=f"Client satisfaction under four ways of staging, trace {trace}",
        panels=tuple(panels),
        findings=tuple(findings),
    )


def staging_requests(trace: Trace) -> list[StagedRequest]:
    """The reservations of a trace, by their starts."""
    requests = [
        StagedRequest(
            submit_s=submission.at_s,
            start_s=submission.workspace.start_s,
            nodes=submission.workspace.instances,
            size_bytes=submission.workspace.image.size_bytes,
            duration_s=submission.workspace.duration_s,
        )
        for submission in trace.submissions
        if submission.workspace.start_s is not None and submission.workspace.image is not None
    ]
    return sorted(requests, key=lambda request: request.start_s)


def disk_usage(*, seed: int = 1, seeds: int = 30) -> Figure:
    """Images on each node's disk over time, staged as early or as late as possible."""
    panels, findings = [], []
    for staging in STAGING:
        shown = run_staging(staging, seed)
        panels.append(
            Panel(
                title=staging,
                x_label="time (h)",
                y_label="images on disk (GB)",
                series=tuple(
                    Series(
                        name=node,
                        points=tuple((at_s / 3600, held / GIGABYTE) for at_s, held in steps),
                    )
                    for node, steps in shown.disks
                ),
            )
        )
        peaks = [run_staging(staging, each).peak_bytes / GIGABYTE for each in range(1, seeds + 1)]
        published = STAGING_PUBLISHED_GB[staging]
        findings += [
            FigureNumber(
                name=f"{staging}: peak shown",
                unit="GB",
                ours=shown.peak_bytes / GIGABYTE,
                published=published,
            ),
            FigureNumber(name=f"{staging}: mean peak", unit="GB", ours=fmean(peaks), published=published),
            FigureNumber(name=f"{staging}: lowest peak", unit="GB", ours=min(peaks)),
            FigureNumber(name=f"{staging}: highest peak", unit="GB", ours=max(peaks)),
        ]
    return Figure(
        number="8.4",
        title="Disk usage of each node, images staged as early or as late as possible",
        panels=tuple(panels),
        findings=tuple(findings),
    )


def submissions() -> Figure:
    """The flurry of traces III and IV, which differ in their images only."""
    trace = published_trace("III")
    by_submission, by_image = cumulative(trace)
    flurry, from_s = busiest_span(trace, 80)
    return Figure(
        number="8.5",
        title="Submissions of traces III and IV, which differ in their images only",
        panels=(
            Panel(
                title="so far",
                x_label="time (s)",
                y_label="number so far",
                series=(
                    Series(name="images to deploy", points=by_image),
                    Series(name="submissions", points=by_submission),
                ),
            ),
            Panel(
                title="rate",
                x_label="time (s)",
                y_label="submissions per minute",
                series=(Series(name="submissions per minute", points=rate(trace, RATE_EVERY_S)),),
            ),
        ),
        findings=(
            FigureNumber(name="submissions", unit="submissions", ours=len(trace.submissions), published=62),
            FigureNumber(name="images", unit="images", ours=by_image[-1][1], published=144),
            FigureNumber(name="last submission", unit="s", ours=trace.submissions[-1].at_s, published=4700),
            FigureNumber(name=f"most within 80 s, from {from_s} s on", unit="submissions", ours=flurry),
        ),
    )


def deployed(number: str, trace: str) -> Figure:
    """Images deployed so far, with a pool of three on each node and without any."""
    requests = batch_requests(published_trace(trace))
    testbed = Testbed()
    cached = run_deployments(requests, testbed)
    plain = run_deployments(requests, replace(testbed, pool_bytes=0))
    published_plain_s, published_cached_s = PUBLISHED_DEPLOYMENT_S[trace]
    lead = lead_bytes(cached, plain, LEAD_AT_S) / GIGABYTE
    return Figure(
        number=number,
        title=f"Images deployed so far, trace {trace}",
        panels=(
            Panel(
                title=f"trace {trace}",
                x_label="time (s)",
                y_label="deployed so far (GB)",
                series=(
                    Series(name="with a pool of three images on each node", points=_gigabytes(cached)),
                    Series(name="without pools", points=_gigabytes(plain)),
                ),
            ),
        ),
        findings=(
            FigureNumber(
                name=f"lead at {LEAD_AT_S} s", unit="GB", ours=lead, published=PUBLISHED_LEAD_GB[trace]
            ),
            FigureNumber(
                name="mean deployment, not cached", unit="s",
                ours=float(plain.mean_from_job_start_s), published=published_plain_s,
            ),
            FigureNumber(
                name="mean deployment, cached", unit="s",
                ours=float(cached.mean_from_job_start_s), published=published_cached_s,
            ),
            FigureNumber(name="images found in the pool", unit="images", ours=cached.hits),
            FigureNumber(name="images transferred", unit="images", ours=cached.transfers),
        ),
    )  # fmt: skip


def batch_requests(trace: Trace) -> list[BatchRequest]:
    """The best-effort submissions of a trace, each with its image."""
    return [
        BatchRequest(
            submit_s=submission.at_s,
            image=submission.workspace.image.key,
            size_bytes=submission.workspace.image.size_bytes,
            nodes=submission.workspace.instances,
            duration_s=submission.workspace.duration_s,
        )
        for submission in trace.submissions
        if submission.workspace.image is not None
    ]


def _gigabytes(run: DeploymentRun) -> Points:
    return ((0.0, 0.0), *((float(at_s), held / GIGABYTE) for at_s, held in run.series()))


_FIGURES: dict[str, Callable[[], Figure]] = {
    "8.2": lambda: satisfaction("8.2", "I"),
    "8.3": lambda: satisfaction("8.3", "II"),
    "8.5": submissions,
    "8.6": lambda: deployed("8.6", "III"),
    "8.7": lambda: deployed("8.7", "IV"),
}
NUMBERS = tuple(sorted((*_FIGURES, "8.4")))
