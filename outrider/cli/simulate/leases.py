"""`outrider sim leases`: a log with reservations put into it, and users who react, under many policies."""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command, add_form_options
from outrider.cli.errors import InputError
from outrider.cli.output import complete_file, print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import not_negative, percent, positive
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.sim.leases.experiment import LeaseCase, LeaseRow

DEFAULT_SEEDS = 5
_COLUMNS = ("log", "system", "policy", "users", "premium", "work", "hours", "size", "seeds")
CSV_HEADER = (*_COLUMNS, "metric", "mean", "error", "half_width")

_EPILOG = """The jobs of the log are best effort. Reservations of some part of the machine are put into it,
asked for by users who want them at one time. Each seed plays other days of the log, and draws other
reservations; all rows of a table have the same draws. What follows ± is half of a 95 % interval.

systems
  suspend     virtual machines, suspended before a reservation and resumed after it
  migrate     the same; resumed on other nodes where that is sooner
  late        as suspend; a reservation's nodes are chosen anew two minutes before it (without images)
  whole       jobs, begun only where they end before a reservation; nobody is disturbed
  checkpoint  jobs that save themselves: what was not saved is done again
  requeue     jobs that are killed for a reservation that was accepted later, and begun anew
  plain       jobs of Slurm's own backfill, none of which is disturbed
policies
  all, none     accept all that there is room for, or nothing
  hour-share=N  reservations have N % of each hour at most
  protect=N     while the predicted mean bounded slowdown of best effort stays below N
  idle=N        on N % of the machine, together with what jobs run on and wait for now
  adaptive=N    a share that follows what is worth more, if an hour of a waiting job costs N hours of a node
  oracle=N      knows all jobs: accepts as many as slow them down by N % at most, least in the way first
  overbook=N    beyond the machine, for the time of no-shows; a promise is broken with N % at most
  …+slice=S     one of these, and whom reservations keep waiting runs for S seconds at once, while long jobs
                are suspended; who is not over by then waits again, and begins anew
  …+always=S    the same without reservations, too, to compare with
users
  steadfast     ask once                      falling-back  hand in the same as best effort if refused
  insistent     ask for later starts          choosing      take what was better lately, as falling-back

examples:
  outrider sim leases KTH-SP2-1996-2.1-cln.swf.gz --seeds 5
  outrider sim leases LOG --system suspend --system plain --users steadfast --work 20 --hours 2 --csv
  outrider sim leases LOG --policy all --policy protect=20 --picture leases.svg
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "leases", leases, "compare policies about reservations on a log", _EPILOG)
    parser.add_argument("log", metavar="LOG", help="a log in Standard Workload Format, maybe .gz")
    many = "again for more than one"
    piece = parser.add_argument_group("log")
    piece.add_argument("--from-day", type=not_negative, default=30, metavar="D",
                       help="the first day of the first seed's piece (default: %(default)s)")  # fmt: skip
    piece.add_argument("--days", type=positive, default=30, metavar="D", help="default: %(default)s")
    piece.add_argument("--processors-per-node", type=positive, default=1, metavar="N",
                       help="of the log, that one instance stands for (default: %(default)s)")  # fmt: skip
    wishes = parser.add_argument_group("reservations")
    wishes.add_argument("--work", type=percent, action="append", metavar="PERCENT",
                        help=f"of what the machine could do; {many} (default: 20)")  # fmt: skip
    wishes.add_argument("--hours", type=positive, action="append", metavar="H",
                        help=f"mean length; {many} (default: 2)")  # fmt: skip
    wishes.add_argument("--size", choices=("small", "medium", "large"), action="append",
                        help=f"1-24, 25-48, 49-72 nodes of 144; {many} (default: medium)")  # fmt: skip
    wishes.add_argument("--notice", type=not_negative, default=24, metavar="H",
                        help="how long before their start they are asked for (default: 24)")  # fmt: skip
    wishes.add_argument("--no-shows", type=percent, default=0, metavar="PERCENT", help="who never come")
    wishes.add_argument("--early", type=percent, default=0, metavar="PERCENT", help="who end early")
    wishes.add_argument("--users", choices=("steadfast", "insistent", "falling-back", "choosing"),
                        action="append", help=f"{many} (default: all four)")  # fmt: skip
    wishes.add_argument("--premium", type=not_negative, action="append", metavar="PERCENT",
                        help="of its length, by which a reservation is dearer than best effort, to who "
                        f"chooses; {many} (default: 50)")  # fmt: skip
    wishes.add_argument("--waiting-price", type=not_negative, default=10, metavar="N",
                        help="hours of a node in a reservation that an hour of a waiting job costs, in the "
                        "metric worth (default: 10)")  # fmt: skip
    _add_site(parser, many)
    runs = parser.add_argument_group("runs and output")
    runs.add_argument("--seeds", type=positive, default=DEFAULT_SEEDS, metavar="N",
                      help="draws of each row (default: %(default)s)")  # fmt: skip
    runs.add_argument("--against", metavar="POLICY",
                      help="adds worth_gain: the worth less that with this one, draw by draw")  # fmt: skip
    runs.add_argument("--first-seed", type=positive, default=1, metavar="N", help="default: %(default)s")
    runs.add_argument("--workers", type=positive, metavar="N", help="processes (default: one for each core)")
    add_form_options(parser, what="the rows")
    runs.add_argument("--picture", metavar="FILE", help="draw the rows: .svg, .png or .pdf")


def _add_site(parser: Parser, many: str) -> None:
    group = parser.add_argument_group("site")
    group.add_argument("--system", action="append", metavar="SYSTEM",
                       choices=("suspend", "migrate", "late", "whole", "checkpoint", "requeue", "plain"),
                       help=f"{many} (default: suspend)")  # fmt: skip
    group.add_argument("--policy", action="append", metavar="POLICY",
                       help=f"{many} (default: none, all, hour-share=25, protect=20)")  # fmt: skip
    group.add_argument("--suspend-rate", type=positive, default=50, metavar="MB/S",
                       help="at which a node writes memory (default: %(default)s)")  # fmt: skip
    group.add_argument("--resume-rate", type=positive, default=50, metavar="MB/S",
                       help="at which it reads it (default: %(default)s)")  # fmt: skip
    group.add_argument("--suspend-seconds", type=not_negative, default=0, metavar="S",
                       help="that each suspension takes beside (default: %(default)s)")  # fmt: skip
    group.add_argument("--resume-seconds", type=not_negative, default=0, metavar="S",
                       help="that each resumption takes beside (default: %(default)s)")  # fmt: skip
    group.add_argument("--shared-disk", action="store_true",
                       help="all nodes share one file system with these rates")  # fmt: skip
    group.add_argument("--slowdown", type=not_negative, default=10, metavar="PERCENT",
                       help="in a virtual machine (default: %(default)s)")  # fmt: skip
    group.add_argument("--checkpoints", type=positive, default=60, metavar="MINUTES",
                       help="how often jobs save themselves (default: %(default)s)")  # fmt: skip
    group.add_argument("--images", type=not_negative, default=0, metavar="N",
                       help="of 600 MB, brought by a link of 100 Mbit/s (default: none)")  # fmt: skip


def cases(arguments: argparse.Namespace) -> list[LeaseCase]:
    """One for each row."""
    from outrider.sim.leases.experiment import LeaseCase
    from outrider.sim.leases.injection import Injection
    from outrider.sim.leases.systems import SystemTerms, check
    from outrider.sim.leases.users import MODELS

    terms = SystemTerms(
        write_mb_per_s=arguments.suspend_rate,
        read_mb_per_s=arguments.resume_rate,
        write_s=arguments.suspend_seconds,
        read_s=arguments.resume_seconds,
        is_shared=arguments.shared_disk,
        slowdown_percent=arguments.slowdown,
        checkpoint_s=60 * arguments.checkpoints,
    )
    shapes = product(arguments.work or [20], arguments.hours or [2], arguments.size or ["medium"])
    injections = [
        Injection(
            work_percent=work,
            hours=hours,
            size=size,
            notice_s=3600 * arguments.notice,
            no_show_percent=arguments.no_shows,
            early_percent=arguments.early,
        )
        for work, hours, size in shapes
    ]
    policies = arguments.policy or ["none", "all", "hour-share=25", "protect=20"]
    rows = product(injections, arguments.system or ["suspend"], policies, arguments.users or MODELS)
    found = []
    for injection, system, policy, users in rows:
        check(system, policy)
        premiums = (arguments.premium or [50]) if users == "choosing" else [50]
        found += [
            LeaseCase(
                log=arguments.log,
                from_day=arguments.from_day,
                days=arguments.days,
                processors_per_node=arguments.processors_per_node,
                injection=injection,
                system=system,
                policy=policy,
                users=users,
                premium_percent=premium,
                waiting_price=arguments.waiting_price,
                images=arguments.images,
                terms=terms,
            )
            for premium in premiums
        ]
    return found


def leases(arguments: argparse.Namespace) -> None:
    if arguments.picture:
        check_picture(arguments.picture)
    from outrider.sim.leases.experiment import run_cases
    from outrider.sim.leases.systems import check

    try:
        wanted = cases(arguments)
        for case in wanted if arguments.against else ():
            check(case.system, arguments.against)
        with progress("leases") as on_progress:
            rows = run_cases(
                wanted,
                seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
                against=arguments.against,
                workers=arguments.workers,
                on_progress=on_progress,
            )
    except ValueError as error:
        raise InputError(str(error)) from error
    if arguments.picture:
        from outrider.sim.plots.leases import draw_leases

        with complete_file(arguments.picture) as path:
            draw_leases(rows, path)
    if arguments.json:
        print_json({"rows": rows})
    elif arguments.csv:
        print_csv(CSV_HEADER, csv_lines(rows))
    else:
        print(screen(rows))


def csv_lines(rows: list[LeaseRow]) -> list[tuple[object, ...]]:
    """A line for each row and metric."""
    return [
        (*_case_values(row), name, found.mean, found.error, found.half_width)
        for row in rows
        for name, found in row.metrics.items()
    ]


def _case_values(row: LeaseRow) -> tuple[object, ...]:
    case, wishes = row.case, row.case.injection
    return (
        case.log.rsplit("/", 1)[-1], case.system, case.policy, case.users, case.premium_percent,
        wishes.work_percent, wishes.hours, wishes.size, row.seeds,
    )  # fmt: skip


def screen(rows: list[LeaseRow]) -> str:
    """A line for each row: both kinds, and what the nodes did."""
    lines = [
        f"{'system':<11}{'policy':<15}{'users':<14}{'reservations':<16}{'accepted':>13}{'slowdown':>16}"
        f"{'over none':>14}{'all jobs':>14}{'wait':>14}{'served':>13}"
        f"{'idle':>7}{'leased':>7}{'jobs':>6}{'susp.':>7}{'lost':>6}{'link':>6}"
    ]
    for row in rows:
        case, found = row.case, row.metrics
        shares = found["suspending"].mean + found["resuming"].mean
        who = case.users if case.premium_percent == 50 else f"{case.users} {case.premium_percent}"
        gain = f"   worth {_told(row, 'worth_gain', 1)} more" if "worth_gain" in found else ""
        lines.append(
            f"{case.system:<11}{case.policy:<15}{who:<14}{case.injection.name:<16}"
            f"{_told(row, 'acceptance', 0):>11} %{_told(row, 'slowdown', 1):>16}"
            f"{_told(row, 'slowdown_ratio', 2):>14}{_told(row, 'slowdown_pooled', 2):>14}"
            f"{_told(row, 'wait_h', 1):>12} h"
            f"{_told(row, 'served', 1):>11} %{found['idle'].mean:>7.1f}{found['leased'].mean:>7.1f}"
            f"{found['best_effort'].mean:>6.1f}{shares:>7.2f}{found['lost'].mean:>6.2f}"
            f"{found['transferring'].mean:>6.1f}{gain}"
        )
    return "\n".join(lines)


def _told(row: LeaseRow, name: str, digits: int) -> str:
    found = row.metrics[name]
    return f"{found.mean:.{digits}f} ± {found.half_width:.{digits}f}"
