"""The verbs on what keeps an image here and what lets it go: pin, unpin, evict, forget."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import in_words
from cachemgr.cli import answers
from cachemgr.cli import arguments as args
from cachemgr.cli.times import read_time, time_in_words
from cachemgr.cli.verbs.images import title

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.answers import Result
    from cachemgr.cli.arguments import Commands
    from cachemgr.cli.session import Session

PIN_KINDS = ("hold", "expect")


def add(commands: Commands) -> None:
    pin = commands.add(
        "pin",
        _pin,
        "keep an image from being evicted",
        "pin ubuntu.qcow2 --owner job-17 --for 2h",
        "pin ubuntu.qcow2 --owner course --kind expect --from +1d --for 2d",
    )
    args.add_image(pin)
    pin.add_argument(
        "--owner", required=True, help="whose pin it is; the same owner's is renewed, never shortened"
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
    unpin.add_argument("--owner", required=True, help="whose pin it is")
    evict = commands.add(
        "evict",
        _evict,
        "delete an image, or as many as room needs",
        "evict ubuntu.qcow2",
        "evict --need 20GiB",
    )
    args.add_image(evict, is_optional=True)
    evict.add_argument(
        "--need", type=args.size, metavar="SIZE", help="let the policy choose, until so much is free"
    )
    forget = commands.add(
        "forget",
        _forget,
        "forget an address or tag; the image stays",
        "forget https://images.example/ubuntu.qcow2",
    )
    forget.add_argument("alias", type=args.name, metavar="ALIAS", help="the address or tag")


def _pin(session: Session, arguments: argparse.Namespace) -> None:
    now_s = session.clock.now_s()
    until_s = args.until_s(arguments, now_s)
    image = session.ask_about(
        "pin",
        arguments.name,
        owner=arguments.owner,
        kind=arguments.kind,
        until_s=until_s,
        from_s=None if arguments.from_ is None else read_time(arguments.from_, now_s),
    )
    said = "is pinned" if arguments.kind == "hold" else "is expected"
    until = time_in_words(until_s or 0)
    session.show(image, f"{title(image)} {said} for {arguments.owner} until {until}")


def _unpin(session: Session, arguments: argparse.Namespace) -> None:
    name = session.whole_name(arguments.name)
    found = session.ask("unpin", name=name, owner=arguments.owner)
    was_pinned = answers.truth(found, "was_pinned")
    text = f"the pin of {arguments.owner} is gone" if was_pinned else f"{arguments.owner} had no pin on it"
    session.show(found, text)


def _evict(session: Session, arguments: argparse.Namespace) -> None:
    if (arguments.name is None) == (arguments.need is None):
        raise BadRequest("say either which image to evict or how much room: evict IMAGE, evict --need SIZE")
    if arguments.name is not None:
        found = session.ask_about("evict", arguments.name, "evicting")
    else:
        found = session.ask("evict", "evicting", need_bytes=arguments.need)
    lines = [f"evicted {answers.short_digest(digest)}" for digest in answers.texts(found, "evicted")]
    session.show(found, "\n".join(lines) or "nothing had to go")


def victims(found: Result) -> list[str]:
    """What would be evicted, a line each."""
    return [
        f"{answers.short_digest(answers.text(each, 'digest'))}  {size}"
        for each in answers.rows(found, "evicted")
        for size in [in_words(answers.number(each, "size_bytes"))]
    ]


def _forget(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("forget", alias=arguments.alias)
    was_known = answers.truth(found, "was_known")
    session.show(
        found, f"{arguments.alias} {'stands for no image any more' if was_known else 'was no alias'}"
    )
