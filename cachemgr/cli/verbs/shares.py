"""The verb `shares`: what users take of everything that they share on this node."""

from __future__ import annotations

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import table
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read
from cachemgr.cli.identity import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.base.shares import Share
    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

HEADER = ("THING", "USER", ">HELD", ">MOST", ">REFUSED")


def add(commands: VerbParsers) -> None:
    shares = commands.add(
        "shares",
        _shares,
        "show what users take of what they share, and who was refused more",
        "shares",
        "shares --json",
    )
    args.add_no_header(shares)


def _shares(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ListedShares

    found = session.ask("shares")
    rows = [_row(each) for each in read(ListedShares, found).shares]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(each: Share) -> tuple[object, ...]:
    return (
        each.thing.replace(" ", "-"),
        # An address, where no user is known.
        user_name(int(each.user)) if each.user.isdecimal() else each.user,
        _amount(each, each.held),
        _amount(each, each.most) if each.most else "",
        each.refused,
    )


def _amount(each: Share, amount: int) -> str:
    from cachemgr.base.shares import BYTES

    return in_words(amount).replace(" ", "") if each.unit == BYTES else str(amount)
