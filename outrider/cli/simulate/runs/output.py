"""What `outrider sim run` prints and writes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from outrider.cli.output import complete_file, print_json
from outrider.cli.quantities import in_gigabytes, in_hours
from outrider.cli.simulate.runs.log import RunResult
from outrider.sim.results.metrics import Summary
from outrider.sim.results.report import RunReport

if TYPE_CHECKING:
    from outrider.sim.results.occupancy import Schedule

MOST_REFUSALS = 10
MOST_NAMES = 8


def deliver(result: RunResult, arguments: argparse.Namespace) -> None:
    """Files first, so that a report is only printed when everything that was asked for exists."""
    if arguments.jobs_csv or arguments.swf or arguments.gantt or arguments.load or arguments.html:
        occupancy = result.occupancy()
        if arguments.jobs_csv:
            from outrider.sim.results.joblog import write_jobs

            with complete_file(arguments.jobs_csv) as path, open(path, "w", newline="") as file:
                write_jobs(occupancy.jobs, file)
        if arguments.swf:
            with complete_file(arguments.swf) as path, open(path, "w", newline="\n") as file:
                write_schedule(occupancy, result.header, file)
        for path_wanted, has_gantt in ((arguments.gantt, True), (arguments.load, False)):
            if path_wanted:
                from outrider.sim.plots.gantt import draw_schedule

                with complete_file(path_wanted) as path:
                    draw_schedule(occupancy, path, name=result.report.workload, has_gantt=has_gantt)
        if arguments.html:
            from outrider.cli.simulate.runs.webpage import written_page

            lines = list(report_lines(result.report, result.site))
            with complete_file(arguments.html) as path, open(path, "w", encoding="utf-8") as file:
                file.write(written_page(occupancy, result.report.workload, lines))
    if arguments.json:
        print_json(result.report)
    else:
        print("\n".join(report_lines(result.report, result.site)))


def write_schedule(occupancy: Schedule, header: tuple[str, ...], file: TextIO) -> None:
    """The jobs as they were scheduled; the log's own header stays, its waiting times do not."""
    from outrider.sim.workload.formats.swf import COLUMNS, UNKNOWN, SwfLog, write_log
    from outrider.sim.workload.formats.swf_trace import COMPLETED

    rows = [
        dict.fromkeys(COLUMNS, UNKNOWN)
        | {
            "job": job.number, "submit_s": job.submit_s, "wait_s": job.start_s - job.submit_s,
            "run_s": job.end_s - job.start_s, "processors": job.processors, "status": COMPLETED,
            "requested_processors": job.processors, "requested_s": job.requested_s,
        }
        for job in occupancy.jobs
    ]  # fmt: skip
    note = "; Note: a schedule that Outrider's simulator made; wait times are its own"
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    own = header or ("; Version: 2.2", f"; MaxProcs: {occupancy.processors}")
    write_log(file, SwfLog(header=(*own, note), **columns))


def report_lines(report: RunReport, site: str) -> Iterator[str]:
    yield f"{report.workload} on {site}"
    yield ""
    yield f"  jobs             {report.jobs:,}"
    if report.waiting_s is not None and report.bounded_slowdown is not None:
        yield f"  {'':<16} {'mean':>12} {'median':>12} {'p90':>12} {'p99':>12} {'max':>12}"
        yield _five("waiting time", report.waiting_s, in_hours)
        yield _five("bounded slowdown", report.bounded_slowdown, lambda value: f"{value:,.2f}")
        yield f"  tail             {report.tail_jobs:,} jobs with a bounded slowdown of 3 or more"
    yield f"  makespan         {in_hours(report.makespan_s)}"
    yield f"  utilisation      {100 * report.utilisation:.1f} %"
    yield f"  longest queue    {report.longest_queue:,} jobs"
    if report.images is not None:
        images = report.images
        yield f"  bytes moved      {in_gigabytes(images.moved_bytes)} in {images.transfers:,} transfers"
        yield f"  peak disk        {in_gigabytes(images.peak_disk_bytes)} on {images.peak_disk_node}"
    if report.reservations is not None:
        found = report.reservations
        yield (
            f"  reservations     {found.accepted:,} accepted ({found.late:,} began without their image), "
            f"{len(found.refused):,} refused"
        )
        cancelled = [each for each in report.leases or () if each.state == "cancelled"]
        if cancelled:
            yield f"    {len(cancelled):,} of all leases cancelled by their users"
        if found.broken:
            yield f"    {found.broken:,} of those accepted lost a node, with no other to take its place"
        if found.moved:
            yield f"    leases with a deadline moved {found.moved:,} times for others"
        if found.yielded:
            yield f"    {found.yielded:,} yielded to others, and went on as best effort"
        if found.revenue is not None:
            from outrider.core.leases.admission import thousandths

            revenue = found.revenue
            yield f"    charged          {thousandths(revenue.charged)}"
            yield (
                f"    lost             {thousandths(revenue.lost_to_price)} with {revenue.too_dear:,} offers "
                f"that were too dear, {thousandths(revenue.lost_to_refusals)} with other refusals"
            )
        for refused in found.refused[:MOST_REFUSALS]:
            yield f"    {refused.workspace}: {refused.reason}"
        if len(found.refused) > MOST_REFUSALS:
            yield f"    and {len(found.refused) - MOST_REFUSALS:,} more; --json has all"
    if report.never_fit:
        names = ", ".join(report.never_fit[:MOST_NAMES])
        more = len(report.never_fit) - MOST_NAMES
        rest = f" and {more:,} more" if more > 0 else ""
        yield f"  never fit        {len(report.never_fit):,}: {names}{rest}"


def _five(name: str, summary: Summary, show: object) -> str:
    assert callable(show)
    values = (summary.mean, summary.median, summary.p90, summary.p99, summary.maximum)
    return f"  {name:<16} " + " ".join(f"{show(value):>12}" for value in values)
