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
    meaning = "a library or a program that this command needs is not installed"


class RefusedError(CommandError):
    """The service's no. Why, and what else would work, has been printed as the command's result."""

    exit_code = 4
    meaning = "the service refused: what was asked for cannot be promised"


class UnreachableError(CommandError):
    exit_code = 5
    meaning = "the service does not answer, or what answers is not outriderd"


class NotAllowedError(CommandError):
    exit_code = 6
    meaning = "you may not do this"


class NotFoundError(CommandError):
    exit_code = 7
    meaning = "there is no such reservation, or what else was named"


class ConflictError(CommandError):
    exit_code = 8
    meaning = "a name stands for several, or the request contradicts an earlier one"


class UnavailableError(CommandError):
    exit_code = 9
    meaning = "the service, or the batch system behind it, cannot do this now; try again later"


class StoreFailedError(CommandError):
    """What went wrong with a store, with the exit code that each kind has there, from 20 to 29."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class BrokenError(CommandError):
    exit_code = 10
    meaning = "the reservation that was watched has failed"


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
    EXIT_PIPE_CLOSED: "whoever read the output went away",
}


def exit_code_lines() -> str:
    """The table of exit codes that `outrider --help` ends with."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
