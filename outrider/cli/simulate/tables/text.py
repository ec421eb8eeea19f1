"""A table's report as text, no wider than a terminal: columns that do not fit go below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from outrider.sim.experiments.comparison import Cell, Column, ColumnSummary, Table, TableReport, Unit

WIDTH = 110
_GAP = "   "
_NAME_WIDTH = 14
_IN_POINTS = (Unit.PERCENT, Unit.MORE_PERCENT)


def report_text(report: TableReport) -> str:
    sections = ["\n".join(_heading(report))]
    for table in report.tables:
        blocks = ["\n".join(_block_lines(table, columns)) for columns in _blocks(table)]
        if table.title:
            blocks[0] = f"{table.title}:\n{blocks[0]}"
        sections += blocks
        summaries = table.summaries() if table.is_summed and len(table.rows) > 1 else ()
        if summaries:
            sections.append("\n".join(_summary_lines(table, summaries)))
    if report.notes:
        notes = [_wrapped(f"note: {note}", "      ") for note in report.notes]
        sections.append("\n".join(line for lines in notes for line in lines))
    return "\n\n".join(sections)


def _heading(report: TableReport) -> list[str]:
    name = f"Table {report.name}" if report.name[0].isdigit() else report.name.capitalize()
    seeds = ""
    if report.seeds is not None:
        seeds = f", {report.seeds} seed{'s' if report.seeds > 1 else ''}"
        if report.first_seed != 1:
            seeds += f" from {report.first_seed} on"
    return _wrapped(f"{name}: {report.title}{seeds}", "    ")


class _Shown:
    """One column as lines of text: its name, and a part for ours, the thesis' and the error."""

    def __init__(self, table: Table, index: int, column: Column) -> None:
        cells = [row.cells[index] for row in table.rows]
        parts = [("ours", [number(column.unit, cell.mean) for cell in cells])]
        if table.has_published and any(cell.deviation is not None for cell in cells):
            parts.append(("± sd", [_deviation(column.unit, cell) for cell in cells]))
        if any(cell.published is not None for cell in cells):
            parts.append(("thesis", [_printed(column.unit, cell.published) for cell in cells]))
            heading = "points" if column.unit in _IN_POINTS else "error"
            parts.append((heading, [_error(column, cell) for cell in cells]))
        if len(parts) == 1:
            parts = [("", parts[0][1])]
        widths = [max(len(heading), *map(len, texts)) for heading, texts in parts]
        self.heading = _joined([heading for heading, _ in parts], widths)
        self.lines = [_joined([texts[row] for _, texts in parts], widths) for row in range(len(cells))]
        # Where the thesis has nothing beside it, the table's title says the unit for all columns.
        has_unit = table.has_published and column.unit not in (Unit.COUNT, Unit.SHARE)
        unit = f" ({column.unit.value})" if has_unit else ""
        self.names = wrap(column.name + unit.replace(" ", "\xa0"), max(_NAME_WIDTH, len(self.heading)))
        self.names = [name.replace("\xa0", " ").strip() for name in self.names]
        self.width = max(len(self.heading), *map(len, self.names), *map(len, self.lines))


def _blocks(table: Table) -> list[list[_Shown]]:
    """The columns in as many groups as the width needs."""
    room = WIDTH - _label_width(table)
    blocks: list[list[_Shown]] = [[]]
    taken = 0
    for index, column in enumerate(table.columns):
        shown = _Shown(table, index, column)
        needed = shown.width + len(_GAP)
        if blocks[-1] and taken + needed > room:
            blocks.append([])
            taken = 0
        blocks[-1].append(shown)
        taken += needed
    return blocks


def _block_lines(table: Table, columns: Sequence[_Shown]) -> list[str]:
    label_width = _label_width(table)
    widths = [each.width for each in columns]

    def line(label: str, texts: Sequence[str]) -> str:
        return (label.ljust(label_width) + _GAP + _joined(texts, widths, _GAP)).rstrip()

    height = max(len(each.names) for each in columns)
    names = [[""] * (height - len(each.names)) + each.names for each in columns]
    lines = [line("", [each[row] for each in names]) for row in range(height)]
    if any(each.heading.strip() for each in columns):
        lines.append(line(table.row_name, [each.heading for each in columns]))
    lines += [line(row.label, [each.lines[at] for each in columns]) for at, row in enumerate(table.rows)]
    return lines


def _summary_lines(table: Table, summaries: Sequence[ColumnSummary]) -> Iterator[str]:
    """One line a column, then by name whatever seeds do not explain."""
    units = {column.name: column.unit for column in table.columns}
    width = max(len(summary.column) for summary in summaries)
    yield f"{'over all rows'.ljust(width)}   mean error   mean |error|   correlation"
    for summary in summaries:
        mark = "points" if units[summary.column] in _IN_POINTS else "%"
        fit = "-" if summary.correlation is None else f"{summary.correlation:.3f}"
        mean, absolute = summary.mean_error_percent, summary.mean_absolute_error_percent
        yield (
            f"{summary.column.ljust(width)}   {f'{mean:+.1f} {mark}':>10}   "
            f"{f'{absolute:.1f} {mark}':>12}   {fit:>11}"
        )
    yield "furthest from the thesis:"
    for summary in summaries:
        unit = units[summary.column]
        yield from _wrapped(
            f"  {summary.column}: {number(unit, summary.worst.mean)} in {summary.worst_row}, "
            f"thesis {_printed(unit, summary.worst.published)}",
            "    ",
        )
    ratios = [summary for summary in summaries if units[summary.column] is Unit.MORE_PERCENT]
    if ratios:
        yield "highest of all rows:"
        for summary in ratios:
            yield from _wrapped(
                f"  {summary.column}: {summary.highest.mean:+.1f} % in {summary.highest_row}, "
                f"the thesis' highest {summary.highest_published:+.1f} % in {summary.highest_published_row}",
                "    ",
            )
    if any(row.cells[0].deviation is not None for row in table.rows):
        yield "further from the thesis than 2 standard deviations (*):"
        for summary in summaries:
            rows = " ".join(summary.off_rows) or "none"
            count = f"{len(summary.off_rows)} of {len(table.rows)}"
            yield from _wrapped(f"  {summary.column}, {count}: {rows}", "    ")


def number(unit: Unit, value: float) -> str:
    """As many digits as mean something."""
    if unit in (Unit.SECONDS, Unit.COUNT):
        return f"{value:.0f}"
    if unit is Unit.SHARE:
        return f"{value:.3f}"
    return f"{value:+.1f}" if unit is Unit.MORE_PERCENT else f"{value:.1f}"


def _deviation(unit: Unit, cell: Cell) -> str:
    return "" if cell.deviation is None else f"± {number(unit, cell.deviation).removeprefix('+')}"


def _printed(unit: Unit, value: float | None) -> str:
    """As the thesis prints it: utilisation with two digits."""
    if value is None:
        return "-"
    return f"{value:.2f}" if unit is Unit.SHARE else number(unit, value)


def _error(column: Column, cell: Cell) -> str:
    error = column.error_percent(cell)
    if error is None:
        return ""
    return f"{error:+.1f}{'' if column.unit in _IN_POINTS else '%'}{'*' if cell.is_off else ' '}"


def _joined(texts: Sequence[str], widths: Sequence[int], gap: str = "  ") -> str:
    return gap.join(text.rjust(width) for text, width in zip(texts, widths, strict=True))


def _label_width(table: Table) -> int:
    return max(len(table.row_name), *(len(row.label) for row in table.rows))


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
