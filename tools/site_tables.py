"""Tables of the site that are made when it is built, in the place of marks such as `<!-- table: metrics -->`.

Each is made of what the repository has anyway: the code, or measured rows in docs/results. mkdocs calls
`on_page_markdown` for every page.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cachemgr.cli.exits import meanings
from cachemgr.daemon import metrics as node_metrics
from outrider.service.daemon import errors
from outrider.service.daemon.configuration import table as configuration
from outrider.service.daemon.measures import metrics

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
SUMMARY = "table-summary.csv"
BEYOND = (
    "mean of all rows",
    "short,075-100,75-25",
    "short,025-050,75-25",
    "medium,025-050,50-50",
    "long,075-100,75-25",
)
"""The rows of what goes beyond the thesis that the site shows; the CSV has all."""
MARK = re.compile(r"^<!-- table: (.+) -->$", re.MULTILINE)
CLIENT = "<!-- reference: client -->"
PHYSICAL = (
    "mean satisfaction",
    "got all they asked for",
    "mean deployment",
    "moved by the server",
    "lead of the pools at 3550 s",
)
"""What the site shows of a run on hosts; the CSV has the rest."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with its tables. A mark that names none is an error, and the site is not built."""
    whole = MARK.sub(lambda found: _made(found[1]), markdown)
    return whole.replace(CLIENT, client()) if CLIENT in whole else whole


def _made(name: str) -> str:
    if name.startswith("results/"):
        heads, *rows = _lines(name.partition("/")[2])
        return _table(heads, rows)
    return TABLES[name]() if name in TABLES else reference(name)


def reference(name: str) -> str:
    """Tables of options, keys and requests. mkdocs, as a program, does not look for `tools` here."""
    sys.path.append(str(ROOT))
    from tools import reference_tables

    return reference_tables.made(name)


def physical(*, is_of_the_thesis: bool) -> str:
    """Runs on hosts beside the simulator's; a row without a figure is none of the thesis."""
    found = (row for row in _rows("physical-summary.csv") if row["quantity"] in PHYSICAL)
    rows = [_physical(row) for row in found if bool(row["figure"]) == is_of_the_thesis]
    heads = ["run", "", "hosts", "simulator", "", "simulator, as measured", "", "thesis"]
    return _table(heads, rows, ["---"] * 2 + ["---:"] * 6)


def summary() -> str:
    """What the tables of the thesis come to over all of their rows."""
    heads = ["table", "column", "thesis, mean", "here, mean", "mean error", "mean error, absolute"]
    return _table([*heads, "correlation", "off", "worst row"], [_compared(row) for row in _rows(SUMMARY)])


def _compared(row: dict[str, str]) -> list[str]:
    unit = row["error_unit"]
    return [
        *(row[key] for key in ("table", "column", "thesis_mean", "here_mean")),
        *(f"{row[key]} {unit}" for key in ("error_mean", "error_mean_absolute")),
        *(row[key] for key in ("correlation", "rows_off")),
        f"{row['worst_row']}: {row['worst_error']} {unit}",
    ]


def motivation() -> str:
    """Tables 4.1 and 4.2, one workload each."""
    names = {"4.1": "few long jobs", "4.2": "many short jobs"}
    lines = [
        [f"{table}, {name}: {row['column']}", *_beside_the_thesis(row)]
        for table, name in names.items()
        for row in _rows(f"table-{table}.csv")
    ]
    return _table(["", "thesis", "here", "error"], lines)


def _beside_the_thesis(row: dict[str, str]) -> list[str]:
    thesis, ours, deviation = (float(row[key]) for key in ("thesis", "ours", "deviation"))
    if row["unit"] == "s":
        values = [f"{thesis:,.0f} s", f"{ours:,.0f} ± {deviation:,.0f} s"]
    else:
        values = [f"{thesis:+.1f} %", f"{ours:+.1f} ± {deviation:.1f} %"]
    return [*values, f"{float(row['error_percent']):+.1f} {'%' if row['unit'] == 's' else 'points'}"]


def beyond() -> str:
    """What the thesis did not have: percent more time in some rows, and bytes moved in the mean."""
    rows = list(_rows("table-beyond.csv"))
    more = {(row["row"], row["column"]): float(row["ours"]) for row in rows if row["unit"] == "% more"}
    moved = {(row["row"], row["column"]): float(row["ours"]) for row in rows if row["unit"] == "GB"}
    lines = [
        [column, *(f"{more[row, column]:+.1f} %" for row in BEYOND), f"{moved[BEYOND[0], column]:,.0f}"]
        for column in dict.fromkeys(row["column"] for row in rows)
    ]
    return _table(["", *BEYOND, f"GB moved, {BEYOND[0]}"], lines)


def as_they_are(name: str) -> str:
    """Rows that were written by hand."""
    heads, *rows = _lines(name)
    return _table(heads, rows)


def _physical(row: dict[str, str]) -> list[str]:
    return [
        row["run"],
        f"{row['quantity']}, {row['unit']}",
        f"{float(row['physical']):.1f}",
        f"{float(row['simulated']):.1f}",
        _signed(row["difference_percent"]),
        f"{float(row['simulated_as_measured']):.1f}",
        _signed(row["difference_as_measured_percent"]),
        row["thesis"],
    ]


def _signed(percent: str) -> str:
    return f"{float(percent):+.1f} %" if percent else ""


def _lines(name: str) -> list[list[str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.reader(file))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        yield from csv.DictReader(file)


def _table(heads: list[str], rows: list[list[str]], rules: list[str] | None = None) -> str:
    lines = [heads, rules or ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def client() -> str:
    """What the Python client offers."""
    sys.path.append(str(ROOT))
    from tools import client_reference

    return client_reference.reference()


TABLES: dict[str, Callable[[], str]] = {
    "configuration": configuration.table,
    "metrics": metrics.table,
    "metrics of nodes": node_metrics.table,
    "exit codes": errors.table,
    "exit codes of cachemgr": lambda: _table(
        ["code", "meaning"], [[str(k), v] for k, v in meanings().items()]
    ),
    "motivation": motivation,
    "beyond": beyond,
    "Haizea's options": lambda: as_they_are("haizea-options.csv"),
    "Haizea's samples": lambda: as_they_are("haizea-samples.csv"),
    "Haizea's faults": lambda: as_they_are("haizea-faults.csv"),
    "physical": lambda: physical(is_of_the_thesis=True),
    "physical, beyond the thesis": lambda: physical(is_of_the_thesis=False),
    "summary": summary,
}

if __name__ == "__main__":
    sys.stdout.write(_made(sys.argv[1]))
