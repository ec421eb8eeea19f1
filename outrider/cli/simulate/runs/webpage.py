"""A simulated schedule as one page for a browser: the service's timeline, with all that it needs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from outrider.service.web.page import page_files
from outrider.sim.results.joblog import JobRow
from outrider.sim.results.occupancy import Schedule, queued_over_time, used_over_time

MODULES = ("words.js", "schedule.js", "drawing.js", "timeline.js")
"""In the order in which they need one another."""
MOST_POINTS = 1_500
WIDE, HIGH = 1_000, 120
Steps = Sequence[tuple[int, int]]
_BEGIN = """
countFromZero();
const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = isDark ? "dark" : "light";
const told = JSON.parse(document.getElementById("data").textContent);
const model = { now: 0, schedule: new Schedule(told.overview, 0, told.transfers) };
const timeline = new Timeline(model, null);
timeline.show(document.getElementById("schedule"));
timeline.everything();
"""
_STYLE = """
main { display: block; max-width: 120rem; }
#schedule { display: flex; flex-direction: column; }
figure { margin: 1rem 0; } figcaption { color: var(--quiet); }
figure svg { width: 100%; height: 9rem; background: var(--raised); }
polyline { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
pre { overflow-x: auto; }
"""


def written_page(schedule: Schedule, name: str, lines: Sequence[str]) -> str:
    """The whole of it. A browser asks nobody for anything, and runs this script alone."""
    files = {each: content.decode() for each, content in page_files().items()}
    script = "\n".join(_inlined(files[each]) for each in MODULES) + _BEGIN
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{seal}'; base-uri 'none'"
    # Within a script element nothing but its end means anything to a browser.
    data = json.dumps(_data(schedule), separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(name)
    height = f"#schedule {{ height: min(85vh, {14 + 2 * schedule.processors}rem); }}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – Outrider</title>
<style>{files["page.css"]}{_STYLE}{height}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<main>
<pre tabindex="0">{html.escape(chr(10).join(lines))}</pre>
<div id="schedule"></div>
{"".join(_figures(schedule))}
</main>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _inlined(module: str) -> str:
    """A module's text beside the others, of which it needs no import any more."""
    kept = (line for line in module.splitlines() if not line.startswith("import "))
    return "\n".join(line.removeprefix("export ") for line in kept)


def _data(schedule: Schedule) -> object:
    """What the service's overview would say: processors in the place of nodes, jobs beside reservations."""
    bars = schedule.bars
    names = [schedule.names[bar.job - 1] if schedule.names else f"job {bar.job}" for bar in bars]
    overview = {
        "nodes": [f"p{number}" for number in range(schedule.processors)],
        "unavailable": [],
        "reservations": {
            "names": names,
            "users": ["reservation" if bar.is_reservation else "best effort" for bar in bars],
            "states": ["accepted" if bar.is_reservation else "job" for bar in bars],
            "starts_s": [bar.start_s for bar in bars],
            "ends_s": [bar.end_s for bar in bars],
            "ready_s": [None] * len(bars),
            "nodes": [
                [each for low, high in bar.processors for each in (low, high - low + 1)] for bar in bars
            ],
        },
        "taken": {"kinds": [], "starts_s": [], "ends_s": [], "nodes": []},
        "is_complete": True,
    }
    moved = [
        {"nodes": "", "state": "over", "begin_s": begin_s, "ready_s": end_s}
        for begin_s, end_s in schedule.transfers
    ]
    return {"overview": overview, "transfers": moved}


def _figures(schedule: Schedule) -> Iterable[str]:
    last_s = max((bar.end_s for bar in schedule.bars), default=1)
    yield _steps(
        "processors in use", used_over_time(schedule.bars), last_s, f"all are {schedule.processors:,}"
    )
    yield _steps("jobs that wait", queued_over_time(schedule.jobs), last_s)
    if schedule.transfers:
        changes = [
            (at_s, by) for begin_s, end_s in schedule.transfers for at_s, by in ((begin_s, 1), (end_s, -1))
        ]
        yield _steps("transfers on the link", _summed(changes), last_s)
    if schedule.disks:
        gigabytes = [(at_s, held // 10**6) for at_s, held in schedule.disks]
        yield _steps("images in the nodes' pools, in megabytes", gigabytes, last_s)
    yield _waiting(schedule.jobs)


def _summed(changes: Iterable[tuple[int, int]]) -> Steps:
    found: list[tuple[int, int]] = [(0, 0)]
    for at_s, by in sorted(changes):
        found.append((at_s, found[-1][1] + by))
    return found


def _steps(words: str, steps: Steps, last_s: int, more: str = "") -> str:
    """An amount over time; of a long run the most of each stretch, so that no peak is lost."""
    most = max((amount for _, amount in steps), default=0)
    wide_s = max(1, last_s // MOST_POINTS)
    peaks: dict[int, int] = {}
    ends = [*(at_s for at_s, _ in steps[1:]), last_s]
    for (at_s, amount), end_s in zip(steps, ends, strict=True):
        for place in range(at_s // wide_s, max(at_s, min(end_s, last_s) - 1) // wide_s + 1):
            peaks[place] = max(peaks.get(place, 0), amount)
    points = [(place * wide_s, amount) for place, amount in sorted(peaks.items())]
    stepped = [points[0]] if points else []
    for (_, before), (at_s, amount) in pairwise(points):
        stepped += [(at_s, before), (at_s, amount)]
    return _figure(f"{words}: at most {most:,}{', ' + more if more else ''}", stepped, last_s, most)


def _waiting(jobs: Sequence[JobRow]) -> str:
    """How many of the jobs have waited so long at most."""
    waits_s = sorted(job.start_s - job.submit_s for job in jobs)
    longest_s = max(waits_s, default=0)
    at = [longest_s * step // 200 for step in range(201)]
    points = [(each_s, 100 * bisect_right(waits_s, each_s) // max(1, len(waits_s))) for each_s in at]
    words = (
        f"waiting times: per cent of the jobs that waited so long at most; the longest waited {longest_s:,} s"
    )
    return _figure(words, points, longest_s, 100)


def _figure(words: str, points: Steps, last: int, most: int) -> str:
    drawn = " ".join(
        f"{WIDE * x / max(1, last):.1f},{HIGH - (HIGH - 4) * y / max(1, most):.1f}" for x, y in points
    )
    said = html.escape(words)
    return (
        f'<figure><svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" aria-label="{said}">'
        f'<polyline points="{drawn}"/></svg><figcaption>{said}</figcaption></figure>\n'
    )
