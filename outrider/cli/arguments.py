"""argparse as Outrider wants it: errors are exceptions, help shows examples as written."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from outrider.cli.errors import InputError

Command = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `InputError`, one line each. An option has to be written out."""

    def __init__(self, *args: object, **options: object) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(commands: Subparsers, name: str, command: Command, summary: str, epilog: str) -> Parser:
    """A command whose help begins with its summary and ends with examples."""
    parser = commands.add_parser(name, help=summary, description=f"{summary}.", epilog=epilog)
    parser.set_defaults(command=command)
    return parser


def add_form_options(parser: Parser, *, what: str = "the result") -> None:
    """--json and --csv, of which one at most may be given."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help=f"print {what} as JSON, numbers unrounded")
    forms.add_argument("--csv", action="store_true", help=f"print {what} as CSV, one value a line")
