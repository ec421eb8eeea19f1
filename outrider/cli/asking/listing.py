"""`outrider status`, `nodes`, `images` and `transfers`: what the service sees."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, add_header_option, session
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.cli.asking.display.terminal import Paint
    from outrider.service.answers import NodeView, Status, TransferView

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


def add(commands: Subparsers) -> None:
    add_asking(commands, "status", status, "show the service at one glance", _STATUS)
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


def status(arguments: argparse.Namespace) -> None:
    from outrider.service.answers import Status

    asking = session(arguments)
    answer = asking.client.get("/v1/status")
    if asking.is_json:
        print_json(answer)
        return
    print(status_screen(asking.read(Status, answer), asking))


def status_screen(found: Status, asking: Session) -> str:
    from cachemgr.cli.tables import printable
    from cachemgr.cli.times import span_in_words
    from outrider.cli.asking.display.terminal import facts
    from outrider.cli.asking.display.words import plural, rate_in_words

    when, paint = asking.when, asking.paint
    promises = paint("yes", "green") if found.is_promising else paint("no", "red")
    away = f", {paint(f'{found.nodes_away} away', 'red')}" if found.nodes_away else ""
    until = found.link_busy_until_s
    busy = f", booked until {when.clock(until)}" if until and until > found.now_s else ", nothing booked"
    looked = "never" if found.last_look_s is None else f"{span_in_words(found.now_s - found.last_look_s)} ago"
    following = f"\nthe next starts {when.clock(found.next_start_s)}" if found.next_start_s else ""
    counts = ", ".join(f"{count:,} {printable(name)}" for name, count in found.reservations.items() if count)
    decisions = ", ".join(f"{count:,} {printable(name)}" for name, count in found.decisions.items() if count)
    title = f"{paint(printable(found.site), 'bold')}: outriderd {printable(found.version)}"
    shown = facts(
        [
            (
                "running",
                f"for {span_in_words(found.now_s - found.started_s)}, since {when.clock(found.started_s)}",
            ),
            ("promising", promises + "".join(f"\n{printable(each)}" for each in found.troubles)),
            ("batch system", f"{printable(found.batch_system)}, last seen {looked}"),
            ("nodes", f"{plural(found.nodes, 'node')}, {found.nodes_up:,} up{away}"),
            ("reservations", (counts or "none") + following),
            ("jobs", _jobs(found, paint)),
            ("transfers", f"{found.transfers_running:,} running, {found.transfers_waiting:,} waiting"),
            ("link", rate_in_words(found.link_rate_bytes_per_s) + busy + _doubt(found, paint)),
            ("decisions", decisions),
            ("to be done", plural(found.effects_waiting, "change") if found.effects_waiting else ""),
        ],
        paint,
    )
    return f"{title}\n{shown}"


def _doubt(found: Status, paint: Paint) -> str:
    """What transfers really get, if that is much less."""
    from cachemgr.cli.tables import printable

    return paint(f"\n{printable(found.link_words)}", "red") if found.link_words else ""


def _jobs(found: Status, paint: Paint) -> str:
    """Best-effort jobs that name an image; nothing if there are none."""
    from cachemgr.cli.tables import printable

    counts = ", ".join(f"{count:,} {printable(name)}" for name, count in found.jobs.items() if count)
    overdue = f"\n{found.jobs_overdue:,} wait longer than they should" if found.jobs_overdue else ""
    return counts + (paint(overdue, "red") if overdue else "")


def nodes(arguments: argparse.Namespace) -> None:
    from outrider.service.answers import NodeList

    asking = session(arguments)
    answer = asking.pages("/v1/nodes", {"names": arguments.names}, "nodes")
    if asking.is_json:
        print_json(answer)
        return
    header = (
        "NAME", "STATE", "CAPACITY", ">USED", ">LIMIT", ">IMAGES", ">ARRIVING", "RESERVATION", "NEXT",
        "REMARK",
    )  # fmt: skip
    asking.table(
        header, [_node_row(each, asking) for each in asking.read(NodeList, answer).nodes], nothing="no nodes"
    )


def _node_row(view: NodeView, asking: Session) -> tuple[object, ...]:
    capacity = view.capacity.replace(" ", ",")
    return (
        view.name, view.state, capacity, _size(view.used_bytes), _size(view.limit_bytes), view.images,
        view.arriving, view.reservation, asking.when.column(view.next_reservation_s), view.words,
    )  # fmt: skip


def images(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.words import short
    from outrider.service.answers import ImageList

    asking = session(arguments)
    answer = asking.client.get("/v1/images")
    if asking.is_json:
        print_json(answer)
        return
    found = asking.read(ImageList, answer)
    header = ("DIGEST", ">SIZE", ">NODES", "NODELIST", "COMING", ">NEEDED", "PRIVATE", "OWNER", "URI")
    rows: list[tuple[object, ...]] = [
        (
            short(each.digest), _size(each.size_bytes), each.node_count, each.nodes, each.coming_nodes,
            each.reservations + each.jobs, "yes" if each.is_private else "no", ",".join(each.owners),
            each.uri,
        )
        for each in found.images
    ]  # fmt: skip
    asking.table(header, rows, nothing="no images on any node")
    _say_incomplete(found.is_complete)


def transfers(arguments: argparse.Namespace) -> None:
    from outrider.service.answers import TransferList

    asking = session(arguments)
    answer = asking.client.get("/v1/transfers")
    if asking.is_json:
        print_json(answer)
        return
    found = asking.read(TransferList, answer)
    header = (
        ">NUMBER", "STATE", "NODES", "IMAGE", ">SIZE", ">DONE", ">RATE", "BEGIN", "READY", "DEADLINE", "FOR"
    )  # fmt: skip
    asking.table(header, [_transfer_row(each, asking) for each in found.transfers], nothing="no transfers")
    _say_incomplete(found.is_complete)


def _transfer_row(view: TransferView, asking: Session) -> tuple[object, ...]:
    from outrider.cli.asking.display.words import image_name, percent, rate_in_words

    when = asking.when
    rate = rate_in_words(view.rate_bytes_per_s).replace(" ", "") if view.rate_bytes_per_s else ""
    return (
        view.number, "late" if view.is_late else view.state, view.nodes,
        image_name(view.image.uri, view.image.digest), _size(view.total_bytes),
        f"{percent(view.arrived_bytes, view.total_bytes)}%", rate, when.column(view.begin_s),
        when.column(view.ready_s), when.column(view.deadline_s),
        ",".join([*view.for_reservations, *(f"job-{job}" for job in view.for_jobs)]),
    )  # fmt: skip


def _size(amount: int | None) -> str:
    """A size for a column: without a blank."""
    from cachemgr.base.sizes import in_words

    return "" if amount is None else in_words(amount).replace(" ", "")


def _say_incomplete(is_complete: bool) -> None:
    if not is_complete:
        print("outrider: there are more than the service lists at once", file=sys.stderr)
