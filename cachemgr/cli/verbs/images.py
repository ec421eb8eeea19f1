"""The verbs that look at images: find, ls, show; and how an image is called on a line."""

from __future__ import annotations

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import facts, table
from cachemgr.base.times import ago_in_words, time_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read, short_digest
from cachemgr.cli.identity import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession
    from cachemgr.protocol import ArrivingEntry, ImageEntry, ShownImage

HEADER = ("DIGEST", "STATE", ">SIZE", "FORMAT", ">PINS", ">USES", ">IDLE", "ADDRESS")


def add(commands: VerbParsers) -> None:
    ls = commands.add(
        "ls", _ls, "list the images, and what is arriving", "ls", "ls -n | awk '{print $1}'", "ls --json"
    )
    args.add_no_header(ls)
    show = commands.add(
        "show", _show, "show everything about an image", "show ubuntu.qcow2", "show 4be1c0 --json"
    )
    args.add_image(show)
    find = commands.add(
        "find", _find, "print the path of an image's bytes", "find ubuntu.qcow2", "find sha256:4be1…"
    )
    args.add_image(find)


def title(image: ImageEntry) -> str:
    """An image in a sentence: the last part of its address, and its digest's beginning."""
    return f"{image.uri.rpartition('/')[2] or image.uri} ({short_digest(image.digest)})"


def _find(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ImageEntry, NameRequest

    found = session.ask_about("find", NameRequest(arguments.name))
    image = read(ImageEntry, found)
    session.show(found, image.path or image.digest)


def _ls(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import ListedImages

    found = session.ask("ls", doing="listing the images")
    listed = read(ListedImages, found)
    now_s = session.clock.now_s()
    rows = [_row(each, now_s) for each in listed.images]
    rows += [_arriving_row(each) for each in listed.arriving]
    rows.sort(key=lambda row: str(row[-1]))
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(image: ImageEntry, now_s: int) -> tuple[object, ...]:
    return (
        short_digest(image.digest),
        "here" if image.is_public else "private",
        _word(in_words(image.size_bytes)),
        image.format,
        image.pins,
        image.uses,
        _word(ago_in_words(image.last_use_s or image.added_s, now_s)),
        image.uri,
    )


def _arriving_row(image: ArrivingEntry) -> tuple[object, ...]:
    share = 100 * image.arrived_bytes // image.size_bytes if image.size_bytes else 0
    size = _word(in_words(image.size_bytes))
    return (short_digest(image.digest or ""), f"{share}%", size, "", "", "", "", image.uri)


def _word(text: str) -> str:
    """A number with its unit as one word, so that columns can be counted: `1.5GiB`, `3d`."""
    return text.replace(" ", "")


def _show(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import NameRequest, ShownImage

    found = session.ask_about("show", NameRequest(arguments.name))
    image = read(ShownImage, found)
    session.show(found, facts([*_facts(image), *_leases(image)]))


def _facts(image: ShownImage) -> list[tuple[str, object]]:
    last = f", last {time_in_words(image.last_use_s)}" if image.uses else ""
    return [
        ("digest", image.digest),
        ("address", image.uri),
        ("size", f"{in_words(image.size_bytes)} ({image.size_bytes} bytes)"),
        ("format", image.format),
        ("added", time_in_words(image.added_s)),
        ("owner", user_name(image.owner_uid or 0)),
        ("readers", _readers(image)),
        ("uses", f"{image.uses}{last}"),
        ("path", image.path),
    ]


def _readers(image: ShownImage) -> str:
    if image.is_public:
        return "everybody"
    if image.readers is None:
        return "some"
    names = [user_name(uid) for uid in image.readers.uids] + [f"group {gid}" for gid in image.readers.gids]
    return ", ".join(["its owner", *names])


def _leases(image: ShownImage) -> list[tuple[str, object]]:
    """The other names, pins and instances of an image, a line each."""
    names = [each.name for each in image.aliases or ()]
    pairs: list[tuple[str, object]] = [("also called", name) for name in names if name != image.uri]
    for pin in image.pin_list or ():
        # An instance's own pin is told with the instance.
        if pin.kind != "instance":
            pairs.append(("pin", f"{pin.owner} ({pin.kind}) until {time_in_words(pin.until_s)}"))
    for each in image.instances or ():
        whose = " ".join(filter(None, [each.owner, each.label]))
        pairs.append(("instance", f"{whose} ({each.method}) until {time_in_words(each.until_s or 0)}"))
    return pairs
