"""`outrider sim run`: any workload on a simulated site, and what it was like."""

from __future__ import annotations

import argparse

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError
from outrider.cli.output import check_writable
from outrider.cli.quantities import (
    delay,
    link_bytes_per_s,
    link_fault,
    node_fault,
    node_names,
    not_negative,
    percent,
    positive,
    size_bytes,
)
from outrider.cli.simulate.figure import check_picture
from outrider.cli.simulate.runs.suspending import add_suspending

IMAGES = "trace, none, predeployed, uniform=N, uniform=NxSIZE or skewed"
EVICTIONS = ("lfu", "lru", "timeout", "largest_first", "calendar")

_EPILOG = """A log without images and reservations runs over a counted pool of processors, a hundred
thousand jobs in about a second. Everything else runs on a site with nodes, links and
image pools, through the same scheduler that the service uses.

profiles:
  honest   100 Mbit/s, suspending at 50 MB/s, relayed and reused images, 10 % slower in a VM
  thesis   the constants of the thesis' own simulator: 60 s quantum, free suspension, no reuse

examples:
  outrider sim run log.swf.gz --policy aggressive
  outrider sim run log.swf.gz --limit 500 --nodes 64 --cpus 4 --images uniform=6x2GiB --pool 8GiB
  outrider sim run mixed.jsonl --profile thesis --reuse --gantt mixed.svg --json
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "run", run, "run a workload and report how it went", _EPILOG)
    parser.add_argument("workload", metavar="WORKLOAD", help=".swf, .trace, .xml, .lwf or .jsonl, maybe .gz")
    parser.add_argument("--limit", type=positive, metavar="N", help="read only the first N submissions")
    parser.add_argument(
        "--serial",
        action="store_true",
        default=None,
        help="schedule a .trace's best effort instance by instance (section 8.3)",
    )
    _add_site(parser.add_argument_group("site"))
    _add_images(parser.add_argument_group("images and links"))
    add_suspending(parser.add_argument_group("suspension and migration"))
    _add_batch(parser.add_argument_group("jobs of a batch system"))
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--fail",
        type=node_fault,
        action="append",
        metavar="NODE:FROM:UNTIL",
        help="the node is down in this time, in seconds of the simulation",
    )
    faults.add_argument(
        "--slow",
        type=link_fault,
        action="append",
        metavar="FROM:UNTIL:PERCENT",
        help="transfers that begin in this time take so much longer than planned",
    )
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--json", action="store_true", help="print the report as JSON")
    outputs.add_argument(
        "--jobs-csv", metavar="FILE", help="a row for each job, in the form that evalys reads"
    )
    outputs.add_argument("--swf", metavar="FILE", help="the schedule in Standard Workload Format")
    outputs.add_argument("--gantt", metavar="FILE", help="the schedule as a picture: .svg, .png or .pdf")
    outputs.add_argument("--html", metavar="FILE", help="everything as one self-contained page for a browser")
    outputs.add_argument("--load", metavar="FILE", help="only use and queue over time, for long logs")


def _add_site(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--nodes",
        type=node_names,
        metavar="N|n[1-64]",
        help="how many nodes, or their names (default: the workload's)",
    )
    group.add_argument("--cpus", type=positive, metavar="C", help="processors of each node (default: 1)")
    group.add_argument("--profile", choices=("honest", "thesis"), help="default: honest")
    group.add_argument(
        "--policy", metavar="POLICY",
        help="off, greedy, aggressive, conservative or reservations=N "
        "(default: aggressive, which is EASY; under --profile thesis: greedy)",
    )  # fmt: skip
    group.add_argument("--slowdown", type=not_negative, metavar="PERCENT",
                       help="how much longer all takes in a virtual machine (default: 10)")  # fmt: skip
    group.add_argument("--site-policy", metavar="FILE",
                       help="the site's policies: quotas, shares, prices, who yields")  # fmt: skip
    group.add_argument("--yielding", choices=("cheapest", "youngest", "site-order"),
                       help="which nodes a reservation takes if runs have to yield (default: cheapest; "
                            "under --profile thesis: site-order)")  # fmt: skip


def _add_images(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--images", default="trace", metavar="IMAGES", help=f"{IMAGES} (default: trace)")
    group.add_argument("--link-mbit", type=link_bytes_per_s, dest="link", metavar="R", help="default: 100")
    group.add_argument("--shared-link", type=percent, metavar="PERCENT",
                       help="use one link for all transfers, with this share for best effort")  # fmt: skip
    group.add_argument("--pool", type=size_bytes, metavar="SIZE", help="limit of each node's image pool")
    group.add_argument("--keep", type=size_bytes, metavar="SIZE",
                       help="space of each node for images that are not in use")  # fmt: skip
    group.add_argument("--evict", choices=EVICTIONS, help="which unused image is evicted first")
    group.add_argument("--reuse", action=argparse.BooleanOptionalAction, default=None,
                       help="whether an image that is on a node is used again")  # fmt: skip
    group.add_argument("--push-back", metavar="SECONDS|edf|jit",
                       help="how long before its latest start a transfer begins")  # fmt: skip
    group.add_argument("--shipping", choices=("relay", "per-node"),
                       help="one transfer for all nodes of a reservation, or one for each")  # fmt: skip
    group.add_argument(
        "--seed", type=not_negative, default=1, help="seed of the draw of --images (default: 1)"
    )


def _add_batch(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=("schedule", "lead"),
        help="run best effort as jobs, which Outrider starts (schedule) or the batch system (lead)",
    )
    group.add_argument(
        "--batch-system",
        choices=("slurm", "gridengine"),
        help="with --mode lead: whose own backfill is modelled (default: slurm)",
    )
    group.add_argument(
        "--order",
        choices=("fcfs", "age", "size"),
        help="with --mode schedule: the order of the queue (default: fcfs)",
    )
    group.add_argument(
        "--delay",
        type=delay,
        action="append",
        metavar="NAME=SECONDS",
        help="delays of the batch system: start, end, margin, back (default: 0 each)",
    )


def run(arguments: argparse.Namespace) -> None:
    for picture in (arguments.gantt, arguments.load):
        if picture:
            check_picture(picture)
    for path in (arguments.jobs_csv, arguments.swf, arguments.html):
        check_writable(path)
    from outrider.cli.simulate.runs.log import RunResult, runs_as_log
    from outrider.cli.simulate.runs.output import deliver
    from outrider.cli.simulate.runs.site import run_site
    from outrider.collector import collector_paused
    from outrider.sim.workload.trace import WorkloadError

    try:
        # Nothing that a run makes refers to itself in a circle: to look for that costs more the more waits.
        with collector_paused():
            found = None if arguments.mode else runs_as_log(arguments)
            result = found if isinstance(found, RunResult) else run_site(arguments, found)
    except WorkloadError as error:
        raise InputError(str(error)) from error
    deliver(result, arguments)
