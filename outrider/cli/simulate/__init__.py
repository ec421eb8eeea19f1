"""`outrider sim …`: the simulator's commands, one a file."""

from __future__ import annotations

from outrider.cli.arguments import Parser, Subparsers
from outrider.cli.errors import InputError
from outrider.cli.simulate import (
    convert,
    demo,
    figure,
    generate,
    leases,
    options,
    run,
    savings,
    sweep,
    switch,
    table,
)  # fmt: skip

_EPILOG = """examples:
  outrider sim demo
  outrider sim table 8.5 --seeds 3
  outrider sim figure 8.7 -o lead.svg
  outrider sim run log.swf.gz --policy aggressive --limit 10000 --gantt log.svg
"""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "sim",
        help="run workloads through the scheduler in a simulated site",
        description="Run workloads through the scheduler in a simulated site.",
        epilog=_EPILOG,
    )
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for module in (demo, table, figure, options, run, savings, switch, leases, sweep, convert, generate):
        module.add(below)


def _no_command(arguments: object) -> None:
    raise InputError("no command given after sim; try outrider sim demo, or outrider sim --help")
