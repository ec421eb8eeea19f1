"""Names of images that come from users' requests: each is a file, so each user has so many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress

from cachemgr.base.errors import CacheError
from cachemgr.base.shares import PLACES, Share
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import MOST_BYTES, decode_alias, file_name, is_alias_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cachemgr.pool.pool import ImagePool


class Names:
    """Whose names there are, oldest first. A name is a convenience: the oldest of a user's own makes way.

    Nothing fails for that: whoever asks for an image by a name that has gone has its source asked again.
    """

    def __init__(self, pool: ImagePool, most_of_user: int) -> None:
        self._pool = pool
        self._most = most_of_user
        self._guard = threading.Lock()
        # Names of files; read from the folder when first needed.
        self._of: dict[int, OrderedDict[str, None]] | None = None
        self._replaced: dict[int, int] = {}

    def note(self, uid: int, names: Iterable[str]) -> None:
        """A user's request has given an image these names."""
        if not self._most:
            return
        with self._guard:
            mine = self._known().setdefault(uid, OrderedDict())
            for name in names:
                file = f"{file_name(name)}.json"
                if self._owner_of(file) == uid:
                    mine[file] = None
                    mine.move_to_end(file)
            gone = []
            while len(mine) > self._most:
                gone.append(mine.popitem(last=False)[0])
                self._replaced[uid] = self._replaced.get(uid, 0) + 1
        for file in gone:
            self._remove(file, uid)

    def shares(self) -> list[Share]:
        with self._guard:
            held = {uid: len(mine) for uid, mine in self._known().items()}
            replaced = dict(self._replaced)
        return [
            Share("names of images", PLACES, str(uid), count, self._most, replaced.get(uid, 0))
            for uid, count in sorted(held.items())
            if count or uid in replaced
        ]

    def refused(self) -> dict[str, int]:
        return {"names of images": sum(self._replaced.values())}

    def forget_gone(self) -> None:
        """Look at the folder again when this is asked for next: names have expired."""
        with self._guard:
            self._of = None

    def _known(self) -> dict[int, OrderedDict[str, None]]:
        if self._of is None:
            found = []
            for file in filter(is_alias_file, self._pool.disk.names(self._pool.layout.folder("aliases"))):
                with suppress(FileNotFoundError, CacheError):
                    alias = decode_alias(self._pool.disk.read(self._path(file), MOST_BYTES), file)
                    if alias.uid is not None:
                        found.append((alias.expires_s or 0, file, alias.uid))
            self._of = {}
            for _, file, uid in sorted(found):
                self._of.setdefault(uid, OrderedDict())[file] = None
        return self._of

    def _owner_of(self, file: str) -> int | None:
        with suppress(OSError, CacheError):
            return decode_alias(self._pool.disk.read(self._path(file), MOST_BYTES), file).uid
        return None

    def _remove(self, file: str, uid: int) -> None:
        """If it is still this user's: another may have given another image that name."""
        if self._owner_of(file) == uid:
            with disk_errors("removing the oldest name of a user"), suppress(FileNotFoundError):
                self._pool.disk.remove(self._path(file))

    def _path(self, file: str) -> str:
        return f"{self._pool.layout.folder('aliases')}/{file}"
