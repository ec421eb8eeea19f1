"""What can go wrong when the service is asked. Each class has the exit code of the command `outrider`."""

from __future__ import annotations


class OutriderError(Exception):
    """One line for the user: what happened, to what, and what to do."""

    exit_code = 70
    meaning = "a fault of Outrider itself; its traceback is on stderr"


class InputError(OutriderError):
    """What was asked is not right as it stands; asking the same again does not help."""

    exit_code = 1
    meaning = "an option, or a file that was read, is not right"


class MissingPartError(OutriderError):
    """A library or a program is not installed."""

    exit_code = 3
    meaning = "a library or a program that this command needs is not installed"


class RefusedError(OutriderError):
    """The service's no: what was asked for cannot be promised."""

    exit_code = 4
    meaning = "the service refused: what was asked for cannot be promised"


class UnreachableError(OutriderError):
    """Nobody answers, or not in the way that is known here."""

    exit_code = 5
    meaning = "the service does not answer, or what answers is not outriderd"


class NotAllowedError(OutriderError):
    """Whoever asks may not do this."""

    exit_code = 6
    meaning = "you may not do this"


class NotFoundError(OutriderError):
    """Nothing is called so."""

    exit_code = 7
    meaning = "there is no such reservation, or what else was named"


class ConflictError(OutriderError):
    """A name stands for several things, or a request contradicts an earlier one."""

    exit_code = 8
    meaning = "a name stands for several, or the request contradicts an earlier one"


class UnavailableError(OutriderError):
    """The same may work later."""

    exit_code = 9
    meaning = "the service, or the batch system behind it, cannot do this now; try again later"


class BrokenError(OutriderError):
    """What was waited for has failed, and will not come."""

    exit_code = 10
    meaning = "the reservation that was watched has failed"


class LateError(OutriderError):
    """What was waited for has not come in the time that was given."""
