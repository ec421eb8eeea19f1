"""`python -m tools.summary > docs/results/table-summary.csv`: what the tables of the thesis come to.

For each column of Tables 8.3 to 8.7, over all rows that the thesis prints, too. A column that several
tables share is there once, with the first of them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import correlation, fmean
from typing import TextIO

RESULTS = Path(__file__).resolve().parents[1] / "docs/results"
TABLES = ("8.3", "8.4", "8.5", "8.5-joins-any-image", "8.6", "8.7")
HEADS = (
    "table", "column", "thesis_mean", "here_mean", "error_mean", "error_mean_absolute", "error_unit",
    "correlation", "rows_off", "worst_row", "worst_error",
)  # fmt: skip
FORMS = {"s": (".0f", "%"), "share": (".3f", "%"), "% more": ("+.1f", "points")}
"""How a mean is written, and in what its error is counted."""


def summary(folder: Path = RESULTS) -> list[dict[str, str]]:
    rows, seen = [], set[tuple[str, ...]]()
    for name in TABLES:
        for row in _columns(folder / f"table-{name}.csv", name):
            values = tuple(value for head, value in row.items() if head != "table")
            if values not in seen:
                seen.add(values)
                rows.append(row)
    return rows


def _columns(path: Path, name: str) -> Iterator[dict[str, str]]:
    columns: dict[str, list[dict[str, str]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["thesis"]:
                columns.setdefault(line["column"], []).append(line)
    for column, lines in columns.items():
        yield dict(zip(HEADS, _values(name, column, lines), strict=True))


def _values(name: str, column: str, lines: list[dict[str, str]]) -> list[str]:
    ours = [float(line["ours"]) for line in lines]
    thesis = [float(line["thesis"]) for line in lines]
    errors = [float(line["error_percent"]) for line in lines]
    worst = max(lines, key=lambda line: abs(float(line["error_percent"])))
    form, unit = FORMS[lines[0]["unit"]]
    return [
        name,
        column,
        f"{fmean(thesis):{form}}",
        f"{fmean(ours):{form}}",
        f"{fmean(errors):+.1f}",
        f"{fmean(map(abs, errors)):.1f}",
        unit,
        f"{correlation(ours, thesis):.3f}",
        str(sum(line["is_off"] == "True" for line in lines)),
        worst["row"],
        f"{float(worst['error_percent']):+.1f}",
    ]


def write(stream: TextIO) -> None:
    writer = csv.DictWriter(stream, HEADS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary())


if __name__ == "__main__":
    write(sys.stdout)
