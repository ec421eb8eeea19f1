"""Who submits what in the published traces: Tables 8.1 and 8.2 and Figure 8.5 of the thesis."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, pstdev

from outrider.sim.experiments.comparison import Cell, Column, Table, TableReport, TableRow, Unit
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.trace import Trace

TRACES = ("III", "IV")

# Shares in percent as Table 8.2 prints them, of submissions and of images, for img.1 to img.6.
PRINTED_PERCENT = {
    "III": ((23, 18, 15, 18, 24, 3), (21, 15, 12, 15, 14, 12)),
    "IV": ((55, 27, 6, 5, 3, 3), (60, 25, 6, 4, 3, 3)),
}
IMG5_NOTE = (
    "img.5 of trace III has 34 of 144 images, which is 24 %: the printed 14 % is a slip, and with it "
    "the column sums to 89 %"
)
SLIPS = (
    "Table 8.1 gives traces III and IV 114 images: 144 of 600 MB are its own 86.4 GB",
    "Table 8.1 gives their durations a deviation of 4.24 s about their mean of 53.06 s: it is 31.2 s",
)
WINDOW_S = 100
BURST_S = 900
"""Starts less than that apart belong to one window of trace II."""

# What Table 8.1 prints, by column: of traces I and II, and of III and IV where it gives both one number.
_PRINTED_TRACES = {
    "I": (36, 7200, 2, 4, 110, 66.0, 1800, None, 6),
    "II": (35, 7200, 2, 4, 106, 63.6, 1800, None, 6),
    "III": (62, 4700, 2, 16, 114, 86.4, 53.06, 4.24, 6),
    "IV": (62, 4700, 2, 16, 114, 86.4, 53.06, 4.24, 6),
}
_TRACE_COLUMNS = (
    Column(name="submissions", unit=Unit.COUNT),
    Column(name="last submission", unit=Unit.SECONDS),
    Column(name="least nodes", unit=Unit.COUNT),
    Column(name="most nodes", unit=Unit.COUNT),
    Column(name="images to deploy", unit=Unit.COUNT),
    Column(name="bytes to deploy", unit=Unit.GIGABYTES),
    Column(name="mean duration", unit=Unit.SECONDS),
    Column(name="its deviation", unit=Unit.SECONDS),
    Column(name="images used", unit=Unit.COUNT),
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


def traces() -> TableReport:
    """Table 8.1: what the four traces are, counted in them."""
    rows = tuple(
        TableRow(
            label=name,
            cells=tuple(
                Cell(mean=mean, published=printed)
                for mean, printed in zip(_facts(trace), _PRINTED_TRACES[name], strict=True)
            ),
        )
        for name, trace in ((name, _as_described(name)) for name in _PRINTED_TRACES)
    )
    table = Table(title="", row_name="trace", columns=_TRACE_COLUMNS, rows=rows, is_summed=False)
    bursts = start_windows(_as_described("II"))
    widest_s = max(last_s - first_s for first_s, last_s in bursts)
    return TableReport(
        name="8.1",
        title="traces used in experiments",
        seeds=None,
        tables=(table,),
        notes=(
            "what it calls a trace's duration is set beside the last submission",
            "the files of traces I and II say 60 s for each workspace, the text 1800 s, which is taken",
            f"trace II's starts come in {len(bursts)} windows of {widest_s} s at most; the table prints "
            f"{WINDOW_S} s every 900 s, and section 8.1 the same",
            *SLIPS,
        ),
    )


def _as_described(name: str) -> Trace:
    """A trace with the durations that the thesis' text gives it."""
    return published_trace(name, duration_s=None if name in TRACES else 1800)


def _facts(trace: Trace) -> tuple[float, ...]:
    workspaces = [submission.workspace for submission in trace.submissions]
    nodes = [workspace.instances for workspace in workspaces]
    durations_s = [workspace.duration_s for workspace in workspaces]
    images = [workspace.image for workspace in workspaces if workspace.image is not None]
    moved = sum(
        workspace.image.size_bytes * workspace.instances for workspace in workspaces if workspace.image
    )
    return (
        len(workspaces),
        max(submission.at_s for submission in trace.submissions),
        min(nodes),
        max(nodes),
        sum(nodes),
        moved / 10**9,
        fmean(durations_s),
        pstdev(durations_s),
        len({image.uri for image in images}),
    )


def start_windows(trace: Trace) -> list[tuple[int, int]]:
    """From when until when reservations start together, where the next ones are far off."""
    windows: list[tuple[int, int]] = []
    for start_s in sorted(submission.workspace.start_s or 0 for submission in trace.submissions):
        if windows and start_s - windows[-1][1] < BURST_S / 2:
            windows[-1] = (windows[-1][0], start_s)
        else:
            windows.append((start_s, start_s))
    return windows


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
        notes=(IMG5_NOTE, *SLIPS),
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
