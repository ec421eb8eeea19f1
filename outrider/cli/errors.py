"""What can go wrong at the command line. Each class has the exit code that scripts see.

What can go wrong with the service is the client's, whose words every command prints.
"""

from __future__ import annotations

from outrider_client.errors import (
    BrokenError,
    ConflictError,
    InputError,
    MissingPartError,
    NotAllowedError,
    NotFoundError,
    OutriderError,
    RefusedError,
    UnavailableError,
    UnreachableError,
)

__all__ = [
    "BrokenError",
    "CommandError",
    "ConflictError",
    "InputError",
    "MissingPartError",
    "NodesFailedError",
    "NotAllowedError",
    "NotFoundError",
    "OutputError",
    "RefusedError",
    "StoreFailedError",
    "UnavailableError",
    "UnreachableError",
]

EXIT_OK = 0
EXIT_INTERRUPTED = 130
"""As shells report a program that Ctrl-C ended."""
EXIT_PIPE_CLOSED = 141
"""As shells report a program whose reader, for instance `head`, went away."""
CommandError = OutriderError
"""Every error that a command ends with; by itself a fault of Outrider."""


class OutputError(CommandError):
    exit_code = 2
    meaning = "a result could not be written"


class StoreFailedError(CommandError):
    """What went wrong with a store, with the exit code that each kind has there, from 20 to 30."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NodesFailedError(CommandError):
    exit_code = 11
    meaning = "something failed on some of the nodes; the table says on which, and what"


ERRORS: tuple[type[CommandError], ...] = (
    InputError,
    OutputError,
    MissingPartError,
    RefusedError,
    UnreachableError,
    NotAllowedError,
    NotFoundError,
    ConflictError,
    UnavailableError,
    BrokenError,
    NodesFailedError,
    CommandError,
)
MEANINGS = {
    EXIT_OK: "done; for a reservation: accepted",
    **{each.exit_code: each.meaning for each in ERRORS},
    EXIT_INTERRUPTED: "interrupted by Ctrl-C; no file is left half-written",
    EXIT_PIPE_CLOSED: "the reader of the output has closed it",
}


def exit_code_lines() -> str:
    """The table of exit codes that `outrider --help` ends with."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
