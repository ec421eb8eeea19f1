"""The thesis' Tables 4.1 to 8.7 run anew, and a table of our own: numbers, nothing printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from outrider.sim.experiments.comparison import Cell, Column, Table, TableReport, TableRow, Unit
from outrider.sim.experiments.mixed import MixedRun, run_mixed
from outrider.sim.experiments.parallel import Progress
from outrider.sim.experiments.published import MOTIVATIONS, published
from outrider.sim.workload.mixed import ROWS

GIGABYTE = 10**9
ANY_IMAGE_JOINED = "reuse, any image joined"
ALL_ROWS = "mean of all rows"

# Rows of the measurements: by workload and configuration, one run a seed.
Runs = Mapping[tuple[str, str], Sequence[MixedRun]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Specification:
    """What a table of the thesis measures, of which configurations, and which ratios it shows.

    A ratio is a pair of columns: how much more the first is than the second, in percent.
    """

    title: str
    unit: Unit
    columns: tuple[str, ...]
    ratios: tuple[tuple[int, int], ...] = ()

    def measure(self, run: MixedRun) -> float:
        return run.finish_s if self.unit is Unit.SECONDS else run.utilisation


SPECIFICATIONS = {
    "8.3": Specification(
        title="time to complete best effort: does virtualisation pay, with images predeployed?",
        unit=Unit.SECONDS,
        columns=("no virtualisation", "predeployed"),
        ratios=((1, 0),),
    ),
    "8.4": Specification(
        title="utilisation: jobs as they are, against suspend/resume without overhead",
        unit=Unit.SHARE,
        columns=("no virtualisation", "predeployed, no overhead"),
    ),
    "8.5": Specification(
        title="time to complete best effort: images predeployed, transferred, reused",
        unit=Unit.SECONDS,
        columns=("predeployed", "no reuse", "reuse"),
        ratios=((1, 0), (2, 0)),
    ),
    "8.6": Specification(
        title="utilisation: images predeployed, transferred, reused",
        unit=Unit.SHARE,
        columns=("predeployed", "no reuse", "reuse"),
    ),
    "8.7": Specification(
        title="time to complete best effort: jobs as they are, images transferred, reused",
        unit=Unit.SECONDS,
        columns=("no virtualisation", "no reuse", "reuse"),
        ratios=((1, 0), (2, 0)),
    ),
}
_MOTIVATION = Specification(
    title="",
    unit=Unit.SECONDS,
    columns=("no virtualisation", "predeployed, backfilling", "no reuse, backfilling"),
    ratios=((1, 0), (2, 0)),
)
_MOTIVATION_TITLES = {
    "4.1": "few long best-effort jobs and reservations of 13 to 16 nodes",
    "4.2": "many short best-effort jobs and reservations of 13 to 16 nodes",
}
_MOTIVATION_NOTES = {
    "4.1": ("the thesis prints +5.07 % for 48,240 s over 45,780 s, which is +5.37 %: a slip",),
    "4.2": (),
}
BEYOND = (
    "no reuse", "reuse", "LFU pool", "timeout pool", "calendar pool",
    "relay", "one shared link", "all of these",
)  # fmt: skip


def table_of_the_thesis(
    name: str,
    *,
    seeds: int,
    first_seed: int = 1,
    joins_any_image: bool = False,
    rows: Iterable[str] = tuple(ROWS),
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> TableReport:
    """Table 8.3 to 8.7. `joins_any_image` keeps a fault of the thesis' simulator in "reuse"."""
    specification = SPECIFICATIONS[name]
    configurations = [
        ANY_IMAGE_JOINED if joins_any_image and column == "reuse" else column
        for column in specification.columns
    ]
    drawn = range(first_seed, first_seed + seeds)
    runs = _runs(configurations, drawn=drawn, rows=rows, workers=workers, on_progress=on_progress)
    table = compared(specification, configurations, runs, published(name))
    return TableReport(
        name=name,
        title=specification.title,
        seeds=seeds,
        first_seed=first_seed,
        tables=(table,),
        notes=_reuse_notes(configurations),
    )


def motivation(
    name: str,
    *,
    seeds: int,
    first_seed: int = 1,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> TableReport:
    """Table 4.1 or 4.2: one workload, with nothing suspended."""
    printed = MOTIVATIONS[name]
    row, columns = printed.row, _MOTIVATION.columns
    drawn = range(first_seed, first_seed + seeds)
    runs = _runs(columns, drawn=drawn, rows=(row,), workers=workers, on_progress=on_progress)
    times_s = (printed.without_s, printed.predeployed_s, printed.not_predeployed_s)
    table = compared(_MOTIVATION, columns, runs, {row: times_s})
    notes = _MOTIVATION_NOTES[name]
    return TableReport(
        name=name,
        title=_MOTIVATION_TITLES[name],
        seeds=seeds,
        first_seed=first_seed,
        tables=(table,),
        notes=notes,
    )


def beyond(
    *,
    seeds: int,
    first_seed: int = 1,
    rows: Iterable[str] = tuple(ROWS),
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> TableReport:
    """What the thesis did not have, over its own workloads: time against predeployed, and bytes."""
    configurations = ("predeployed", *BEYOND)
    drawn = range(first_seed, first_seed + seeds)
    runs = _runs(configurations, drawn=drawn, rows=rows, workers=workers, on_progress=on_progress)
    slower = _per_configuration(
        "time to complete best effort, how many percent more than with predeployed images",
        runs,
        Unit.MORE_PERCENT,
        lambda run, base: more_percent(run.finish_s, base.finish_s),
    )
    moved = _per_configuration(
        "moved over the links, GB", runs, Unit.GIGABYTES, lambda run, _: run.moved_bytes / GIGABYTE
    )
    late = sum(run.late for found in runs.values() for run in found)
    return TableReport(
        name="beyond",
        title="beyond the thesis: pools that keep images, a relay, one link for everything",
        seeds=seeds,
        first_seed=first_seed,
        tables=(slower, moved),
        notes=(
            "LFU, timeout and calendar pools keep up to 3 GB of images that nobody needs at the moment",
            "one shared link has half the thesis' capacity: it had 12 MB/s for each class of requests",
            f"reservations that began without their image, in all runs: {late}",
        ),
    )


def compared(
    specification: Specification,
    configurations: Sequence[str],
    runs: Runs,
    printed: Mapping[str, Sequence[float]],
) -> Table:
    """The measurements beside the printed ones; the configurations are those of the columns."""
    unit = specification.unit
    columns = [Column(name=name, unit=unit) for name in configurations]
    columns += [
        Column(name=f"{configurations[above]} against {configurations[below]}", unit=Unit.MORE_PERCENT)
        for above, below in specification.ratios
    ]
    rows = []
    for label in _labels(runs):
        ours = [[specification.measure(run) for run in runs[label, name]] for name in configurations]
        theirs = printed[label]
        cells = [Cell.of(values, theirs[index]) for index, values in enumerate(ours)]
        cells += [
            Cell.of(
                [more_percent(*pair) for pair in zip(ours[above], ours[below], strict=True)],
                more_percent(theirs[above], theirs[below]),
            )
            for above, below in specification.ratios
        ]
        rows.append(TableRow(label=label, cells=tuple(cells)))
    return Table(title="", row_name="workload", columns=tuple(columns), rows=tuple(rows))


def more_percent(value: float, base: float) -> float:
    """How much more than the base a value is."""
    return 100 * (value / base - 1)


def _runs(
    configurations: Sequence[str],
    *,
    drawn: range,
    rows: Iterable[str],
    workers: int | None,
    on_progress: Progress | None,
) -> Runs:
    found: dict[tuple[str, str], list[MixedRun]] = {}
    runs = run_mixed(
        configurations,
        seeds=len(drawn),
        first_seed=drawn.start,
        rows=rows,
        workers=workers,
        on_progress=on_progress,
    )
    for run in runs:
        found.setdefault((run.row, run.configuration), []).append(run)
    return found


def _labels(runs: Runs) -> list[str]:
    return list(dict.fromkeys(row for row, _ in runs))


def _per_configuration(
    title: str, runs: Runs, unit: Unit, measure: Callable[[MixedRun, MixedRun], float]
) -> Table:
    """One column for each configuration of `BEYOND`, and a last row with the mean of all."""
    labels = _labels(runs)
    values = {
        (label, name): [
            measure(run, base)
            for run, base in zip(runs[label, name], runs[label, "predeployed"], strict=True)
        ]
        for label in labels
        for name in BEYOND
    }
    rows = [
        TableRow(label=label, cells=tuple(Cell.of(values[label, name]) for name in BEYOND))
        for label in labels
    ]
    over_rows = [
        Cell.of([value for label in labels for value in values[label, name]]).mean for name in BEYOND
    ]
    rows.append(TableRow(label=ALL_ROWS, cells=tuple(Cell(mean=mean) for mean in over_rows)))
    columns = tuple(Column(name=name, unit=unit) for name in BEYOND)
    return Table(title=title, row_name="workload", columns=columns, rows=tuple(rows))


def _reuse_notes(configurations: Sequence[str]) -> tuple[str, ...]:
    if ANY_IMAGE_JOINED in configurations:
        return (
            'in "reuse, any image joined" a reservation joins any earlier transfer to its node, whatever '
            "its image: a fault of the thesis' simulator, kept here because its column shows it",
        )
    if "reuse" in configurations:
        return (
            '"reuse" compares images before joining a transfer; the thesis\' simulator did not, '
            "see --joins-any-image",
        )
    return ()
