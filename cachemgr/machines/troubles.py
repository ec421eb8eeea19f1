"""What a failed operation on the disk means to whoever runs a machine."""

from __future__ import annotations

import errno
from contextlib import contextmanager

from cachemgr.base.errors import CacheError, DiskFailed, NoRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_trouble(doing: str) -> Iterator[None]:
    """Say what an operation that failed was for."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        said = f"{doing} failed: {error.strerror or error}{where}"
        if error.errno in FULL:
            raise NoRoom(f"{said}; make room and try again") from error
        raise DiskFailed(said) from error
