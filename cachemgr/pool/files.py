"""What lies in a pool's folders: its images and names, found and read without the pool's lock."""

from __future__ import annotations

import threading
from contextlib import suppress

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import BadRequest, NotAllowed, NotInPool, PoolDamaged
from cachemgr.base.steady import past_s
from cachemgr.pool import pins
from cachemgr.pool.layout import PoolLayout, disk_errors, read_settings
from cachemgr.pool.records import (
    MOST_BYTES,
    Alias,
    PoolImage,
    PoolPin,
    checked_digest,
    checked_name,
    decode_alias,
    decode_image,
    digest_of,
    encode,
    is_alias_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    Found = TypeVar("Found")

    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk
    from cachemgr.pool.index import Index


class PoolFiles:
    """One pool as one process sees it: its folders, settings, clock and index. Safe for several threads."""

    def __init__(self, disk: Disk, root: str, clock: Clock, index: Index) -> None:
        self.disk = disk
        self.layout = PoolLayout(root)
        self.clock = clock
        self.index = index
        # Between reading a lease and writing the longer of two.
        self._renewing = threading.Lock()
        with disk_errors(f"reading the pool {root}"):
            self.settings = read_settings(disk, self.layout)

    def close(self) -> None:
        self.index.close()

    def find(self, name: str) -> PoolImage | None:
        """The image of that digest or alias, if it is here, whole."""
        digest = digest_of(name)
        if digest is None:
            alias = self.alias(name)
            if alias is None:
                return None
            digest = alias.digest
        return self.image(digest)

    def image(self, digest: str) -> PoolImage | None:
        path = f"{self.layout.image(digest)}/image.json"
        with disk_errors(f"reading {path}"):
            try:
                return decode_image(self.disk.read(path, MOST_BYTES), path)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def alias(self, name: str) -> Alias | None:
        path = self.layout.alias(name)
        with disk_errors(f"reading the alias {name[:100]}"):
            try:
                alias = decode_alias(self.disk.read(path, MOST_BYTES), path)
            except FileNotFoundError:
                return None
        is_over = alias.expires_s is not None and alias.expires_s <= past_s(self.clock)
        return None if is_over else alias

    def images(self) -> list[PoolImage]:
        """Every image, by digest. One that is damaged is left out: `check` names it."""
        with disk_errors("listing the pool"):
            digests = [name for name in self.disk.names(self.layout.folder("images")) if digest_of(name)]
        return readable(self.image, digests)

    def aliases(self) -> list[Alias]:
        """Every alias that has not expired, by name."""
        found = []
        folder = self.layout.folder("aliases")
        with disk_errors("listing the aliases"):
            for name in filter(is_alias_file, self.disk.names(folder)):
                try:
                    found.append(decode_alias(self.disk.read(f"{folder}/{name}", MOST_BYTES), name))
                except (FileNotFoundError, PoolDamaged):
                    continue
        now_s = past_s(self.clock)
        found = [alias for alias in found if alias.expires_s is None or alias.expires_s > now_s]
        return sorted(found, key=lambda alias: alias.name)

    def pins(self, digest: str) -> list[PoolPin]:
        with disk_errors("reading pins"):
            return pins.read_pins(self.disk, self.layout.image(digest))

    def data_path(self, digest: str) -> str:
        return f"{self.layout.image(digest)}/data"

    def authorise(self, digest: str, uid: int, gids: frozenset[int] = frozenset()) -> PoolImage:
        """The image, if that user may use it; asked anew for every consumer."""
        image = self.image(digest)
        if image is None:
            raise NotInPool(f"image {digest[:12]} is not in the pool: add it first")
        readers = image.readers
        if not (
            readers.is_public
            or uid in (0, image.owner_uid)
            or uid in readers.uids
            or not gids.isdisjoint(readers.gids)
        ):
            raise NotAllowed(f"image {image.short} is private: ask its owner (uid {image.owner_uid}) for it")
        return image

    def add_alias(self, alias: Alias) -> None:
        """Let a name stand for a digest, from now on and durably. The last one wins."""
        checked_name(alias.name, "an alias")
        if digest_of(alias.name):
            if checked_digest(alias.name) == alias.digest:
                return
            raise BadRequest(f"the digest {alias.name} cannot be the name of another image")
        with disk_errors(f"writing the alias {alias.name[:100]}"):
            if self.alias(alias.name) == alias:
                # Whoever wrote it may have died before syncing it.
                self.disk.sync_folder(self.layout.folder("aliases"))
            else:
                replace_file(self.disk, self.layout.alias(alias.name), encode(alias))

    def remove_alias(self, name: str) -> bool:
        """Forget a name; other names of the same image stay, and so does the image."""
        with disk_errors(f"removing the alias {name[:100]}"):
            try:
                self.disk.remove(self.layout.alias(name))
            except FileNotFoundError:
                return False
            self.disk.sync_folder(self.layout.folder("aliases"))
        return True


def readable(read: Callable[[str], Found | None], names: Iterable[str]) -> list[Found]:
    """What can be read of these, in their order."""
    found = []
    for name in names:
        with suppress(PoolDamaged):
            each = read(name)
            if each is not None:
                found.append(each)
    return found
