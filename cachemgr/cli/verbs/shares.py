"""The verb `shares`: what users take of everything that they share on this node."""

from __future__ import annotations

from cachemgr.base.sizes import in_words
from cachemgr.cli import answers
from cachemgr.cli import arguments as args
from cachemgr.cli.identity import user_name
from cachemgr.cli.tables import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.answers import Result
    from cachemgr.cli.arguments import Commands
    from cachemgr.cli.session import Session

HEADER = ("THING", "USER", ">HELD", ">MOST", ">REFUSED")
BYTES = "bytes"


def add(commands: Commands) -> None:
    shares = commands.add(
        "shares",
        _shares,
        "tell what users take of what they share, and who was refused more",
        "shares",
        "shares --json",
    )
    args.add_no_header(shares)


def _shares(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("shares")
    rows = [_row(each) for each in answers.rows(found, "shares")]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(each: Result) -> tuple[object, ...]:
    most = answers.number(each, "most")
    user = answers.text(each, "user")
    return (
        answers.text(each, "thing").replace(" ", "-"),
        # An address, where no user is known.
        user_name(int(user)) if user.isdecimal() else user,
        _amount(each, answers.number(each, "held")),
        _amount(each, most) if most else "",
        answers.number(each, "refused"),
    )


def _amount(each: Result, amount: int) -> str:
    return in_words(amount).replace(" ", "") if answers.text(each, "unit") == BYTES else str(amount)
