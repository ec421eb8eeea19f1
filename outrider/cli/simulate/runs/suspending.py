"""Suspension and migration of best effort in a simulated site, as the options say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.cli.errors import InputError
from outrider.cli.quantities import disk_speed, not_negative, positive

if TYPE_CHECKING:
    from outrider.core.besteffort.suspension import SuspensionRules
    from outrider.core.model import Node
    from outrider.sim.setup import Setup
    from outrider.sim.workload.trace import Trace, TraceSubmission

FREE = 0


def rate_or_free(text: str) -> int:
    """MB/s, or `free`."""
    return FREE if text == "free" else positive(text)


OPTIONS = {
    "suspension": "--suspension", "suspend_rate": "--suspend-rate", "resume_rate": "--resume-rate",
    "suspend_seconds": "--suspend-seconds", "resume_seconds": "--resume-seconds",
    "shared_disk": "--shared-disk", "disk_speed": "--disk-speed", "least_run": "--least-run",
    "migration": "--migration", "migration_rate": "--migration-rate",
}  # fmt: skip
"""Attributes and options: what only a site has whose best effort can be suspended."""
# What has no effect where suspending takes no time.
_OF_A_RATE = ("resume_rate", "suspend_seconds", "shared_disk", "disk_speed")


def add_suspending(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--suspension", choices=("none", "serial", "all"),
                       help="which best effort is suspended to make way; serial: what has one instance "
                            "(default: all)")  # fmt: skip
    group.add_argument("--suspend-rate", type=rate_or_free, metavar="MB/S|free",
                       help="rate of writing memory, or free (honest: 50, thesis: free)")  # fmt: skip
    group.add_argument("--resume-rate", type=positive, metavar="MB/S",
                       help="rate of reading memory (default: the suspend rate)")  # fmt: skip
    group.add_argument("--suspend-seconds", type=not_negative, metavar="S",
                       help="added to each suspension (default: 0)")  # fmt: skip
    group.add_argument("--resume-seconds", type=not_negative, metavar="S",
                       help="added to each resumption (default: 0)")  # fmt: skip
    group.add_argument("--shared-disk", action="store_true", default=None,
                       help="all nodes share one file system with these rates")  # fmt: skip
    group.add_argument("--disk-speed", type=disk_speed, action="append", metavar="NODES=PERCENT",
                       help="some nodes' disks have this part of the rates: n[1-4]=50")  # fmt: skip
    group.add_argument("--least-run", type=positive, metavar="S",
                       help="begin or resume nothing for less work than this (honest: 60)")  # fmt: skip
    group.add_argument("--migration", choices=("no", "yes", "free"),
                       help="whether suspended work may resume on other nodes; free: memory and image get "
                            "there in no time (default: no)")  # fmt: skip
    group.add_argument("--migration-rate", type=positive, metavar="MB/S",
                       help="rate at which they are moved (default: 12.5)")  # fmt: skip


def with_suspension(setup: Setup, arguments: argparse.Namespace, nodes: Sequence[Node]) -> Setup:
    """The site under the suspension that was asked for; what says nothing is refused."""
    given = [name for name in OPTIONS if getattr(arguments, name) is not None]
    if not given:
        return setup
    if not setup.suspension.is_allowed:
        raise InputError(
            f"{OPTIONS[given[0]]}: with --images none nothing is a virtual machine that could be suspended; "
            "use --images predeployed"
        )
    rules = setup.suspension
    if arguments.suspension == "none":
        if len(given) > 1:
            raise InputError(f"{OPTIONS[given[1]]} has no effect with --suspension none: leave one out")
        from outrider.core.besteffort.suspension import SuspensionRules

        never = SuspensionRules(is_allowed=False, makes_way_for_all=rules.makes_way_for_all)
        return replace(setup, suspension=never)
    return replace(setup, suspension=_rules(rules, arguments, nodes))


def _rules(rules: SuspensionRules, arguments: argparse.Namespace, nodes: Sequence[Node]) -> SuspensionRules:
    from outrider.sim.setup import MEGABYTE

    if arguments.suspend_rate is not None:
        rules = replace(rules, disk_bytes_per_s=arguments.suspend_rate * MEGABYTE or None)
    for name in _OF_A_RATE:
        if getattr(arguments, name) is not None and rules.disk_bytes_per_s is None:
            raise InputError(f"{OPTIONS[name]} has no effect where writing is free: give a --suspend-rate")
    if arguments.shared_disk and arguments.disk_speed:
        raise InputError("--disk-speed is of disks that nodes have to themselves: leave out --shared-disk")
    if arguments.migration_rate is not None and arguments.migration != "yes":
        raise InputError("--migration-rate needs --migration yes")
    changes: dict[str, object] = {
        "read_bytes_per_s": arguments.resume_rate and arguments.resume_rate * MEGABYTE,
        "saving_s": arguments.suspend_seconds,
        "restart_s": arguments.resume_seconds,
        "is_shared": arguments.shared_disk,
        "least_run_s": arguments.least_run,
        "migration_bytes_per_s": arguments.migration_rate and arguments.migration_rate * MEGABYTE,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if arguments.disk_speed:
        changes["node_percents"] = _percents(arguments.disk_speed, nodes)
    if arguments.migration is not None:
        changes["is_migrating"] = arguments.migration != "no"
    if arguments.migration == "free":
        changes["migration_bytes_per_s"] = None
    return replace(rules, **changes)  # type: ignore[arg-type]


def _percents(speeds: Sequence[tuple[Sequence[str], int]], nodes: Sequence[Node]) -> tuple[int, ...]:
    numbers = {node.name: number for number, node in enumerate(nodes)}
    percents = [100] * len(nodes)
    for names, percent in speeds:
        for name in names:
            if name not in numbers:
                raise InputError(
                    f"--disk-speed: there is no node {name}; the first of {len(nodes)} is {nodes[0].name}"
                )
            percents[numbers[name]] = percent
    return tuple(percents)


def suspends_the_serial_alone(trace: Trace, arguments: argparse.Namespace) -> Trace:
    """With --suspension serial, what runs on several nodes together keeps them once it has begun."""
    if arguments.suspension != "serial":
        return trace

    def kept(submission: TraceSubmission) -> TraceSubmission:
        workspace = submission.workspace
        if not workspace.is_best_effort or not workspace.is_parallel or workspace.instances == 1:
            return submission
        return replace(submission, workspace=replace(workspace, is_preemptible=False))

    return replace(trace, submissions=tuple(kept(submission) for submission in trace.submissions))
