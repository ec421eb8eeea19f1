"""What every command that asks the service shares: its options, the client, the zone, the form of output."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from outrider.cli.arguments import Command, Parser, Subparsers, add_command
from outrider.cli.errors import InputError
from outrider.cli.output import print_json
from outrider.cli.quantities import positive
from outrider_client.doors import SOCKET, door_of
from outrider_client.transport import TIMEOUT_S, FaultyRequestError, Json, Query, Transport

if TYPE_CHECKING:
    from outrider.cli.asking.display.columns import Columns
    from outrider.cli.asking.display.terminal import Paint
    from outrider.cli.asking.display.words import When

T = TypeVar("T")
COMMON = ("json", "utc", "socket", "server", "timeout")
"""Options of every command that asks the service."""
_ZONES = "/zoneinfo/"
_OPTIONS_OF = {"metadata.image.uri": "image", "metadata.image": "image", "deployment": ""}
"""Keys that are not called like the option they come from, or come from several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One command's dealings with the service."""

    client: Transport
    zone: tzinfo
    zone_name: str
    is_json: bool
    has_header: bool
    when: When
    paint: Paint

    def read(self, kind: type[T], value: Json) -> T:
        from outrider_client.reading import read

        return read(kind, value)

    def pages(self, path: str, query: Query, key: str) -> dict[str, Json]:
        return self.client.pages(path, query, key)

    def shown(self, kind: type[T], answer: Json) -> T | None:
        """The answer for people to see; nothing if it was printed as JSON, which was asked for."""
        if not self.is_json:
            return self.read(kind, answer)
        print_json(answer)
        return None

    def table(self, columns: Columns[T], values: Sequence[T], *, nothing: str) -> None:
        """On stdout; that there is nothing to list is a remark on stderr."""
        if not values:
            print(f"outrider: {nothing}", file=sys.stderr)
        else:
            print(self.written_table(columns, values, self.when))

    def written_table(self, columns: Columns[T], values: Sequence[T], when: When) -> str:
        from outrider.cli.asking.display.terminal import table

        titles = [title for title, _ in columns]
        rows = [[value(each, when) for _, value in columns] for each in values]
        return table(titles, rows, self.paint, has_header=self.has_header)


def add_asking(commands: Subparsers, name: str, command: Command, summary: str, epilog: str) -> Parser:
    """A command with the options that all have that ask the service."""
    parser = add_command(commands, name, command, summary, epilog)
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print the service's answer as it is, as JSON")
    group.add_argument("--utc", action="store_true", help="read and show times in UTC instead of TZ's zone")
    group.add_argument(
        "--socket", metavar="PATH", help=f"the service's socket (OUTRIDER_SOCKET, or {SOCKET})"
    )
    group.add_argument(
        "--server", metavar="HOST:PORT",
        help="ask the service on another machine instead, with MUNGE; several heads with commas between "
        "(OUTRIDER_SERVER)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", metavar="SECONDS", type=positive, default=TIMEOUT_S,
        help="how long to wait for an answer, restarts of the service included, or for news of an image that "
        f"is being converted ({TIMEOUT_S})",
    )  # fmt: skip
    return parser


def me() -> str:
    """Whom the service will take us for: what the kernel says, and not LOGNAME."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise InputError("--mine: this user has no name here; give one with --user") from error


def add_header_option(parser: Parser) -> None:
    parser.add_argument("-n", "--noheader", action="store_true", help="leave out the line of column names")


def add_filters(parser: Parser, states: Sequence[str]) -> None:
    """Whose, and in which states."""
    owners = parser.add_mutually_exclusive_group()
    owners.add_argument("--user", metavar="USER", help="those of this user")
    owners.add_argument("--mine", action="store_true", help="your own")
    parser.add_argument(
        "--state", metavar="STATE", action="append", choices=states,
        help=f"in this state: {', '.join(states)}",
    )  # fmt: skip


def filters(arguments: argparse.Namespace) -> dict[str, str | None]:
    """What `add_filters` has offered, as the service is asked."""
    user = me() if arguments.mine else arguments.user
    return {"user": user, "state": ",".join(arguments.state or []) or None}


def session(arguments: argparse.Namespace) -> Session:
    """Where a command meets the clock, the environment and the terminal."""
    from cachemgr.base.clock import SystemClock
    from outrider.cli.asking.display.terminal import paint_for
    from outrider.cli.asking.display.words import When
    from outrider.cli.progress import NewsLine

    clock = SystemClock()
    zone, zone_name = zone_of(os.environ, is_utc=arguments.utc)
    door = door_of(arguments.socket, arguments.server, os.environ)
    return Session(
        client=Transport(door, clock, timeout_s=arguments.timeout, waiting=NewsLine(clock).show),
        zone=zone,
        zone_name=zone_name,
        is_json=arguments.json,
        has_header=not getattr(arguments, "noheader", False),
        when=When(now_s=clock.now_s(), zone=zone),
        paint=paint_for(sys.stdout, os.environ),
    )


def zone_of(
    environment: Mapping[str, str], *, is_utc: bool, localtime: Path = Path("/etc/localtime")
) -> tuple[tzinfo, str]:
    """The user's zone, and its name for the service; empty if it has none that another machine knows."""
    if is_utc:
        return UTC, "UTC"
    from outrider.metadata.errors import TextError
    from outrider.metadata.notation.zones import user_zone

    try:
        zone = user_zone(environment, localtime=localtime)
    except TextError as error:
        raise InputError(str(error)) from error
    named = environment.get("TZ", "").removeprefix(":")
    if not named:
        path = os.path.realpath(localtime)
        named = path.partition(_ZONES)[2] if _ZONES in path else ""
    return zone, "UTC" if zone is UTC else named


def print_problems(error: FaultyRequestError, file: str | None) -> None:
    """The faults as a compiler lists them, each on a line that editors can jump to.

    Without a file all that there is was made of options, so these are what is named.
    """
    for each in error.problems:
        if each.line and file is not None:
            about = f"{each.key}: " if each.key else ""
            print(f"{file}:{each.line}:{each.column}: {about}{each.message}")
        else:
            last = each.key.rpartition(".")[2].replace("_", "-").lstrip("-")
            option = _OPTIONS_OF.get(each.key, last)
            print(f"--{option}: {each.message}" if option else each.message)
