"""`outrider top`: who takes what of each thing that users share."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, add_header_option, session
from outrider.cli.output import print_json
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from outrider.cli.asking.display.words import When
    from outrider.service.answers.site import ShareList, ShareView

MUCH_PERCENT = 50
"""Who takes more of what one user may have is named above the table."""
MOST_NAMED = 3
_EPILOG = """SHARE is how much of what one user may have this one has, REFUSED how often more was
refused. A row of nodes is for all of them: WHERE is the one where the share is the largest, IN_ALL what
the user has on all NODES together, as they last reported. Administrators see all users, others
themselves.

examples:
  outrider top
  outrider top --user eve
  outrider top --thing transfers --node 'n[1-4]'
  outrider top --every 2
"""


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "top", top, "show who takes what of each thing that users share", _EPILOG)
    add_header_option(parser)
    parser.add_argument("--user", metavar="USER", help="this user only: a name or a number")
    parser.add_argument("--thing", metavar="THING", help="this thing only, such as transfers")
    parser.add_argument("--node", metavar="NODES", help="what is on these nodes, a row for each: n[1-4,7]")
    parser.add_argument(
        "--every", metavar="SECONDS", type=positive, help="look again and again, until Ctrl-C"
    )


def top(arguments: argparse.Namespace) -> None:
    from cachemgr.base.clock import SystemClock

    follow(session(arguments), arguments, SystemClock())


def follow(asking: Session, arguments: argparse.Namespace, clock: Clock) -> None:
    """Look and show, once or again and again."""
    from outrider.cli.asking.display.terminal import columns, is_live, lines
    from outrider.cli.asking.display.words import When
    from outrider.cli.asking.watch import RedrawnScreen
    from outrider.service.answers.site import ShareList

    query = {"user": arguments.user, "thing": arguments.thing, "nodes": arguments.node}
    is_drawn = arguments.every is not None and is_live(os.environ) and not asking.is_json
    view = RedrawnScreen(_written, columns, lines) if is_drawn else None
    while True:
        answer = asking.client.get("/v1/shares", query)
        if asking.is_json and arguments.every is not None:
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        elif asking.is_json:
            print_json(answer)
        else:
            found = asking.read(ShareList, answer)
            text = screen(found, asking, When(now_s=clock.now_s(), zone=asking.zone))
            if view is None:
                print(text, flush=True)
            else:
                view.show(text, {})
        if arguments.every is None:
            return
        clock.sleep(arguments.every)


def screen(found: ShareList, asking: Session, when: When) -> str:
    """Who takes much in a sentence each, the table, and what is not in it."""
    from cachemgr.base.times import span_in_words
    from outrider.cli.asking.display.columns import SHARES

    remarks = [*found.missing, *([] if found.is_complete else ["there are more than are listed at once"])]
    written = [*_sentences(found)] if asking.has_header else []
    if found.shares:
        written.append(asking.written_table(SHARES, found.shares, when))
    if asking.has_header and found.nodes and found.oldest_s is not None:
        nodes = f"{found.nodes:,} nodes as they" if found.nodes > 1 else "1 node as it"
        remarks.append(f"{nodes} reported within the last {span_in_words(when.now_s - found.oldest_s)}")
    return "\n".join([*written, *remarks])


def _sentences(found: ShareList) -> list[str]:
    from cachemgr.base.tables import printable
    from outrider.cli.asking.display.columns import percent_of

    if not found.shares:
        return [f"{'nobody has anything' if found.is_of_all else 'you have nothing'} of what is shared"]
    much = [each for each in found.shares if each.most and 100 * each.held > MUCH_PERCENT * each.most]
    if not much:
        return [f"{'nobody has' if found.is_of_all else 'you do not have'} more than half of any limit"]
    said = []
    for each in much[:MOST_NAMED]:
        assert each.most is not None
        refused = f", and was refused more {_times(each.refused)}" if each.refused else ""
        said.append(
            f"{printable(each.user)} has {percent_of(each)} of the {printable(each.thing)} that one user may "
            f"have on {_place(each)}{refused}"
        )
    more = len(much) - MOST_NAMED
    return [*said, *([f"and {more} more are above half of a limit"] if more > 0 else [])]


def _place(view: ShareView) -> str:
    from cachemgr.base.tables import printable

    return "the head" if view.nodes == 0 and view.where == "head" else printable(view.where)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _written(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
