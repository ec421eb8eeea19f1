"""The exit codes that scripts see: those of the errors, and what shells report of signals."""

from __future__ import annotations

from cachemgr.base.errors import CacheError, every_error

EXIT_OK = 0
EXIT_FAULT = 70
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


def meanings() -> dict[int, str]:
    """Every exit code with its meaning, by number."""
    found = {each.exit_code: _sentence(each) for each in reversed(every_error())}
    found[CacheError.exit_code] = "Failed; the message says why."
    found[EXIT_OK] = "Done."
    found[EXIT_FAULT] = "A fault of cachemgr itself; its traceback is on stderr."
    found[EXIT_INTERRUPTED] = "Interrupted by Ctrl-C; the message says what continues or is kept."
    found[EXIT_PIPE_CLOSED] = "The reader of the output has closed it."
    return dict(sorted(found.items()))


def exit_code_lines() -> str:
    """The table that `cachemgr --help` ends with."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in meanings().items())


def _sentence(error: type[CacheError]) -> str:
    return (error.__doc__ or "").split("\n")[0]
