"""Why outriderd ends, other than being told to. Each class has the exit code that systemd sees."""

from __future__ import annotations

from outrider.store.errors import every_error

EXIT_OK = 0


class ServiceError(Exception):
    """One line for the administrator: what happened, to what, and what to do."""

    exit_code = 70
    meaning = "a fault of Outrider itself; its traceback is in the log"


class ServiceInputError(ServiceError):
    exit_code = 1
    meaning = "an option, the configuration, or the file of policies is not right"


class MissingLibraryError(ServiceError):
    exit_code = 3
    meaning = "a library that the service needs is not installed"


class SocketError(ServiceError):
    exit_code = 4
    meaning = "a socket cannot be made, or another service listens there"


class BackendError(ServiceError):
    exit_code = 5
    meaning = "the batch system's side could not be started"


class StuckError(ServiceError):
    exit_code = 6
    meaning = "what was under way did not end in time; what was promised is on the disk"


_OWN = (ServiceInputError, MissingLibraryError, SocketError, BackendError, StuckError)

MEANINGS = {
    EXIT_OK: "ended as told, or done",
    **{each.exit_code: each.meaning for each in _OWN},
    **{
        each.exit_code: f"store: {(each.__doc__ or '').partition('.')[0][:1].lower()}"
        f"{(each.__doc__ or '').partition('.')[0][1:]}"
        for each in every_error()
    },
    ServiceError.exit_code: ServiceError.meaning,
}


def exit_code_lines() -> str:
    """The table of exit codes that `outriderd --help` ends with."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


def table() -> str:
    """The exit codes as a table for the documentation."""
    rows = [f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows]) + "\n"
