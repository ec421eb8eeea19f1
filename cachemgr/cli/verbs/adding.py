"""The verb add: asking for an image, waiting for it with progress, and what Ctrl-C means meanwhile."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, NotAllowed, SourceFailed
from cachemgr.base.sizes import in_words
from cachemgr.base.times import read_time, span_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read, short_digest
from cachemgr.cli.progress import ProgressLine
from cachemgr.cli.verbs.images import title
from cachemgr.cli.verbs.leases import PIN_KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession
    from cachemgr.protocol import AddRequest, DryRun, PinFields

FORMATS = ("raw", "qcow2", "squashfs", "sif", "bundle", "file", "layers")
# Long enough for a weekend's queue; whoever needs it longer says so.
PIN_S = 7 * 86_400


def add(commands: VerbParsers) -> None:
    parser = commands.add(
        "add",
        _add,
        "bring an image into the pool",
        "add /images/ubuntu.qcow2",
        "add https://images.example/ubuntu.qcow2 --digest sha256:4be1… --pin job-17 --for 2h",
        "add https://images.example/big.sif --deadline +30m --rate 200Mbit --no-wait",
        "add https://images.example/big.sif --dry-run",
    )
    parser.add_argument(
        "uri", type=args.address, metavar="SOURCE",
        help="a file, or a URI: file, http, https, docker, oras, ssh, sftp, rsync or relay",
    )  # fmt: skip
    _add_image_options(parser.add_argument_group("the image"))
    pin = parser.add_argument_group("pin")
    pin.add_argument("--pin", metavar="OWNER", help="pin it before its first byte (default: for 7 days)")
    args.add_until(pin, what="pin it")
    pin.add_argument("--kind", choices=PIN_KINDS, default="hold", help="of the pin (default: hold)")
    how = parser.add_argument_group("transfer")
    how.add_argument("--deadline", metavar="WHEN", help="when it is needed: earlier deadlines go first")
    how.add_argument("--rate", type=args.rate, metavar="RATE", help="the highest rate: 100Mbit or 12.5MB/s")
    how.add_argument("--no-wait", action="store_true", help="print the transfer's number and return")
    how.add_argument(
        "--dry-run", action="store_true", help="only say whether it would fit, and what would be evicted"
    )


def _add_image_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--digest", metavar="SHA256", help="what its bytes must be, as 64 hex digits")
    group.add_argument("--size", type=args.size, metavar="SIZE", help="its size, if the source cannot tell")
    group.add_argument("--format", choices=FORMATS, help="what it is (default: what its content says)")
    group.add_argument(
        "--source", action="append", type=args.address, metavar="URI",
        help="ask here before SOURCE; may be repeated, best first (for root and the pool's user)",
    )  # fmt: skip
    group.add_argument("--private", action="store_true", help="for its owner and its readers only")
    group.add_argument(
        "--reader", action="append", type=args.user, metavar="USER",
        help="who may use it, too; may be repeated, and implies --private",
    )  # fmt: skip
    group.add_argument(
        "--reader-group", action="append", type=args.group, metavar="GROUP", help="the same for a group"
    )


def _add(session: VerbSession, arguments: argparse.Namespace) -> None:
    wanted = _wanted(session, arguments)
    if arguments.dry_run:
        _dry_run(session, wanted)
    else:
        _bring(session, wanted, is_waiting=not arguments.no_wait)


def _wanted(session: VerbSession, arguments: argparse.Namespace) -> AddRequest:
    """The request, from the options."""
    from cachemgr.protocol import AddRequest, Readers

    readers = None
    if arguments.reader or arguments.reader_group:
        readers = Readers(tuple(arguments.reader or ()), tuple(arguments.reader_group or ()))
    deadline = arguments.deadline
    return AddRequest(
        uri=arguments.uri,
        digest=arguments.digest,
        size_bytes=arguments.size,
        format=arguments.format,
        sources=(*arguments.source, arguments.uri) if arguments.source else None,
        pin=_pin(session, arguments),
        private=True if arguments.private or readers else None,
        readers=readers,
        deadline_s=None if deadline is None else read_time(deadline, session.clock.now_s()),
        rate_bytes_per_s=arguments.rate or None,
        dry_run=arguments.dry_run,
    )


def _pin(session: VerbSession, arguments: argparse.Namespace) -> PinFields | None:
    from cachemgr.protocol import PinFields

    has_time = arguments.for_s is not None or arguments.until is not None
    if arguments.pin is None:
        if has_time or arguments.kind != "hold":
            raise BadRequest("--for, --until and --kind are about a pin: say whose it is with --pin OWNER")
        return None
    until_s = args.until_s(arguments, session.clock.now_s(), PIN_S) or 0
    return PinFields(arguments.pin, until_s, arguments.kind)


def _bring(session: VerbSession, wanted: AddRequest, *, is_waiting: bool) -> None:
    """Ask for the image; wait for it, or tell the number of its transfer."""

    from cachemgr.protocol import ImageEntry, TransferEntry

    uri = wanted.uri
    shown = ProgressLine(uri.rpartition("/")[2] or uri, sys.stderr, session.clock, volume=session.volume)
    began_s = session.clock.monotonic_s()
    asker = session.asker
    try:
        with opened(uri, is_needed=asker.opens_files) as file:
            found = asker.ask("add", wanted.changed(wait=is_waiting), shown if is_waiting else None, file)
    except KeyboardInterrupt as interrupt:
        shown.end()
        raise KeyboardInterrupt(asker.interrupted(shown.last)) from interrupt
    finally:
        shown.end()
    if "transfer" in found:
        session.show(found, read(TransferEntry, found).transfer)
        return
    image = read(ImageEntry, found)
    session.show(found, image.digest)
    took_s = session.clock.monotonic_s() - began_s
    after = f" after {span_in_words(took_s)}" if took_s >= 1 else ""
    session.say(f"{title(image)}, {in_words(image.size_bytes)}, is in the pool{after}")


def _dry_run(session: VerbSession, wanted: AddRequest) -> None:
    """Whether it would fit and what would be evicted; nothing changes."""
    from cachemgr.protocol import DryRun

    asker = session.asker
    with opened(wanted.uri, is_needed=asker.opens_files) as file:
        found = asker.ask("add", wanted, None, file)
    session.show(found, "\n".join(_would(read(DryRun, found))))


def _would(found: DryRun) -> list[str]:
    if found.is_present:
        return ["it is in the pool already"]
    if not found.evicted:
        return ["it would fit, and nothing would be evicted"]
    lines = [f"  {short_digest(each.digest)}  {in_words(each.size_bytes)}" for each in found.evicted]
    return ["it would fit after evicting", *lines]


def local_path(uri: str) -> str | None:
    """The path of a file of this node; None for what lies elsewhere."""
    from urllib.parse import unquote

    path = unquote(uri[len("file://") :]) if uri.startswith("file:///") else uri
    return path if path.startswith("/") else None


@contextmanager
def opened(uri: str, *, is_needed: bool) -> Iterator[int | None]:
    """A local file, opened by this user: who passes it on proves the right to read it."""
    path = local_path(uri)
    if path is None:
        yield None
        return
    if not is_needed:
        try:
            yield None
        except SourceFailed as error:
            if not os.path.isfile(path) or not os.access(path, os.R_OK):
                raise
            raise SourceFailed(f"{error}: it is the pool's user who has to be able to read it") from error
        return
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise BadRequest(f"there is no file {path}: correct the path, or write a URI") from error
    except OSError as error:
        raise NotAllowed(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield file
    finally:
        os.close(file)
