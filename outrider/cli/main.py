"""`outrider`: the command line's way in.

What a command needs is imported when it runs, so that help and errors come at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from outrider import __version__
from outrider.cli.arguments import Parser
from outrider.cli.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PIPE_CLOSED,
    CommandError,
    InputError,
    exit_code_lines,
)

MODULES = {
    "asking.reserve": ("reserve", "accept", "plan", "modify"),
    "asking.reservations": ("list", "show", "explain", "cancel", "trigger"),
    "asking.jobs": ("jobs", "suspend", "resume", "console", "ssh", "migrate"),
    "asking.watch": ("watch",),
    "asking.top": ("top",),
    "asking.timeline": ("timeline",),
    "asking.page": ("page",),
    "asking.listing": ("status", "nodes", "images", "transfers", "report"),
    "asking.submit": ("submit",),
    "asking.configuration": ("config",),
    "asking.administration": ("policies", "reconcile", "backup", "restore", "store"),
    "switch": ("switch", "drain"),
    "registries.login": ("login", "logout", "logins"),
    "installing.init": ("init",),
    "installing.deploy": ("deploy",),
    "installing.doctor": ("doctor",),
    "installing.queues": ("queues",),
    "check": ("check",),
    "demo": ("demo",),
    "simulate": ("sim",),
}
"""Where commands are. Who asks for one waits for its module alone: to import all takes longer than
most commands."""

_EPILOG = f"""examples:
  outrider reserve workspace.yaml --start 14:00  nodes that have the image at two o'clock
  outrider show render-17                        how far it is
  outrider demo                                  the service at work on this machine
  outrider sim demo                              the thesis' main result in a few seconds
  outrider sim table 8.5                         a table of the thesis, ours beside its own
  outrider sim run log.swf --policy aggressive   a log under EASY backfilling
  outrider check workspace.yaml                  what is wrong with a file, line by line

exit codes:
{exit_code_lines()}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors are one line on stderr."""
    try:
        words = _joined(list(sys.argv[1:] if argv is None else argv))
        arguments = parser(*words[:2]).parse_args(words)
        arguments.words = words
        arguments.command(arguments)
    except SystemExit as finished:  # argparse, after --help and --version
        return finished.code if isinstance(finished.code, int) else EXIT_OK
    except CommandError as error:
        if str(error):
            print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("outrider: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_OK


def run() -> None:
    """The console script: `main`, with what only a whole process can do."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain again when it flushes stdout on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_PIPE_CLOSED
    except Exception:  # noqa: BLE001 - the outermost loop: whatever it is, say it and exit
        import traceback

        traceback.print_exc()
        code = CommandError.exit_code
    sys.exit(code)


def parser(word: str = "", second: str = "") -> Parser:
    """All commands, as help, completion and the manual page show them.

    `word` is the first of a command line: if it is a command, that and its neighbours are enough. Of the
    simulator's, which need most, the second word's is.
    """
    top = _Top(
        prog="outrider",
        description="Has the image a job needs on its nodes before the job's clock starts.",
        epilog=_EPILOG,
    )
    top.add_argument("--version", action="version", version=f"outrider {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    top.set_defaults(command=_no_command)
    for module, words in MODULES.items():
        if word in words:
            add = import_module(f"outrider.cli.{module}").add
            add(commands, *([second] if word == "sim" else []))
            return top
    from outrider.cli import asking, check, completion, demo, installing, simulate, switch
    from outrider.cli.registries import login

    asking.add(commands)
    switch.add(commands)
    login.add(commands)
    installing.add(commands)
    check.add(commands)
    demo.add(commands)
    simulate.add(commands)
    completion.add(commands, parser)
    return top


class _Top(Parser):
    """The parser of whole command lines."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        return super().parse_known_args(None if args is None else _joined(list(args)), namespace)


def _joined(words: list[str]) -> list[str]:
    """`nodes deploy` is `deploy`, `nodes drain` is `drain`: `nodes` itself takes the names of nodes."""
    return words[1:] if words[:2] in (["nodes", "deploy"], ["nodes", "drain"]) else words


def _no_command(arguments: object) -> None:
    raise InputError("no command given; try outrider demo, or outrider --help")


if __name__ == "__main__":
    run()
