"""`outrider list`, `show`, `explain` and `cancel`: reservations that there are."""

from __future__ import annotations

import argparse

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.jobs import explain_job, is_job, show_job
from outrider.cli.asking.session import (
    Session,
    add_asking,
    add_filters,
    add_header_option,
    filters,
    session,
)
from outrider.cli.errors import CommandError, ConflictError, InputError
from outrider_client.transport import Json, in_path

STATES = ("accepted", "preparing", "ready", "active", "endangered", "ended", "cancelled", "failed")
KINDS = ("all", "reservation", "deadline", "recurring", "roles", "offer")
PAST_STATES = STATES[5:]
_NAME = "the reservation: render-17, or render if that is clear"
_NAME_OR_JOB = f"{_NAME}; or a best-effort job: 4711"
_LIST = """No column of the table has blanks in it, except the last. What is not yours to see is a hyphen.

examples:
  outrider list
  outrider list --mine --past
  outrider list --state endangered --noheader
  outrider list --kind recurring --mine
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
_TRIGGER = """Its user and administrators may do so, and whoever has the secret that was printed when it was
reserved (--when-call): then NAME has to be its full name.

examples:
  outrider trigger beam-17
  outrider trigger beam-17 --end
  outrider trigger beam-17 --secret-file beam.secret
"""
_CANCEL = """What is under way for these reservations alone is stopped; images that have arrived stay in the
pools until their space is wanted.

examples:
  outrider cancel render-17
  outrider cancel render-17 render-18
  outrider cancel render-19           all of one that recurs
  outrider cancel render-19.3         one of them
"""


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "list", list_reservations, "list reservations", _LIST)
    add_header_option(parser)
    parser.add_argument(
        "--past", action="store_true", help="list those that are over instead of those that are not"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="leases of this kind: what recurs is one, and your offers are among them",
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
    _add_trigger(commands)


def _add_trigger(commands: Subparsers) -> None:
    parser = add_asking(
        commands, "trigger", trigger, "begin an open reservation: its event has come", _TRIGGER
    )
    parser.add_argument("name", metavar="NAME", help=_NAME)
    parser.add_argument("--end", action="store_true", help="end it instead: the event has come that ends it")
    parser.add_argument(
        "--secret-file", metavar="FILE", help="sign the call with the secret in this file; - for stdin"
    )


def list_reservations(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import RESERVATIONS
    from outrider.service.answers.reservations import ReservationList

    asking = session(arguments)
    if arguments.kind is not None:
        _list_leases(asking, arguments)
        return
    states = arguments.state or []
    is_past = arguments.past or (bool(states) and all(state in PAST_STATES for state in states))
    query = {"past": "true" if is_past else None, **filters(arguments)}
    answer = asking.pages("/v1/reservations", query, "reservations")
    if (found := asking.shown(ReservationList, answer)) is not None:
        nothing = "no such reservations" if any(query.values()) else "no reservations"
        asking.table(RESERVATIONS, found.reservations, nothing=nothing)


def _list_leases(asking: Session, arguments: argparse.Namespace) -> None:
    """Leases of a kind, each that recurs as one."""
    from outrider.cli.asking.display.columns import LEASES
    from outrider.service.answers.leases import LeaseList

    if arguments.past or arguments.state:
        raise InputError("--kind lists what is not over, in any state: leave out --past and --state")
    query = {"kind": None if arguments.kind == "all" else arguments.kind, "user": filters(arguments)["user"]}
    answer = asking.client.get("/v1/leases", query)
    if (found := asking.shown(LeaseList, answer)) is not None:
        asking.table(LEASES, found.leases, nothing="no such leases")


def show(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.reservations import ReservationDetails

    asking = session(arguments)
    if is_job(arguments.name):
        show_job(asking, arguments.name)
        return
    try:
        answer = asking.client.get(f"/v1/reservations/{in_path(arguments.name)}")
    except ConflictError as conflict:
        if not _show_series(asking, arguments.name):
            raise conflict
        return
    if (details := asking.shown(ReservationDetails, answer)) is not None:
        from outrider.cli.asking.display.details import details_screen

        print(details_screen(details, asking.when, asking.paint))


def _show_series(asking: Session, name: str) -> bool:
    """The occurrences of one that recurs, or its roles; False if the name stands for something else."""
    from outrider.cli.asking.display.columns import RESERVATIONS
    from outrider.service.answers.leases import LeaseDetails

    try:
        answer = asking.client.get(f"/v1/leases/{in_path(name)}")
    except CommandError:
        return False
    lease = answer.get("lease") if isinstance(answer, dict) else None
    if not isinstance(lease, dict) or lease.get("kind") not in ("recurring", "roles"):
        return False
    if (details := asking.shown(LeaseDetails, answer)) is not None:
        asking.table(RESERVATIONS, details.reservations, nothing="none is left")
    return True


def explain(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.terminal import GAP
    from outrider.service.answers.records import Explanation
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
    from outrider.service.answers.reservations import ReservationDetails, ReservationList
    from outrider_client.transport import printable_line

    asking = session(arguments)
    for name in arguments.names:
        answer: Json = asking.client.delete(f"/v1/reservations/{in_path(name)}")
        if isinstance(answer, dict) and "reservations" in answer:
            several = asking.shown(ReservationList, answer)
            views = () if several is None else several.reservations
        else:
            details = asking.shown(ReservationDetails, answer)
            views = () if details is None else (details.reservation,)
        for view in views:
            times = asking.when.period(view.start_s, view.end_s)
            told = f"{view.name} is {view.state}: {nodes_in_words(view.node_count, view.nodes)}, {times}"
            print(printable_line(told))


def trigger(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.events import EventTaken
    from outrider.service.answers.reservations import ReservationDetails
    from outrider_client.transport import printable_line

    asking = session(arguments)
    what, path = "end" if arguments.end else "begin", f"/v1/reservations/{in_path(arguments.name)}"
    if arguments.secret_file is not None:
        answer = asking.client.post(f"{path}/call", _signed(arguments, what, asking.when.now_s))
        if (taken := asking.shown(EventTaken, answer)) is not None:
            print(printable_line(f"{taken.name}: the call to {taken.what} it was taken"))
        return
    answer = asking.client.post(f"{path}/trigger", {"what": what})
    if (details := asking.shown(ReservationDetails, answer)) is not None:
        view = details.reservation
        times = asking.when.period(view.start_s, view.end_s)
        print(printable_line(f"{view.name} is {view.state}: {view.why or view.nodes}, {times}"))


def _signed(arguments: argparse.Namespace, what: str, at_s: int) -> dict[str, Json]:
    """A call with its signature. The secret is in a file, since everybody sees a command's arguments."""
    import hashlib
    import hmac

    from outrider_client.wishes import read_text

    secret = read_text(arguments.secret_file).strip()
    text = f"{arguments.name} {what} {at_s}"
    signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    return {"what": what, "at_s": at_s, "signature": signature}
