"""The numbers that the thesis prints, as they are in its Tables 4.1 to 8.7."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

TABLES = {
    "8.3": "tab:noVMvsPredeploy",
    "8.4": "tab:noVMvsPredeployUtil",
    "8.5": "tab:predeployVSfetch",
    "8.6": "tab:predeployVSfetchUtil",
    "8.7": "tab:novmVSfetch",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Motivation:
    """One of the two tables of section 4: the row of section 8.3 it is about, and its times."""

    row: str
    without_s: int
    predeployed_s: int
    not_predeployed_s: int


MOTIVATIONS = {
    "4.1": Motivation(
        row="long,075-100,75-25", without_s=45_780, predeployed_s=48_240, not_predeployed_s=52_020
    ),
    "4.2": Motivation(
        row="short,075-100,75-25", without_s=41_040, predeployed_s=44_640, not_predeployed_s=87_000
    ),
}


@cache
def published(table: str) -> dict[str, tuple[float, ...]]:
    """The columns of a table by row, for instance `long,000-025,25-75`; ratios left out."""
    label = TABLES[table]
    columns = 2 if table in ("8.3", "8.4") else 3
    text = files("outrider.sim").joinpath("published/thesis_tables.csv").read_text(encoding="utf-8")
    rows: dict[str, tuple[float, ...]] = {}
    for fields in csv.reader(text.splitlines()):
        if fields[0] == label:
            rows[",".join(fields[1:4])] = tuple(float(value) for value in fields[4 : 4 + columns])
    return rows
