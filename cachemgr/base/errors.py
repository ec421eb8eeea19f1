"""Everything that can go wrong with a pool, as one tree of classes.

Each class has the exit code of a command that fails with it and the word by which it
travels over a socket. The message says what happened, to what, and what to do.
"""

from __future__ import annotations


class CacheError(Exception):
    """Anything that a caller should print and not trace."""

    exit_code = 1
    code = "failed"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else (self.__doc__ or "").split("\n")[0]


class BadRequest(CacheError):
    """What was asked makes no sense: a name, a number or an option is wrong."""

    exit_code = 2
    code = "bad-request"


class NotInPool(CacheError):
    """The image, pin or instance is not in the pool."""

    exit_code = 3
    code = "missing"


class NoRoom(CacheError):
    """The pool has no room, even after evicting what may go; later it may."""

    exit_code = 4
    code = "no-room"


class NeverFits(NoRoom):
    """The image is larger than the pool."""

    exit_code = 5
    code = "never-fits"


class WrongBytes(CacheError):
    """What arrived is not what was promised: its digest or size differs."""

    exit_code = 6
    code = "wrong-bytes"


class SourceFailed(CacheError):
    """No source could deliver the image."""

    exit_code = 7
    code = "source-failed"


class NotAllowed(CacheError):
    """The caller may not do this, or has used up a quota."""

    exit_code = 8
    code = "not-allowed"


class InUse(CacheError):
    """Somebody else holds it: try again."""

    exit_code = 9
    code = "busy"


class Unsuitable(CacheError):
    """The file system or the image's format does not allow this."""

    exit_code = 10
    code = "unsuitable"


class Cancelled(CacheError):
    """The transfer was given up on request."""

    exit_code = 11
    code = "cancelled"


class PoolDamaged(CacheError):
    """What is on the disk is not a pool, or not one that this version can read."""

    exit_code = 12
    code = "damaged"


class NoDaemon(CacheError):
    """Nobody answers on the daemon's socket."""

    exit_code = 13
    code = "no-daemon"


class DiskFailed(CacheError):
    """The disk refused: full, read-only, or broken."""

    exit_code = 14
    code = "disk"


def every_error() -> list[type[CacheError]]:
    """The classes with a code of their own, by exit code. A subclass without one is a detail."""
    found: list[type[CacheError]] = []
    waiting: list[type[CacheError]] = [CacheError]
    while waiting:
        each = waiting.pop()
        if "code" in vars(each):
            found.append(each)
        waiting.extend(each.__subclasses__())
    return sorted(found, key=lambda each: each.exit_code)


def by_code(code: str, message: str) -> CacheError:
    """The error that another process reported."""
    for each in every_error():
        if each.code == code:
            return each(message)
    return CacheError(message)
