"""Our numbers beside the thesis': cells, rows, columns, and what a column comes to.

Values only. The experiments build them, the command line prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import correlation, fmean, stdev

# How many standard deviations between seeds make a row one that does not fit.
TOLERATED_DEVIATIONS = 2


class Unit(Enum):
    SECONDS = "s"
    SHARE = "share"
    PERCENT = "%"
    MORE_PERCENT = "% more"
    """How much more than something else, so 100 is twice as much."""
    GIGABYTES = "GB"
    COUNT = "count"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The mean over our seeds and its spread, and what the thesis prints."""

    mean: float
    deviation: float | None = None
    """None with fewer than two seeds."""
    published: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], published: float | None = None) -> Cell:
        deviation = stdev(values) if len(values) > 1 else None
        return cls(mean=fmean(values), deviation=deviation, published=published)

    @property
    def is_off(self) -> bool:
        """Whether what the thesis prints lies further from our mean than seeds explain."""
        if self.published is None or self.deviation is None:
            return False
        return abs(self.mean - self.published) > TOLERATED_DEVIATIONS * self.deviation


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    unit: Unit

    def error_percent(self, cell: Cell) -> float | None:
        """How far we are from the thesis; of percentages, the difference in points."""
        if cell.published is None:
            return None
        if self.unit in (Unit.PERCENT, Unit.MORE_PERCENT):
            return cell.mean - cell.published
        return 100 * (cell.mean / cell.published - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnSummary:
    """A column against the thesis, over all rows."""

    column: str
    mean_error_percent: float
    mean_absolute_error_percent: float
    correlation: float | None
    """Over the rows; None where there are too few, or where one side never changes."""
    worst_row: str
    worst: Cell
    """The row in which we are furthest from the thesis."""
    highest_row: str
    highest: Cell
    """The row with our highest value, for a ratio the one that costs most."""
    highest_published_row: str
    highest_published: float
    off_rows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    title: str
    row_name: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    is_summed: bool = True
    """Whether the rows are alike, so that what a column comes to over all of them means something."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row {row.label} has {len(row.cells)} of {len(self.columns)} cells")

    @property
    def has_published(self) -> bool:
        return any(cell.published is not None for row in self.rows for cell in row.cells)

    def summaries(self) -> tuple[ColumnSummary, ...]:
        """Of each column of which the thesis prints two rows or more."""
        found = (self._summary(index) for index in range(len(self.columns)))
        return tuple(summary for summary in found if summary is not None)

    def _summary(self, index: int) -> ColumnSummary | None:
        column = self.columns[index]
        compared = [
            (row.label, row.cells[index], error, row.cells[index].published)
            for row in self.rows
            if (error := column.error_percent(row.cells[index])) is not None
        ]
        ours = [cell.mean for _, cell, _, _ in compared]
        theirs = [published for _, _, _, published in compared if published is not None]
        if len(theirs) < 2:
            return None
        worst = max(compared, key=lambda each: abs(each[2]))
        highest = max(compared, key=lambda each: each[1].mean)
        most = max(compared, key=lambda each: each[3] or 0.0)
        return ColumnSummary(
            column=column.name,
            mean_error_percent=fmean(error for _, _, error, _ in compared),
            mean_absolute_error_percent=fmean(abs(error) for _, _, error, _ in compared),
            correlation=_correlation(ours, theirs),
            worst_row=worst[0],
            worst=worst[1],
            highest_row=highest[0],
            highest=highest[1],
            highest_published_row=most[0],
            highest_published=most[3] or 0.0,
            off_rows=tuple(label for label, cell, _, _ in compared if cell.is_off),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReport:
    """What one `outrider sim table` shows."""

    name: str
    title: str
    seeds: int | None
    """None where nothing is drawn at random."""
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    first_seed: int = 1


def _correlation(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    if len(ours) < 3 or len(set(ours)) == 1 or len(set(theirs)) == 1:
        return None
    return correlation(ours, theirs)
