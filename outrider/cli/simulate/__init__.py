"""`outrider sim …`: the simulator's commands, one a file."""

from __future__ import annotations

from importlib import import_module

from outrider.cli.arguments import Parser, Subparsers
from outrider.cli.errors import InputError

MODULES = (
    "demo", "table", "figure", "options", "run", "savings", "switch", "consolidation", "leases", "sweep",
    "convert", "generate",
)  # fmt: skip
"""Commands, each in a module of its name. Who asks for one waits for that alone."""

_EPILOG = """examples:
  outrider sim demo
  outrider sim table 8.5 --seeds 3
  outrider sim figure 8.7 -o lead.svg
  outrider sim run log.swf.gz --policy aggressive --limit 10000 --gantt log.svg
"""


def add(commands: Subparsers, word: str = "") -> None:
    """The commands; or, if `word` is one of them, that alone."""
    parser = commands.add_parser(
        "sim",
        help="run workloads through the scheduler in a simulated site",
        description="Run workloads through the scheduler in a simulated site.",
        epilog=_EPILOG,
    )
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for module in (word,) if word in MODULES else MODULES:
        import_module(f"outrider.cli.simulate.{module}").add(below)


def _no_command(arguments: object) -> None:
    raise InputError("no command given after sim; try outrider sim demo, or outrider sim --help")
