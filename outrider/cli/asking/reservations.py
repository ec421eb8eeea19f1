"""`outrider list`, `show`, `explain` and `cancel`: reservations that there are."""

from __future__ import annotations

import argparse

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.jobs import explain_job, is_job, show_job
from outrider.cli.asking.session import add_asking, add_filters, add_header_option, filters, session
from outrider_client.transport import Json, in_path

STATES = ("accepted", "preparing", "ready", "active", "endangered", "ended", "cancelled", "failed")
PAST_STATES = STATES[5:]
_NAME = "the reservation: render-17, or render if that is clear"
_NAME_OR_JOB = f"{_NAME}; or a best-effort job: 4711"
_LIST = """No column of the table has blanks in it, except the last. What is not yours to see is a hyphen.

examples:
  outrider list
  outrider list --mine --past
  outrider list --state endangered --noheader
"""
_SHOW = """examples:
  outrider show render-17
  outrider show render --json
  outrider show 4711
"""
_EXPLAIN = """examples:
  outrider explain render-17
  outrider explain 4711
"""
_CANCEL = """What is under way for these reservations alone is stopped; images that have arrived stay in the
pools until their space is wanted.

examples:
  outrider cancel render-17
  outrider cancel render-17 render-18
"""


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "list", list_reservations, "list reservations", _LIST)
    add_header_option(parser)
    parser.add_argument(
        "--past", action="store_true", help="those that are over instead of those that are not"
    )
    add_filters(parser, STATES)
    parser = add_asking(
        commands, "show", show, "show a reservation or a job, and how far its image is on each node", _SHOW
    )
    parser.add_argument("name", metavar="NAME", help=_NAME_OR_JOB)
    parser = add_asking(commands, "explain", explain, "say why a reservation or a job is as it is", _EXPLAIN)
    parser.add_argument("name", metavar="NAME", help=_NAME_OR_JOB)
    parser = add_asking(commands, "cancel", cancel, "give reservations back", _CANCEL)
    parser.add_argument("names", metavar="NAME", nargs="+", help=_NAME)


def list_reservations(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import RESERVATIONS
    from outrider.service.answers import ReservationList

    asking = session(arguments)
    states = arguments.state or []
    is_past = arguments.past or (bool(states) and all(state in PAST_STATES for state in states))
    query = {"past": "true" if is_past else None, **filters(arguments)}
    answer = asking.pages("/v1/reservations", query, "reservations")
    if (found := asking.shown(ReservationList, answer)) is not None:
        nothing = "no such reservations" if any(query.values()) else "no reservations"
        asking.table(RESERVATIONS, found.reservations, nothing=nothing)


def show(arguments: argparse.Namespace) -> None:
    from outrider.service.answers import ReservationDetails

    asking = session(arguments)
    if is_job(arguments.name):
        show_job(asking, arguments.name)
        return
    answer = asking.client.get(f"/v1/reservations/{in_path(arguments.name)}")
    if (details := asking.shown(ReservationDetails, answer)) is not None:
        from outrider.cli.asking.display.details import details_screen

        print(details_screen(details, asking.when, asking.paint))


def explain(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.terminal import GAP
    from outrider.service.answers import Explanation
    from outrider_client.transport import printable_line

    asking = session(arguments)
    if is_job(arguments.name):
        explain_job(asking, arguments.name)
        return
    answer = asking.client.get(f"/v1/reservations/{in_path(arguments.name)}/explanation")
    if (explanation := asking.shown(Explanation, answer)) is None:
        return
    print(asking.paint(printable_line(explanation.name), "bold"))
    for sentence in explanation.sentences:
        print(f"  {printable_line(sentence)}")
    if explanation.decisions:
        print()
    for each in explanation.decisions:
        told = " ".join(part for part in (each.kind, each.outcome) if part)
        reason = f": {each.reason}" if each.reason else ""
        print(f"  {asking.when.stamp(each.at_s)}{GAP}{printable_line(told + reason)}")


def cancel(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.words import nodes_in_words
    from outrider.service.answers import ReservationDetails
    from outrider_client.transport import printable_line

    asking = session(arguments)
    for name in arguments.names:
        answer: Json = asking.client.delete(f"/v1/reservations/{in_path(name)}")
        if (details := asking.shown(ReservationDetails, answer)) is None:
            continue
        view = details.reservation
        times = asking.when.period(view.start_s, view.end_s)
        told = f"{view.name} is {view.state}: {nodes_in_words(view.node_count, view.nodes)}, {times}"
        print(printable_line(told))
