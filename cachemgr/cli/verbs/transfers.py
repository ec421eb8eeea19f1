"""The verbs on what is on its way here: transfers, transfer, limits."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import in_words
from cachemgr.base.tables import facts, table
from cachemgr.base.times import read_time, span_in_words, time_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession
    from cachemgr.protocol import TransferEntry

HEADER = ("TRANSFER", "STATE", ">ARRIVED", ">SIZE", ">RATE", ">LEFT", "DEADLINE", "ADDRESS")


def add(commands: VerbParsers) -> None:
    listed = commands.add(
        "transfers",
        _transfers,
        "list what the daemon brings in, and what it brought",
        "transfers",
        "transfers --json",
    )
    args.add_no_header(listed)
    change = commands.add(
        "transfer", _transfer, "change a transfer that is under way",
        "transfer t3 --pause", "transfer t3 --rate 200Mbit --deadline +10m", "transfer t3 --cancel",
    )  # fmt: skip
    change.add_argument(
        "transfer", metavar="TRANSFER", help="its number, as `add --no-wait` and `transfers` print it"
    )
    state = change.add_mutually_exclusive_group()
    state.add_argument("--pause", action="store_true", help="stand still until it is resumed")
    state.add_argument("--resume", action="store_true", help="go on")
    state.add_argument("--cancel", action="store_true", help="end it; what has arrived is kept for a day")
    change.add_argument("--rate", type=args.rate, metavar="RATE", help="the highest rate; 0: no limit")
    change.add_argument("--deadline", metavar="WHEN", help="when it is needed")
    limits = commands.add(
        "limits",
        _limits,
        "show or change the daemon's rates until it is restarted",
        "limits",
        "limits --rate 800Mbit",
    )
    limits.add_argument(
        "--rate", type=args.rate, metavar="RATE", help="of all transfers together; 0: no limit"
    )
    limits.add_argument(
        "--relay-rate",
        type=args.rate,
        metavar="RATE",
        help="of what other nodes fetch from here; 0: no limit",
    )


def _transfers(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ListedTransfers

    found = session.ask("transfers")
    now_s = session.clock.now_s()
    rows = [_row(each, now_s) for each in read(ListedTransfers, found).transfers]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(each: TransferEntry, now_s: int) -> tuple[object, ...]:
    is_running, rate = each.state == "running", each.rate_bytes_per_s
    return (
        each.transfer,
        each.state + (f"({each.error})" if each.error not in (None, each.state) else ""),
        _column(in_words(each.bytes)),
        _column(in_words(each.size_bytes)),
        _column(f"{in_words(rate)}/s") if rate and is_running else "",
        _column(span_in_words(each.finish_s - now_s)) if each.finish_s is not None and is_running else "",
        time_in_words(each.deadline_s).replace(" ", "T") if each.deadline_s is not None else "",
        each.uri,
    )


def _transfer(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import TransferChange, TransferEntry

    deadline_s = None if arguments.deadline is None else read_time(arguments.deadline, session.clock.now_s())
    change = TransferChange(
        arguments.transfer, arguments.rate, deadline_s, arguments.cancel, arguments.pause, arguments.resume
    )
    if change == TransferChange(arguments.transfer):
        raise BadRequest("say what to change: --pause, --resume, --cancel, --rate or --deadline")
    found = session.ask("transfer-set", change)
    state = read(TransferEntry, found).state
    if arguments.cancel and state != "cancelled":
        state = "is being cancelled"  # what it waits for may take a moment to hear of it
    session.show(found, f"{arguments.transfer} {state}".strip())


def _limits(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import NodeRates, RateChange

    found = session.ask("limits", RateChange(arguments.rate, arguments.relay_rate))
    rates = read(NodeRates, found)
    shown = [("rate", _rate(rates.rate_bytes_per_s)), ("relay rate", _rate(rates.relay_rate_bytes_per_s))]
    session.show(found, facts(shown))


def _rate(rate: int) -> str:
    return f"{in_words(rate)}/s" if rate else "no limit"


def _column(text: str) -> str:
    return text.replace(" ", "")
