"""The verbs on instances, a job's own copies of an image: instance, instances, release."""

from __future__ import annotations

import json

from cachemgr.base.errors import BadRequest
from cachemgr.cli import answers
from cachemgr.cli import arguments as args
from cachemgr.cli.tables import table
from cachemgr.cli.times import time_in_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import Commands
    from cachemgr.cli.session import Session

# What a context may have in a file; the daemon's own limit for a request is below it.
MOST_CONTEXT_BYTES = 1 << 20
METHODS = "reflink, qcow2, overlay, readonly, shared or copy"
HEADER = ("INSTANCE", "OWNER", "LABEL", ">UID", "METHOD", "IMAGE", "UNTIL", "PATH")


def add(commands: Commands) -> None:
    instance = commands.add(
        "instance",
        _instance,
        "make a copy of an image for a job, and print its path",
        "instance ubuntu.qcow2 --owner job-17 --for 2h",
        "instance ubuntu.qcow2 --owner job-17 --label rank-3 --method qcow2 --for 2h",
        "instance tools.sif --owner job-17 --read-only --for 2h",
    )
    args.add_image(instance)
    instance.add_argument("--owner", required=True, help="whose it is; asking again gives the same one")
    instance.add_argument("--label", help="which one, if the owner has several")
    args.add_until(instance, what="keep it", is_required=True)
    instance.add_argument("--method", metavar="METHOD", help=f"{METHODS} (default: the first possible)")
    instance.add_argument("--read-only", action="store_true", help="it need not be writable")
    instance.add_argument("--writable", action="store_true", help="it has to be writable, also of a SIF")
    instance.add_argument(
        "--uid", type=args.user, metavar="USER", help="for whom it is (for root and the pool's user)"
    )
    instance.add_argument(
        "--context", metavar="FILE", help="JSON for its first boot: host name, addresses, files, user data"
    )
    listed = commands.add("instances", _instances, "list the instances", "instances", "instances --json")
    args.add_no_header(listed)
    release = commands.add(
        "release",
        _release,
        "remove an owner's instances and pins",
        "release job-17",
        "release job-17 --label rank-3",
    )
    release.add_argument("owner", metavar="OWNER", help="whose")
    release.add_argument("--label", help="this instance alone, and no pin")


def _instance(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask_about(
        "instance",
        arguments.name,
        "making the instance",
        owner=arguments.owner,
        label=arguments.label,
        until_s=args.until_s(arguments, session.clock.now_s()),
        method=arguments.method,
        is_writable=_is_writable(arguments),
        uid=arguments.uid,
        context=_context(arguments.context),
    )
    session.show(found, answers.text(found, "path"))
    seed = answers.text(found, "seed")
    if seed:
        session.say(f"its contextualisation is in {seed}")
    if answers.text(found, "state") == "prepared":
        session.say(f"root has still to mount it: cachemgr mount {answers.text(found, 'instance')}")


def _is_writable(arguments: argparse.Namespace) -> bool | None:
    """None if that was not said: it is for the image's format to decide."""
    if arguments.read_only and arguments.writable:
        raise BadRequest("an instance cannot be --read-only and --writable: leave one out")
    return False if arguments.read_only else True if arguments.writable else None


def _context(path: str | None) -> dict[str, object] | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(MOST_CONTEXT_BYTES))
    except (OSError, ValueError) as error:
        raise BadRequest(f"the context {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest(f"the context {path} is not a JSON object")
    return found


def _instances(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("instances", "listing the instances")
    rows = [
        (
            answers.text(each, "instance")[:12],
            answers.text(each, "owner"),
            answers.text(each, "label"),
            answers.number(each, "uid"),
            answers.text(each, "method"),
            answers.short_digest(answers.text(each, "digest")),
            time_in_words(answers.number(each, "until_s")).replace(" ", "T"),
            answers.text(each, "path"),
        )
        for each in answers.rows(found, "instances")
    ]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _release(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("release", "removing", owner=arguments.owner, label=arguments.label)
    removed, pins = answers.number(found, "removed"), answers.number(found, "pins")
    text = f"{removed} instance{_s(removed)} and {pins} pin{_s(pins)} of {arguments.owner} removed"
    session.show(found, text)


def _s(number: int) -> str:
    return "" if number == 1 else "s"
