"""A table's report as data: for JSON, and line by line for CSV."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.cli.output import plain
from outrider.sim.experiments.comparison import Cell, Column, Table, TableReport

CSV_HEADER = (
    "table",
    "part",
    "row",
    "column",
    "unit",
    "ours",
    "deviation",
    "thesis",
    "error_percent",
    "is_off",
)


def report_data(report: TableReport) -> dict[str, object]:
    """Everything that the text shows, unrounded."""
    return {
        "table": report.name,
        "title": report.title,
        "seeds": report.seeds,
        "first_seed": None if report.seeds is None else report.first_seed,
        "parts": [_table_data(table) for table in report.tables],
        "notes": list(report.notes),
    }


def report_rows(report: TableReport) -> Iterator[tuple[object, ...]]:
    """One cell a line, under `CSV_HEADER`."""
    for table in report.tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                yield (
                    report.name, table.title, row.label, column.name, column.unit.value, cell.mean,
                    cell.deviation, cell.published, column.error_percent(cell), cell.is_off,
                )  # fmt: skip


def _table_data(table: Table) -> dict[str, object]:
    return {
        "title": table.title,
        "rows": [
            {
                table.row_name: row.label,
                "cells": [
                    _cell_data(column, cell) for column, cell in zip(table.columns, row.cells, strict=True)
                ],
            }
            for row in table.rows
        ],
        "summaries": plain(table.summaries()),
    }


def _cell_data(column: Column, cell: Cell) -> dict[str, object]:
    return {
        "column": column.name,
        "unit": column.unit.value,
        "ours": cell.mean,
        "deviation": cell.deviation,
        "thesis": cell.published,
        "error_percent": column.error_percent(cell),
        "is_off": cell.is_off,
    }
