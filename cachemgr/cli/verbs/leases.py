"""The verbs on what keeps an image here and what lets it go: pin, unpin, evict, forget."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.base.times import read_time, time_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read, short_digest
from cachemgr.cli.verbs.images import title

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

PIN_KINDS = ("hold", "expect")


def add(commands: VerbParsers) -> None:
    pin = commands.add(
        "pin",
        _pin,
        "keep an image from being evicted",
        "pin ubuntu.qcow2 --owner job-17 --for 2h",
        "pin ubuntu.qcow2 --owner course --kind expect --from +1d --for 2d",
    )
    args.add_image(pin)
    pin.add_argument(
        "--owner", required=True, help="the pin's owner; the same owner's pin is renewed, never shortened"
    )
    args.add_until(pin, what="hold it", is_required=True)
    pin.add_argument(
        "--kind",
        choices=PIN_KINDS,
        default="hold",
        help="hold prevents eviction, expect only tells when it is needed (default: hold)",
    )
    pin.add_argument("--from", dest="from_", metavar="WHEN", help="when it is needed first (default: now)")
    unpin = commands.add("unpin", _unpin, "give a pin back", "unpin ubuntu.qcow2 --owner job-17")
    args.add_image(unpin)
    unpin.add_argument("--owner", required=True, help="the pin's owner")
    evict = commands.add(
        "evict",
        _evict,
        "delete an image, or as many as room needs",
        "evict ubuntu.qcow2",
        "evict --need 20GiB",
    )
    args.add_image(evict, is_optional=True)
    evict.add_argument(
        "--need", type=args.size, metavar="SIZE", help="let the policy choose, until this much is free"
    )
    forget = commands.add(
        "forget",
        _forget,
        "forget an address or tag; the image stays",
        "forget https://images.example/ubuntu.qcow2",
    )
    forget.add_argument("alias", type=args.name, metavar="ALIAS", help="the address or tag")


def _pin(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ImageEntry, PinRequest

    now_s = session.clock.now_s()
    until_s = args.until_s(arguments, now_s) or 0
    from_s = None if arguments.from_ is None else read_time(arguments.from_, now_s)
    wanted = PinRequest(arguments.name, arguments.owner, until_s, arguments.kind, from_s)
    image = session.ask_about("pin", wanted)
    said = "is pinned" if arguments.kind == "hold" else "is expected"
    until = time_in_words(until_s)
    session.show(image, f"{title(read(ImageEntry, image))} {said} for {arguments.owner} until {until}")


def _unpin(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import Unpinned, UnpinRequest

    name = session.whole_name(arguments.name)
    found = session.ask("unpin", UnpinRequest(name, arguments.owner))
    was_pinned = read(Unpinned, found).was_pinned
    text = f"the pin of {arguments.owner} is gone" if was_pinned else f"{arguments.owner} had no pin on it"
    session.show(found, text)


def _evict(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import Evicted, EvictRequest

    if (arguments.name is None) == (arguments.need is None):
        raise BadRequest("say either which image to evict or how much room: evict IMAGE, evict --need SIZE")
    if arguments.name is not None:
        found = session.ask_about("evict", EvictRequest(arguments.name), "evicting")
    else:
        found = session.ask("evict", EvictRequest(need_bytes=arguments.need), "evicting")
    lines = [f"evicted {short_digest(digest)}" for digest in read(Evicted, found).evicted]
    session.show(found, "\n".join(lines) or "nothing had to go")


def _forget(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ForgetRequest, Forgotten

    found = session.ask("forget", ForgetRequest(arguments.alias))
    was_known = read(Forgotten, found).was_known
    session.show(
        found, f"{arguments.alias} {'stands for no image any more' if was_known else 'was no alias'}"
    )
