"""A log without images: straight from its columns to a counted pool of processors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.errors import InputError
from outrider.cli.simulate.runs.suspending import OPTIONS as SUSPENDING
from outrider.sim.results.report import RunReport, batch_report
from outrider.sim.workload.formats.convert import Form, form_of, read_trace
from outrider.sim.workload.trace import Trace

if TYPE_CHECKING:
    from outrider.sim.batch.counted import BatchLog
    from outrider.sim.results.occupancy import Schedule
    from outrider.sim.workload.formats.swf import SwfLog

# What only a site with nodes understands, as attributes and as options.
_SITE_ONLY = {
    "profile": "--profile", "link": "--link-mbit", "shared_link": "--shared-link", "pool": "--pool",
    "keep": "--keep", "evict": "--evict", "reuse": "--reuse", "push_back": "--push-back",
    "shipping": "--shipping", "yielding": "--yielding", "slowdown": "--slowdown", "serial": "--serial",
    "fail": "--fail", "slow": "--slow", **SUSPENDING,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The report, and on demand everything for pictures and logs."""

    report: RunReport
    occupancy: Callable[[], Schedule]
    site: str
    """What it ran on, in words."""
    header: tuple[str, ...] = field(default=())
    """The comment lines of the log it came from, which must stay in all copies."""


def runs_as_log(arguments: argparse.Namespace) -> RunResult | Trace | None:
    """Run the workload over a counted pool. If it needs a site with nodes: the trace, where that had to be
    read to know it, else None."""
    if arguments.images not in ("trace", "none"):
        return None
    if form_of(arguments.workload) is Form.SWF:
        from outrider.sim.workload.formats.swf import read_log

        log = read_log(arguments.workload, limit=arguments.limit)
        rows, header, machine = _log_rows(log), log.header, log.max_processors
    else:
        trace = read_trace(arguments.workload, limit=arguments.limit, is_serial=bool(arguments.serial))
        if arguments.profile or not is_counted(trace, has_images=arguments.images == "trace"):
            return trace
        rows, header = _trace_rows(trace), ()
        machine = sum(node.capacity["cpus"] for node in trace.nodes) or None
    for name, option in _SITE_ONLY.items():
        if getattr(arguments, name) is not None:
            raise InputError(
                f"{option} is about nodes with images, and {arguments.workload} has no images; leave it out, "
                "or give it some with --images uniform=6"
            )
    return _run(arguments, rows, header, _capacity(arguments, machine))


def is_counted(trace: Trace, *, has_images: bool = True) -> bool:
    """Whether nothing in it depends on nodes: parallel best-effort jobs of single processors."""
    return all(
        submission.workspace.is_best_effort
        and (submission.workspace.is_parallel or submission.workspace.instances == 1)
        and submission.workspace.resources.amounts == (("cpus", 1),)
        and (submission.workspace.image is None or not has_images)
        for submission in trace.submissions
    )


def _run(
    arguments: argparse.Namespace,
    rows: list[tuple[str, int, int, int, int]],
    header: tuple[str, ...],
    capacity: int,
) -> RunResult:
    from outrider.core.besteffort.counted import Policy
    from outrider.sim.batch.counted import cleaned, run_batch

    try:
        policy = Policy.named(arguments.policy or "aggressive")
    except ValueError as error:
        raise InputError(f"--policy: {error}") from error
    never_fit = [row[0] for row in rows if row[3] > capacity]
    log: BatchLog = cleaned(row[1:] for row in rows if row[3] <= capacity)
    if not len(log):
        raise InputError(f"{arguments.workload}: no job in it can run on {capacity} processors; see --nodes")
    result = run_batch(
        log.submit_s, log.run_s, log.processors, log.requested_s, capacity=capacity, policy=policy
    )
    name = Path(arguments.workload).name

    def occupancy() -> Schedule:
        from outrider.sim.results.occupancy import batch_occupancy

        return batch_occupancy(log, result, capacity, name)

    return RunResult(
        report=batch_report(name, log, result, capacity=capacity, never_fit=never_fit),
        occupancy=occupancy,
        site=f"{capacity:,} processors, policy {arguments.policy or 'aggressive'}",
        header=header,
    )


def _log_rows(log: SwfLog) -> list[tuple[str, int, int, int, int]]:
    """(name, submitted, ran, processors, requested), from the first submission on."""
    first_s = min(log.submit_s, default=0)
    rows = zip(log.job, log.submit_s, log.run_s, log.processors, log.requested_s, strict=True)
    found = [
        (f"job{job}", at_s - first_s, run_s, width, wanted_s) for job, at_s, run_s, width, wanted_s in rows
    ]
    return sorted(found, key=lambda row: row[1])


def _trace_rows(trace: Trace) -> list[tuple[str, int, int, int, int]]:
    return [
        (
            submission.workspace.name, submission.at_s, submission.run_s, submission.workspace.instances,
            submission.workspace.duration_s,
        )
        for submission in trace.submissions
    ]  # fmt: skip


def _capacity(arguments: argparse.Namespace, machine: int | None) -> int:
    if arguments.nodes:
        return len(arguments.nodes) * (arguments.cpus or 1)
    if machine is None:
        raise InputError(f"{arguments.workload} does not say how many processors there are; see --nodes")
    if arguments.cpus:
        raise InputError("--cpus is the processors of each node: name the nodes as well, with --nodes")
    return machine
