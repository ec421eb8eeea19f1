"""Which runs there are: those of the thesis, and what it did not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.sim.experiments.deployment import Testbed
from outrider.sim.experiments.stager import Strategy

INSTANT_BYTES_PER_S = 10**10


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run. `figure` is that of the thesis, or empty where it had nothing of the kind."""

    name: str
    figure: str
    trace: str
    way: str
    strategy: Strategy | None = None
    is_relayed: bool = False
    testbed: Testbed | None = None
    beside: str = ""
    """The trace of jobs that share the link, and which part of it they are promised."""
    share_percent: int = 0


def _reservations(figure: str, trace: str) -> list[Experiment]:
    return [
        Experiment(
            name=f"{trace}/{strategy.value.replace(' ', '-')}", figure=figure, trace=trace,
            way=strategy.value, strategy=strategy,
        )
        for strategy in Strategy
    ]  # fmt: skip


def _jobs(figure: str, trace: str) -> list[Experiment]:
    return [
        Experiment(name=f"{trace}/pool", figure=figure, trace=trace, way="LFU pools", testbed=Testbed()),
        Experiment(
            name=f"{trace}/no-pool", figure=figure, trace=trace, way="no pools",
            testbed=replace(Testbed(), pool_bytes=0),
        ),
    ]  # fmt: skip


THESIS = [
    *_reservations("8.2", "I"),
    *_reservations("8.3", "II"),
    *_jobs("8.6", "III"),
    *_jobs("8.7", "IV"),
]
BEYOND = [
    *(
        Experiment(
            name=f"{trace}/{strategy.value.replace(' ', '-')}+relay",
            figure="",
            trace=trace,
            way=f"{strategy.value}, relayed",
            strategy=strategy,
            is_relayed=True,
        )
        for trace in ("I", "II")
        for strategy in (Strategy.SCHEDULED, Strategy.JOB_STYLE)
    ),
    *(
        Experiment(
            name=f"{trace}/pool+{name}",
            figure="",
            trace=trace,
            way=way,
            testbed=replace(Testbed(), **changes),
        )
        for trace in ("III", "IV")
        for name, way, changes in (
            ("calendar", "calendar pools", {"eviction": "calendar"}),
            ("instances", "LFU pools, nothing copied", {"copy_bytes_per_s": INSTANT_BYTES_PER_S}),
        )
    ),
    *(
        Experiment(
            name=f"I/scheduled+III/pool+{share}%",
            figure="",
            trace="I",
            strategy=Strategy.SCHEDULED,
            way=f"one link with trace III, {share} % of it promised",
            testbed=Testbed(),
            beside="III",
            share_percent=share,
        )
        for share in (25, 50)
    ),
]
ALL = {experiment.name: experiment for experiment in (*THESIS, *BEYOND)}
