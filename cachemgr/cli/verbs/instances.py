"""The verbs on instances, a job's own copies of an image: instance, instances, release."""

from __future__ import annotations

import json

from cachemgr.base.errors import BadRequest
from cachemgr.base.tables import table
from cachemgr.base.times import time_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read, short_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

# What a context may have in a file; the daemon's own limit for a request is below it.
MOST_CONTEXT_BYTES = 1 << 20
METHODS = "reflink, qcow2, overlay, readonly, shared or copy"
HEADER = ("INSTANCE", "OWNER", "LABEL", ">UID", "METHOD", "IMAGE", "UNTIL", "PATH")


def add(commands: VerbParsers) -> None:
    instance = commands.add(
        "instance",
        _instance,
        "make a copy of an image for a job, and print its path",
        "instance ubuntu.qcow2 --owner job-17 --for 2h",
        "instance ubuntu.qcow2 --owner job-17 --label rank-3 --method qcow2 --for 2h",
        "instance tools.sif --owner job-17 --read-only --for 2h",
    )
    args.add_image(instance)
    instance.add_argument("--owner", required=True, help="its owner; asking again gives the same one")
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
    release.add_argument("owner", metavar="OWNER", help="the owner")
    release.add_argument("--label", help="this instance alone, and no pin")


def _instance(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import InstanceEntry, InstanceRequest

    wanted = InstanceRequest(
        name=arguments.name,
        owner=arguments.owner,
        label=arguments.label,
        until_s=args.until_s(arguments, session.clock.now_s()) or 0,
        method=arguments.method,
        is_writable=_is_writable(arguments),
        uid=arguments.uid,
        context=_context(arguments.context),
    )
    found = session.ask_about("instance", wanted, "making the instance")
    made = read(InstanceEntry, found)
    session.show(found, made.path)
    if made.seed:
        session.say(f"its contextualisation is in {made.seed}")
    if made.state == "prepared":
        session.say(f"root has still to mount it: cachemgr mount {made.instance}")


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


def _instances(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ListedInstances

    found = session.ask("instances", doing="listing the instances")
    rows = [
        (
            each.instance[:12],
            each.owner,
            each.label,
            each.uid,
            each.method,
            short_digest(each.digest),
            time_in_words(each.until_s or 0).replace(" ", "T"),
            each.path,
        )
        for each in read(ListedInstances, found).instances
    ]
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _release(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import Released, ReleaseRequest

    found = session.ask("release", ReleaseRequest(arguments.owner, arguments.label), "removing")
    gone = read(Released, found)
    instances, pins = f"{gone.removed} instance{_s(gone.removed)}", f"{gone.pins} pin{_s(gone.pins)}"
    text = f"{instances} and {pins} of {arguments.owner} removed"
    session.show(found, text)


def _s(number: int) -> str:
    return "" if number == 1 else "s"
