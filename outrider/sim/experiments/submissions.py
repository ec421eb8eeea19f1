"""Who submits what in traces III and IV: Table 8.2 and Figure 8.5 of the thesis."""

from __future__ import annotations

from collections import Counter

from outrider.sim.experiments.comparison import Cell, Column, Table, TableReport, TableRow, Unit
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.trace import Trace

TRACES = ("III", "IV")

# Shares in percent as Table 8.2 prints them, of submissions and of images, for img.1 to img.6.
PRINTED_PERCENT = {
    "III": ((23, 18, 15, 18, 24, 3), (21, 15, 12, 15, 14, 12)),
    "IV": ((55, 27, 6, 5, 3, 3), (60, 25, 6, 4, 3, 3)),
}
NOTES = (
    "img.5 of trace III has 34 of 144 images, which is 24 %: the printed 14 % is a slip, and with it "
    "the column sums to 89 %",
    "Table 8.1 gives both traces 114 images: 144 of 600 MB are its own 86.4 GB",
    "Table 8.1 gives the durations a deviation of 4.24 s about their mean of 53.06 s: it is 31.2 s",
)


def image_counts(trace: Trace) -> list[tuple[str, int, int]]:
    """For each image, by name: how many submissions ask for it, and how many instances."""
    submissions: Counter[str] = Counter()
    images: Counter[str] = Counter()
    for submission in trace.submissions:
        image = submission.workspace.image
        if image is not None:
            submissions[image.uri] += 1
            images[image.uri] += submission.workspace.instances
    return [(uri, submissions[uri], images[uri]) for uri in sorted(submissions)]


def distribution() -> TableReport:
    """Table 8.2, with the counts behind its percentages."""
    counts = {name: image_counts(published_trace(name)) for name in TRACES}
    columns: list[Column] = []
    cells: list[list[Cell]] = [[] for _ in counts["III"]]
    for name in TRACES:
        for what, place in (("submissions", 1), ("images", 2)):
            amounts = [int(row[place]) for row in counts[name]]
            columns += [
                Column(name=f"{name} {what}", unit=Unit.COUNT),
                Column(name=f"share of {name} {what}", unit=Unit.PERCENT),
            ]
            for number, amount in enumerate(amounts):
                share = Cell(
                    mean=100 * amount / sum(amounts), published=PRINTED_PERCENT[name][place - 1][number]
                )
                cells[number] += [Cell(mean=amount), share]
    rows = tuple(TableRow(label=f"img.{number}", cells=tuple(row)) for number, row in enumerate(cells, 1))
    table = Table(title="", row_name="image", columns=tuple(columns), rows=rows)
    return TableReport(
        name="8.2",
        title="distribution of images in traces III and IV",
        seeds=None,
        tables=(table,),
        notes=NOTES,
    )


def cumulative(trace: Trace) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]:
    """Submissions and images handed in so far: (instant, number) at each submission, from 0 on."""
    images = 0
    submissions_over_time: list[tuple[float, float]] = []
    images_over_time: list[tuple[float, float]] = []
    for number, submission in enumerate(trace.submissions, 1):
        images += submission.workspace.instances
        submissions_over_time.append((submission.at_s, number))
        images_over_time.append((submission.at_s, images))
    return tuple(submissions_over_time), tuple(images_over_time)


def rate(trace: Trace, every_s: int) -> tuple[tuple[float, float], ...]:
    """How many submissions each interval has: (its beginning, number), empty ones included."""
    counts = Counter(submission.at_s // every_s for submission in trace.submissions)
    last = max(counts, default=0)
    return tuple((index * every_s, counts[index]) for index in range(last + 1))


def busiest_span(trace: Trace, length_s: int) -> tuple[int, int]:
    """The most submissions within so many seconds: how many, and from when on."""
    arrivals = [submission.at_s for submission in trace.submissions]
    found = [(sum(at_s <= other_s <= at_s + length_s for other_s in arrivals), at_s) for at_s in arrivals]
    return max(found, key=lambda pair: (pair[0], -pair[1]))
