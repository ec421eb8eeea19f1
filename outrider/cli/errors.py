"""What can go wrong at the command line. Each class has the exit code that scripts see."""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERRUPTED = 130
"""As shells report a program that Ctrl-C ended."""
EXIT_PIPE_CLOSED = 141
"""As shells report a program whose reader, for instance `head`, went away."""


class CommandError(Exception):
    """One line for the user: what happened, to what, and what to do."""

    exit_code = 70
    meaning = "a fault of Outrider itself; its traceback is on stderr"


class InputError(CommandError):
    exit_code = 1
    meaning = "an option, or a file that was read, is not right"


class OutputError(CommandError):
    exit_code = 2
    meaning = "a result could not be written"


class MissingPartError(CommandError):
    exit_code = 3
    meaning = "an optional library that this command needs is not installed"


MEANINGS = {
    EXIT_OK: "done",
    **{each.exit_code: each.meaning for each in (InputError, OutputError, MissingPartError, CommandError)},
    EXIT_INTERRUPTED: "interrupted by Ctrl-C; no file is left half-written",
    EXIT_PIPE_CLOSED: "whoever read the output went away",
}


def exit_code_lines() -> str:
    """The table of exit codes that `outrider --help` ends with."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
