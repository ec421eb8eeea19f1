"""`outrider config`: what the service runs with, and the faults of a file before it is used."""

from __future__ import annotations

import argparse
import subprocess
import sys

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.asking.session import add_asking, session
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.output import print_json
from outrider_client.transport import Json, printable_line

CHECK_TIMEOUT_S = 60
_SHOW = """examples:
  outrider config show
  outrider config show --json
"""
_CHECK = """The file is read as the service would read it, and nothing is started.

examples:
  outrider config check
  outrider config check ./outriderd.yaml
"""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "config",
        help="show or check the service's configuration",
        description="show or check the service's configuration.",
        epilog=_SHOW + _CHECK.split("examples:\n")[1],
    )
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    add_asking(below, "show", show, "show what the service runs with (administrators)", _SHOW)
    check = add_command(below, "check", check_file, "check the service's configuration for faults", _CHECK)
    check.add_argument("file", metavar="FILE", nargs="?", help="what to check instead of the usual place")


def show(arguments: argparse.Namespace) -> None:
    asking = session(arguments)
    answer = asking.client.get("/v1/config")
    if asking.is_json:
        print_json(answer)
        return
    for path, value in leaves(answer):
        print(f"{printable_line(path)} = {printable_line(value)}")


def leaves(value: Json, path: str = "") -> list[tuple[str, str]]:
    """Each value with the way to it: settings.link.rate."""
    if isinstance(value, dict) and value:
        return [
            each for key, below in value.items() for each in leaves(below, f"{path}.{key}" if path else key)
        ]
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return [each for at, below in enumerate(value) for each in leaves(below, f"{path}[{at}]")]
    if isinstance(value, list):
        return [(path, ", ".join(str(each) for each in value))]
    if isinstance(value, bool):
        return [(path, "true" if value else "false")]
    return [(path, "" if value is None or value == {} else str(value))]


def check_file(arguments: argparse.Namespace) -> None:
    """Let the service's own program read it, so that the two cannot disagree."""
    command = [sys.executable, "-m", "outrider.service", "--check"]
    if arguments.file is not None:
        command += ["--config", arguments.file]
    try:
        done = subprocess.run(command, timeout=CHECK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPartError(f"outriderd --check could not be run: {error}") from error
    if done.returncode == MissingPartError.exit_code:
        raise MissingPartError("the configuration cannot be checked without what is named above")
    if done.returncode:
        raise InputError("the configuration has faults: they are listed above")


def _no_command(arguments: object) -> None:
    raise InputError("no command given after config; try outrider config show, or outrider config check FILE")
