"""argparse as cachemgr wants it: errors are exceptions, values are checked, examples stay as written."""

from __future__ import annotations

import argparse
import os

from cachemgr.base import times
from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import read_rate, read_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    from cachemgr.cli.session import VerbSession

    Command = Callable[[VerbSession, argparse.Namespace], None]
    Value = TypeVar("Value")


class VerbParser(argparse.ArgumentParser):
    """A parser whose errors are `BadRequest`, one line each. An option has to be written out."""

    def __init__(self, *args: object, **options: object) -> None:
        options.setdefault("formatter_class", _Help)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """A slip of the pen in a verb is answered with the verb that was meant."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            import difflib

            near = difflib.get_close_matches(str(value), action.choices, n=1)
            meant = f": did you mean {near[0]!r}?" if near else ""
            self.error(f"there is no verb {str(value)[:40]!r}{meant}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message} (see {self.prog} --help)")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Options in a column of their own, wide enough for most of them."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(100, _columns() - 2))


class VerbParsers:
    """Where the verbs' parsers are added, in the order in which help lists them."""

    def __init__(self, below: argparse._SubParsersAction[VerbParser]) -> None:
        self._below = below

    def add(self, verb: str, command: Command, summary: str, *examples: str) -> VerbParser:
        """A verb whose help begins with its summary and ends with examples."""
        epilog = "examples:\n" + "\n".join(f"  cachemgr {example}" for example in examples)
        parser = self._below.add_parser(
            verb,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{epilog}\n\nThe options of `cachemgr --help` may stand here as well.",
        )
        add_common(parser, is_hidden=True)
        parser.set_defaults(command=command, verb=verb)
        return parser


def add_common(parser: VerbParser, *, is_hidden: bool) -> None:
    """What every verb understands, before or after it."""

    def add(*names: str, default: object, text: str, **more: object) -> None:
        parser.add_argument(
            *names,
            default=argparse.SUPPRESS if is_hidden else default,
            help=argparse.SUPPRESS if is_hidden else text,
            **more,  # type: ignore[arg-type]
        )

    add("--pool", default=None, metavar="FOLDER", text="the pool (default: the configuration's)")
    add("--socket", default=None, metavar="PATH", text="the daemon to ask (default: the configuration's)")
    add("--config", default=None, metavar="FILE", text="the configuration (default: the node's)")
    add("--no-daemon", default=False, action="store_true",
        text="work on the pool in this process, even if a daemon is there")  # fmt: skip
    add("--json", default=False, action="store_true", text="print the result as one JSON document")
    add("-q", "--quiet", default=False, action="store_true", text="no progress and no remarks, only results")
    add("-v", "--verbose", default=False, action="store_true", text="say who was asked, and more progress")


def add_until(parser: argparse._ActionsContainer, *, what: str, is_required: bool = False) -> None:
    """--for and --until, of which one at most may be given."""
    times_of = parser.add_mutually_exclusive_group(required=is_required)
    times_of.add_argument(
        "--for", dest="for_s", type=checked(times.read_span), metavar="TIME",
        help=f"{what} for that long: 90s, 2h, 7d",
    )  # fmt: skip
    times_of.add_argument(
        "--until", metavar="WHEN", help=f"{what} until then: 2026-01-31T14:00, or +2h for from now"
    )


def until_s(arguments: argparse.Namespace, now_s: int, default_s: int | None = None) -> int | None:
    """What --for and --until come to."""
    if arguments.for_s is not None:
        return now_s + int(arguments.for_s)
    if arguments.until is not None:
        return times.read_time(arguments.until, now_s)
    return None if default_s is None else now_s + default_s


def add_image(parser: VerbParser, *, is_optional: bool = False) -> None:
    """The image that a verb is about."""
    nargs = "?" if is_optional else None
    text = "its address, digest or a part of either"
    parser.add_argument("name", nargs=nargs, type=name, metavar="IMAGE", help=text)


def add_no_header(parser: VerbParser) -> None:
    parser.add_argument("-n", "--noheader", action="store_true", help="leave out the line of column names")


def checked(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """A reader of ours as argparse wants it, so that an error names the option."""

    def converted(text: str) -> Value:
        try:
            return read(text)
        except BadRequest as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return converted


def size(text: str) -> int:
    return checked(read_size)(text)


def rate(text: str) -> int:
    """A rate; 0 stands for no limit."""
    return 0 if text == "0" else checked(read_rate)(text)


def user(text: str) -> int:
    """A user's number, from its name or number."""
    if text.isascii() and text.isdigit():
        return int(text)
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no user {text!r} on this node") from error


def group(text: str) -> int:
    """A group's number, from its name or number."""
    if text.isascii() and text.isdigit():
        return int(text)
    import grp

    try:
        return grp.getgrnam(text).gr_gid
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no group {text!r} on this node") from error


def address(text: str) -> str:
    """An image's address. What is not a URI is a file: its whole path, so that the daemon finds it."""
    return text if "://" in text else os.path.abspath(text)


def name(text: str) -> str:
    """An image's name: an address, a digest, a part of either; a file by its whole path."""
    return os.path.abspath(text) if text.startswith(("/", "./", "../")) else text


def _columns() -> int:
    try:
        return max(60, os.get_terminal_size(1).columns)
    except OSError:
        return 80
