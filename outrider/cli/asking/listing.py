"""`outrider status`, `nodes`, `images` and `transfers`: what the service sees."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, add_header_option, session

if TYPE_CHECKING:
    from outrider.cli.asking.display.terminal import Paint
    from outrider.cli.asking.display.words import When
    from outrider.service.answers.site import Status

_STATUS = """examples:
  outrider status
  outrider status --json
"""
_NODES = """examples:
  outrider nodes
  outrider nodes 'n[1-4]'
  outrider nodes --noheader
"""
_IMAGES = """Those that everybody may use, and of the private ones your own; administrators see all, and whose
they are. NEEDED are the reservations and jobs that have it.

examples:
  outrider images
"""
_TRANSFERS = """examples:
  outrider transfers
  outrider transfers --json
"""


_REPORT = """CHARGED is for reservations that are over, BOOKED what those cost that are not. LOST is what
refused requests would have cost; TOO_DEAR are those that were refused for their price. Users are told
their own.

examples:
  outrider report --by account --since 2027-01-01 --until 2027-02-01
  outrider report --by group --csv > january.csv
"""


def add(commands: Subparsers) -> None:
    add_asking(commands, "status", status, "show the service at a glance", _STATUS)
    parser = add_asking(
        commands, "nodes", nodes, "list nodes, their pools and what comes next on them", _NODES
    )
    add_header_option(parser)
    parser.add_argument("names", metavar="NODES", nargs="?", help="these nodes only: n[1-4,7]")
    parser = add_asking(
        commands,
        "images",
        images,
        "list the images that you may use, where they are, and how many need them",
        _IMAGES,
    )
    add_header_option(parser)
    parser = add_asking(commands, "transfers", transfers, "list transfers that wait or run", _TRANSFERS)
    add_header_option(parser)
    parser = add_asking(commands, "report", report, "add up what was charged, and what was refused", _REPORT)
    add_header_option(parser)
    parser.add_argument("--by", choices=("user", "account", "group"), default="user", help="what is added up")
    parser.add_argument(
        "--since",
        "--from",
        metavar="TIME",
        default="",
        help="the start of the period (default: all that is known)",
    )
    parser.add_argument("--until", "--to", metavar="TIME", default="", help="until when (now)")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values, unrounded")


def report(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import REPORT, REPORT_FIELDS
    from outrider.cli.output import print_csv
    from outrider.service.answers.leases import Report

    asking = session(arguments)
    query = {"by": arguments.by, "since": arguments.since, "until": arguments.until, "zone": asking.zone_name}
    answer = asking.client.get("/v1/report", query)
    if (found := asking.shown(Report, answer)) is None:
        return
    if arguments.csv:
        print_csv(REPORT_FIELDS, ([getattr(each, name) for name in REPORT_FIELDS] for each in found.lines))
    else:
        asking.table(REPORT, found.lines, nothing="nothing was charged or refused")


def status(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.site import Status

    asking = session(arguments)
    if (found := asking.shown(Status, asking.client.get("/v1/status"))) is not None:
        print(status_screen(found, asking))


def status_screen(found: Status, asking: Session) -> str:
    from cachemgr.base.tables import printable
    from cachemgr.base.times import span_in_words
    from outrider.cli.asking.display.terminal import facts
    from outrider.cli.asking.display.words import plural, rate_in_words

    when, paint = asking.when, asking.paint
    promises = paint("yes", "green") if found.is_promising else paint("no", "red")
    away = f", {paint(f'{found.nodes_away} away', 'red')}" if found.nodes_away else ""
    until = found.link_busy_until_s
    busy = f", booked until {when.clock(until)}" if until and until > found.now_s else ", nothing booked"
    turns = f"\n{printable(found.turns_words)}" if found.turns_words else ""
    doubt = paint(f"\n{printable(found.link_words)}", "red") if found.link_words else ""
    looked = "never" if found.last_look_s is None else f"{span_in_words(found.now_s - found.last_look_s)} ago"
    following = f"\nthe next starts {when.clock(found.next_start_s)}" if found.next_start_s else ""
    title = f"{paint(printable(found.site), 'bold')}: outriderd {printable(found.version)}"
    shown = facts(
        [
            (
                "running",
                f"for {span_in_words(found.now_s - found.started_s)}, since {when.clock(found.started_s)}",
            ),
            ("head", _head(found, when)),
            ("promising", promises + "".join(f"\n{printable(each)}" for each in found.troubles)),
            ("batch system", f"{printable(found.batch_system)}, last seen {looked}"),
            ("nodes", f"{plural(found.nodes, 'node')}, {found.nodes_up:,} up{away}"),
            ("reservations", (_counts(found.reservations) or "none") + following),
            ("jobs", _jobs(found, paint) + turns),
            ("transfers", f"{found.transfers_running:,} running, {found.transfers_waiting:,} waiting"),
            ("link", rate_in_words(found.link_rate_bytes_per_s) + busy + doubt),
            ("decisions", _counts(found.decisions)),
            ("to be done", plural(found.effects_waiting, "change") if found.effects_waiting else ""),
        ],
        paint,
    )
    return f"{title}\n{shown}"


def _head(found: Status, when: When) -> str:
    """Which head leads; nothing if there is only one."""
    from cachemgr.base.tables import printable

    if not found.head:
        return ""
    since = f", since {when.clock(found.head_since_s)}" if found.head_since_s else ""
    return f"{printable(found.head)} leads{since}"


def _jobs(found: Status, paint: Paint) -> str:
    """Best-effort jobs that name an image; nothing if there are none."""
    overdue = f"\n{found.jobs_overdue:,} wait longer than they should" if found.jobs_overdue else ""
    return _counts(found.jobs) + (paint(overdue, "red") if overdue else "")


def _counts(counted: Mapping[str, int]) -> str:
    from cachemgr.base.tables import printable

    return ", ".join(f"{count:,} {printable(name)}" for name, count in counted.items() if count)


def nodes(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import NODES
    from outrider.service.answers.nodes import NodeList

    asking = session(arguments)
    answer = asking.pages("/v1/nodes", {"names": arguments.names}, "nodes")
    if (found := asking.shown(NodeList, answer)) is not None:
        asking.table(NODES, found.nodes, nothing="no nodes")


def images(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import IMAGES
    from outrider.service.answers.images import ImageList

    asking = session(arguments)
    if (found := asking.shown(ImageList, asking.client.get("/v1/images"))) is not None:
        asking.table(IMAGES, found.images, nothing="no images on any node")
        _say_incomplete(found.is_complete)


def transfers(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import TRANSFERS
    from outrider.service.answers.transfers import TransferList

    asking = session(arguments)
    if (found := asking.shown(TransferList, asking.client.get("/v1/transfers"))) is not None:
        asking.table(TRANSFERS, found.transfers, nothing="no transfers")
        _say_incomplete(found.is_complete)


def _say_incomplete(is_complete: bool) -> None:
    if not is_complete:
        print("outrider: there are more than the service lists at once", file=sys.stderr)
