"""`outrider sim savings`: what Outrider would have saved in a site's own months."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError
from outrider.cli.output import print_csv, print_json, say
from outrider.cli.quantities import in_gigabytes, link_bytes_per_s, positive, size_bytes
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.sim.workload.savings.summary import Period, Savings

FORMS = ("sacct", "gridengine", "swf", "table")
LINK_MBIT, POOL = "1000", "100GB"

_EPILOG = """ACCOUNTING is what sacct -P prints with a line of names, Grid Engine's file accounting, a log
in SWF, or a table as CSV with PM100's columns; any with .gz. MAP is CSV: field,pattern,image,size, and
the first rule that fits a job counts. Fields are user, group, account, name, partition, comment and
any; patterns are a shell's.

The site's own schedule is kept: what others would gain by nodes that are free earlier is not counted.

examples:
  sacct -P -X -a -S 2026-01-01 -o JobID,User,JobName,Submit,Start,End,NNodes,NodeList >log
  outrider sim savings log --map images.csv --link-mbit 10000 --picture savings.svg
  outrider sim savings $SGE_ROOT/default/common/accounting --map images.csv --csv
"""
_COLUMNS = (
    "month", "jobs", "sent_bytes", "sent_bytes_outrider", "lost_node_hours", "wait_s", "wait_s_outrider",
)  # fmt: skip


def add(commands: Subparsers) -> None:
    parser = add_command(
        commands, "savings", savings, "say what Outrider would have saved in a site's own months", _EPILOG
    )
    parser.add_argument("accounting", metavar="ACCOUNTING", help="what the site has recorded")
    parser.add_argument("--map", required=True, metavar="FILE", help="which job wants which image")
    parser.add_argument("--format", choices=FORMS, help="of ACCOUNTING (default: by its name or first line)")
    parser.add_argument(
        "--link-mbit", type=link_bytes_per_s, dest="link", default=LINK_MBIT, metavar="R",
        help=f"what the server of images can send (default: {LINK_MBIT})",
    )  # fmt: skip
    parser.add_argument(
        "--pool", type=size_bytes, default=POOL, metavar="SIZE",
        help=f"room for images on each node (default: {POOL})",
    )  # fmt: skip
    parser.add_argument(
        "--keeps-images", action="store_true", help="nodes keep the images that jobs have fetched already"
    )
    parser.add_argument(
        "--processors-per-node", type=positive, default=1, metavar="N", help="of a log in SWF (default: 1)"
    )
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--json", action="store_true", help="print the result as JSON")
    outputs.add_argument("--csv", action="store_true", help="print a row for each month")
    outputs.add_argument("--picture", metavar="FILE", help="the months as a picture: .svg, .png or .pdf")


def savings(arguments: argparse.Namespace) -> None:
    if arguments.json and arguments.csv:
        raise InputError("--json and --csv both say what to print: give one of the two")
    if arguments.picture:
        check_picture(arguments.picture)
    from outrider.sim.workload.savings.reading import read_accounting
    from outrider.sim.workload.savings.records import read_map
    from outrider.sim.workload.savings.replay import SavingsSite
    from outrider.sim.workload.savings.summary import savings_of
    from outrider.sim.workload.trace import WorkloadError

    site = SavingsSite(
        link_bytes_per_s=arguments.link, pool_bytes=arguments.pool, keeps_images=arguments.keeps_images
    )
    try:
        accounting = read_accounting(
            arguments.accounting, arguments.format, processors_per_node=arguments.processors_per_node
        )
        found = savings_of(accounting, read_map(arguments.map), site)
    except WorkloadError as error:
        raise InputError(str(error)) from error
    except ValueError as error:
        raise InputError(f"{arguments.map}: {error}: see its patterns") from error
    if arguments.picture:
        from outrider.sim.plots.savings import draw_savings

        draw_savings(found, arguments.picture)
    _print(found, arguments)


def _print(found: Savings, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(found)
    elif arguments.csv:
        print_csv(
            _COLUMNS,
            (
                (
                    each.name, each.jobs, each.before.sent_bytes, each.after.sent_bytes,
                    each.before.lost_node_hours, each.before.wait_mean_s, each.after.wait_mean_s,
                )
                for each in found.months
            ),
        )  # fmt: skip
    else:
        print(screen(found))
        for why, count in found.passed_over.items():
            say(f"{count} records passed over {why}")


def screen(found: Savings) -> str:
    """The whole on one screen."""
    whole = found.whole
    span = f"{found.months[0].name} to {found.months[-1].name}"
    if len(found.months) == 1:
        span = found.months[0].name
    lines = [
        f"{whole.jobs} jobs with an image in {span}, {found.jobs_without_image} without",
        "",
        f"{'':24}{'as it was':>16}{'with Outrider':>16}{'saved':>16}",
        *_rows(whole),
    ]
    share = 100 * whole.saved_node_hours / found.node_hours if found.node_hours else 0.0
    lines += ["", f"that is {share:.2f} % of the {found.node_hours:,.0f} node-hours of these jobs"]
    if whole.later_jobs:
        lines.append(f"{whole.later_jobs} jobs would have had their image later than they did")
    if found.jobs_without_nodes:
        lines.append(f"{found.jobs_without_nodes} jobs name no nodes, and were put on nodes in turn")
    return "\n".join(lines)


def _rows(period: Period) -> list[str]:
    before, after = period.before, period.after
    rows = [
        (
            "sent by the server", in_gigabytes(before.sent_bytes), in_gigabytes(after.sent_bytes),
            in_gigabytes(period.saved_bytes),
        ),
        (
            "node-hours of fetching", f"{before.lost_node_hours:,.1f}", f"{after.lost_node_hours:,.1f}",
            f"{period.saved_node_hours:,.1f}",
        ),
    ]  # fmt: skip
    for name in ("mean", "median", "p95"):
        left, right = getattr(before, f"wait_{name}_s"), getattr(after, f"wait_{name}_s")
        rows.append(
            (f"until the image, {name}", f"{left:,.0f} s", f"{right:,.0f} s", f"{left - right:,.0f} s")
        )
    return [f"  {name:22}{left:>16}{right:>16}{saved:>16}" for name, left, right, saved in rows]
