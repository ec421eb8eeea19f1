"""`outrider reserve`, `plan` and `modify`: ask for a promise, and show it or the reason why not."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cachemgr.base.clock import SystemClock
from outrider.cli.arguments import Subparsers
from outrider.cli.asking import wanted as wants
from outrider.cli.asking.session import Session, add_asking, print_problems, session
from outrider.cli.errors import CommandError, InputError, RefusedError
from outrider.cli.output import print_json, print_notes
from outrider_client.transport import FaultyRequestError, Json, in_path

if TYPE_CHECKING:
    from outrider.service.answers.decision import Decision

CONFIRMED_S, LOOK_S = 5.0, 0.1
"""So long, at most, the command waits for the batch system to have what was promised, and looks so often."""
_FORMS = """Times are Slurm's forms and ISO 8601, in the zone that TZ names or else the machine's.
What is accepted is a promise: the image is on all nodes when the reservation starts. What is
refused comes with the earliest start that would be accepted, and the exit code 4.
"""
_RESERVE = f"""{_FORMS}
examples:
  outrider reserve ws.yaml --start 14:00
  outrider reserve ws.yaml --finish-by "tomorrow 08:00" --nodes 8
  outrider reserve ws.yaml --option nodes=2,time=60m --option nodes=4,time=35m --finish-by 18:00
  outrider reserve ws.yaml --start 09:00 --every weekdays --until 2027-02-01
  outrider reserve --image https://images.example.org/ubuntu.qcow2 --nodes 4 --start now+1hour -t 2h
"""
_PLAN = f"""Nothing is reserved: this says what outrider reserve would be answered now.
{_FORMS}
examples:
  outrider plan ws.yaml --start 14:00
  outrider plan --image ubuntu.qcow2 --nodes 64 --finish-by "tomorrow 08:00" -t 4h
"""
_MODIFY = """What is not given stays. If the change is refused, the reservation stays as it was.

examples:
  outrider modify render-17 --start 15:00
  outrider modify render-17 --duration 4h --plan
  outrider modify render-17 --nodes 8 --cpus 4
"""


_ACCEPT = """A refusal names what would be accepted instead, and holds it for a short time. If it cannot be
kept any more, the answer is a refusal again, with the exit code 4.

examples:
  outrider accept offer-k3mzqa-1
"""


def add(commands: Subparsers) -> None:
    for verb, command, summary, epilog in (
        ("reserve", reserve, "ask for nodes that have the image when the time comes", _RESERVE),
        ("plan", plan, "see what a reservation would be answered, without making it", _PLAN),
    ):
        parser = add_asking(commands, verb, command, summary, epilog)
        wants.add_workspace_options(parser)
        wants.add_deployment_options(parser)
        parser.add_argument("--account", metavar="ACCOUNT", default="", help="the account that is charged")
        parser.add_argument(
            "--max-price", metavar="AMOUNT", help="the most that it may cost, if the site has prices"
        )
        wants.add_repetition_options(parser)
        parser.set_defaults(verb=verb)
    parser = add_asking(
        commands, "accept", accept, "accept an offer that was made in place of a refusal", _ACCEPT
    )
    parser.add_argument("offer", metavar="OFFER", help="its name, as the refusal has it: offer-k3mzqa-1")
    parser = add_asking(commands, "modify", modify, "change a reservation's times, nodes or sizes", _MODIFY)
    parser.add_argument("name", metavar="NAME", help="the reservation: render-17, or render if that is clear")
    wants.add_deployment_options(parser, are_all=False)
    parser.add_argument("--plan", action="store_true", help="say what would be answered, and change nothing")


def reserve(arguments: argparse.Namespace) -> None:
    _ask(arguments, "/v1/reservations", "is reserved", "is refused")


def accept(arguments: argparse.Namespace) -> None:
    asking = session(arguments)
    answer = asking.client.post(f"/v1/offers/{in_path(arguments.offer)}", {})
    _print(asking, answer, arguments, "is reserved", "is refused", drops_finish=False, can_be_repeated=False)


def plan(arguments: argparse.Namespace) -> None:
    _ask(arguments, "/v1/plans", "would be accepted", "would be refused")


def modify(arguments: argparse.Namespace) -> None:
    asking = session(arguments)
    change: dict[str, Json] = {
        key: value
        for key in ("start", "duration", "memory")
        if (value := getattr(arguments, key)) is not None
    }
    for key in ("nodes", "cpus", "gpus"):
        if getattr(arguments, key) is not None:
            change[key] = _count(key, getattr(arguments, key))
    if not change:
        raise InputError("nothing to change: give --start, --duration, --nodes, --cpus, --memory or --gpus")
    query = {"plan": "true" if arguments.plan else "false"}
    try:
        answer = asking.client.patch(
            f"/v1/reservations/{in_path(arguments.name)}", {**change, "zone": asking.zone_name}, query
        )
    except FaultyRequestError as error:
        print_problems(error, None)
        raise InputError(str(error)) from error
    accepted, refused = ("would be changed", "would not be changed") if arguments.plan else (
        "is changed", "stays as it was")  # fmt: skip
    _print(asking, answer, arguments, accepted, refused, drops_finish=False)


def _count(option: str, text: str) -> int:
    least = 0 if option == "gpus" else 1
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) >= least):
        raise InputError(f"--{option}: {text!r} is not a whole number of {least} or more")
    return int(text)


def _ask(arguments: argparse.Namespace, path: str, accepted: str, refused: str) -> None:
    asking = session(arguments)
    wanted = wants.wanted(arguments)
    try:
        body = wanted.wish(asking.zone_name, arguments.account).body()
        answer = asking.client.post(path, {**body, **wants.beyond(arguments)})
    except FaultyRequestError as error:
        print_problems(error, wanted.file)
        raise InputError(f"faults found: {len(error.problems)}; nothing was reserved") from error
    drops_finish = "finish_by" in wanted.text or bool(wanted.options.get("finish_by"))
    _print(asking, answer, arguments, accepted, refused, drops_finish=drops_finish)


def _print(
    asking: Session,
    answer: Json,
    arguments: argparse.Namespace,
    accepted: str,
    refused: str,
    *,
    drops_finish: bool,
    can_be_repeated: bool = True,
) -> None:
    """The decision on stdout, and the exit code that says which it was."""
    from outrider.service.answers.decision import Decision

    decision = asking.read(Decision, answer)
    if asking.is_json:
        print_json(answer)
    elif decision.result == "accepted":
        print(_accepted(asking, decision, arguments, accepted))
    else:
        from outrider.cli.asking.display.decision import refused_screen

        again = ""
        if decision.earliest_start_s is not None and can_be_repeated:
            start = wants.typable_start(decision.earliest_start_s, asking.when)
            again = wants.words_with_start(arguments.words, start, drops_finish=drops_finish)
        print(refused_screen(decision, asking.when, asking.paint, refused, again))
    if not asking.is_json:
        print_notes(decision.notes)
    if decision.result != "accepted":
        raise RefusedError
    if decision.name and not accepted.startswith("would"):
        first = next((each.name for each in decision.occurrences if each.name), decision.name)
        _await_batch_system(asking, first)


def _await_batch_system(asking: Session, name: str) -> None:
    """A script's next command names the reservation to the batch system, which has it a moment later. The
    promise stands without that, too: nothing is said if it takes long."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + CONFIRMED_S
    while clock.monotonic_s() < until_s:
        try:
            found = asking.client.get(f"/v1/reservations/{in_path(name)}")
        except CommandError:
            return
        view = found.get("reservation") if isinstance(found, dict) else None
        if not isinstance(view, dict) or view.get("is_confirmed") is not False:
            return
        clock.sleep(LOOK_S)


def _accepted(asking: Session, decision: Decision, arguments: argparse.Namespace, head: str) -> str:
    from outrider.cli.asking.display.decision import accepted_screen, next_steps

    if decision.name and not head.startswith("would"):
        following = next_steps(decision, _batch_system(asking))
    else:
        following = wants.without_plan(arguments.words)
    return accepted_screen(decision, asking.when, asking.paint, head, following)


def _batch_system(asking: Session) -> str:
    """Which one it is, for the next command; a promise is not spoilt by not finding out."""
    try:
        answer = asking.client.get("/v1/status")
    except CommandError as error:
        print(
            f"outrider: the reservation stands, but the service's status is not known: {error}",
            file=sys.stderr,
        )
        return ""
    found = answer.get("batch_system") if isinstance(answer, dict) else None
    return found if isinstance(found, str) else ""
