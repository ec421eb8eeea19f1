"""The verbs on what is on its way here: transfers, transfer, limits."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import in_words
from cachemgr.cli import answers
from cachemgr.cli import arguments as args
from cachemgr.cli.tables import facts, table
from cachemgr.cli.times import read_time, span_in_words, time_in_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.answers import Result
    from cachemgr.cli.arguments import Commands
    from cachemgr.cli.session import Session

HEADER = ("TRANSFER", "STATE", ">ARRIVED", ">SIZE", ">RATE", ">LEFT", "DEADLINE", "ADDRESS")


def add(commands: Commands) -> None:
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
    change.add_argument("--rate", type=args.rate, metavar="RATE", help="at most so fast; 0: no limit")
    change.add_argument("--deadline", metavar="WHEN", help="when it is needed")
    limits = commands.add(
        "limits",
        _limits,
        "tell or change the daemon's rates until it is restarted",
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


def _transfers(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("transfers")
    now_s = session.clock.now_s()
    rows = [_row(each, now_s) for each in answers.rows(found, "transfers")]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(each: Result, now_s: int) -> tuple[object, ...]:
    rate, finish_s = answers.number(each, "rate_bytes_per_s"), answers.optional_number(each, "finish_s")
    deadline_s = answers.optional_number(each, "deadline_s")
    state = answers.text(each, "state")
    is_running = state == "running"
    error = answers.text(each, "error")
    return (
        answers.text(each, "transfer"),
        state + (f"({error})" if error not in ("", state) else ""),
        _column(in_words(answers.number(each, "bytes"))),
        _column(in_words(answers.number(each, "size_bytes"))),
        _column(f"{in_words(rate)}/s") if rate and is_running else "",
        _column(span_in_words(finish_s - now_s)) if finish_s is not None and is_running else "",
        time_in_words(deadline_s).replace(" ", "T") if deadline_s is not None else "",
        answers.text(each, "uri"),
    )


def _transfer(session: Session, arguments: argparse.Namespace) -> None:
    deadline_s = None if arguments.deadline is None else read_time(arguments.deadline, session.clock.now_s())
    said = {
        "pause": arguments.pause or None,
        "resume": arguments.resume or None,
        "cancel": arguments.cancel or None,
        "rate_bytes_per_s": arguments.rate,
        "deadline_s": deadline_s,
    }
    if all(value is None for value in said.values()):
        raise BadRequest("say what to change: --pause, --resume, --cancel, --rate or --deadline")
    found = session.ask("transfer-set", transfer=arguments.transfer, **said)
    state = answers.text(found, "state")
    if arguments.cancel and state != "cancelled":
        state = "is being cancelled"  # what it waits for may take a moment to hear of it
    session.show(found, f"{arguments.transfer} {state}".strip())


def _limits(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask(
        "limits", rate_bytes_per_s=arguments.rate, relay_rate_bytes_per_s=arguments.relay_rate
    )
    session.show(
        found,
        facts([
            ("rate", _rate(found, "rate_bytes_per_s")),
            ("relay rate", _rate(found, "relay_rate_bytes_per_s")),
        ]),
    )  # fmt: skip


def _rate(found: Result, key: str) -> str:
    rate = answers.number(found, key)
    return f"{in_words(rate)}/s" if rate else "no limit"


def _column(text: str) -> str:
    return text.replace(" ", "")
