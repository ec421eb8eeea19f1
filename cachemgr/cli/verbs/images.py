"""The verbs that look at images: find, ls, show; and how an image is called on a line."""

from __future__ import annotations

from cachemgr.base.sizes import in_words
from cachemgr.cli import answers
from cachemgr.cli import arguments as args
from cachemgr.cli.identity import user_name
from cachemgr.cli.tables import facts, table
from cachemgr.cli.times import ago_in_words, time_in_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.answers import Result
    from cachemgr.cli.arguments import Commands
    from cachemgr.cli.session import Session

HEADER = ("DIGEST", "STATE", ">SIZE", "FORMAT", ">PINS", ">USES", ">IDLE", "ADDRESS")


def add(commands: Commands) -> None:
    ls = commands.add(
        "ls", _ls, "list the images, and what is arriving", "ls", "ls -n | awk '{print $1}'", "ls --json"
    )
    args.add_no_header(ls)
    show = commands.add(
        "show", _show, "tell everything about an image", "show ubuntu.qcow2", "show 4be1c0 --json"
    )
    args.add_image(show)
    find = commands.add(
        "find", _find, "print the path of an image's bytes", "find ubuntu.qcow2", "find sha256:4be1…"
    )
    args.add_image(find)


def title(image: Result) -> str:
    """An image in a sentence: the last part of its address, and its digest's beginning."""
    uri = answers.text(image, "uri")
    return f"{uri.rpartition('/')[2] or uri} ({answers.short_digest(answers.text(image, 'digest'))})"


def _find(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask_about("find", arguments.name)
    session.show(found, answers.text(found, "path") or answers.text(found, "digest"))


def _ls(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask("ls", "listing the images")
    now_s = session.clock.now_s()
    rows = [_row(each, now_s) for each in answers.rows(found, "images")]
    rows += [_arriving_row(each) for each in answers.rows(found, "arriving")]
    rows.sort(key=lambda row: str(row[-1]))
    session.show(found, table(HEADER, rows, has_header=not arguments.noheader))


def _row(image: Result, now_s: int) -> tuple[object, ...]:
    last_use_s = answers.number(image, "last_use_s") or answers.number(image, "added_s")
    return (
        answers.short_digest(answers.text(image, "digest")),
        "here" if answers.truth(image, "is_public") else "private",
        _word(in_words(answers.number(image, "size_bytes"))),
        answers.text(image, "format"),
        answers.number(image, "pins"),
        answers.number(image, "uses"),
        _word(ago_in_words(last_use_s, now_s)),
        answers.text(image, "uri"),
    )


def _arriving_row(image: Result) -> tuple[object, ...]:
    arrived_bytes, size_bytes = answers.number(image, "arrived_bytes"), answers.number(image, "size_bytes")
    share = 100 * arrived_bytes // size_bytes if size_bytes else 0
    digest = answers.short_digest(answers.text(image, "digest"))
    size = _word(in_words(size_bytes))
    return (digest, f"{share}%", size, "", "", "", "", answers.text(image, "uri"))


def _word(text: str) -> str:
    """A number with its unit as one word, so that columns can be counted: `1.5GiB`, `3d`."""
    return text.replace(" ", "")


def _show(session: Session, arguments: argparse.Namespace) -> None:
    found = session.ask_about("show", arguments.name)
    session.show(found, facts([*_facts(found), *_leases(found)]))


def _facts(image: Result) -> list[tuple[str, object]]:
    size_bytes, uses = answers.number(image, "size_bytes"), answers.number(image, "uses")
    last = f", last {time_in_words(answers.number(image, 'last_use_s'))}" if uses else ""
    return [
        ("digest", answers.text(image, "digest")),
        ("address", answers.text(image, "uri")),
        ("size", f"{in_words(size_bytes)} ({size_bytes} bytes)"),
        ("format", answers.text(image, "format")),
        ("added", time_in_words(answers.number(image, "added_s"))),
        ("owner", user_name(answers.number(image, "owner_uid"))),
        ("readers", _readers(image)),
        ("uses", f"{uses}{last}"),
        ("path", answers.text(image, "path")),
    ]


def _readers(image: Result) -> str:
    if answers.truth(image, "is_public"):
        return "everybody"
    readers = image.get("readers")
    if not isinstance(readers, dict):
        return "some"
    uids, gids = answers.texts(readers, "uids"), answers.texts(readers, "gids")
    names = [user_name(int(uid)) for uid in uids] + [f"group {gid}" for gid in gids]
    return ", ".join(["its owner", *names])


def _leases(found: Result) -> list[tuple[str, object]]:
    """The other names, pins and instances of an image, a line each."""
    address = answers.text(found, "uri")
    names = [answers.text(each, "name") for each in answers.rows(found, "aliases")]
    pairs: list[tuple[str, object]] = [("also called", name) for name in names if name != address]
    for pin in answers.rows(found, "pin_list"):
        # An instance's own pin is told with the instance.
        if answers.text(pin, "kind") != "instance":
            until = time_in_words(answers.number(pin, "until_s"))
            pairs.append(("pin", f"{answers.text(pin, 'owner')} ({answers.text(pin, 'kind')}) until {until}"))
    for each in answers.rows(found, "instances"):
        until = time_in_words(answers.number(each, "until_s"))
        whose = " ".join(filter(None, [answers.text(each, "owner"), answers.text(each, "label")]))
        pairs.append(("instance", f"{whose} ({answers.text(each, 'method')}) until {until}"))
    return pairs
