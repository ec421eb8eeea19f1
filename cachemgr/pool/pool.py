"""The pool of one node: what is in it, who needs it, and how an image comes in and goes.

The life of an image:

    want ──> ingest/KEY ──(all bytes, synced, digest and size right)──> images/DIGEST ──> trash
             reserved, pinned     one rename makes it visible            one rename hides it

What lies in the folders is the truth. Any number of processes may use a pool: a short lock
serialises what changes its bytes (reserve, commit, evict), and nobody holds it during a
transfer. Finding and pinning an image takes no such lock. Bytes are brought in by
`ingest`, room is made by `room`, damage is found by `check`.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import BadRequest, InUse, NotInPool
from cachemgr.pool import layered, pins, room
from cachemgr.pool.files import PoolFiles
from cachemgr.pool.ingest import Ingest, ingest_of, ingests, want_file
from cachemgr.pool.layout import FOLDERS, PRIVATE, SEARCHABLE, PoolLayout, PoolSettings, disk_errors
from cachemgr.pool.records import (
    FORMATS,
    PUBLIC,
    Alias,
    ImageAccess,
    PoolImage,
    PoolPin,
    checked_digest,
    checked_name,
    digest_of,
    encode,
    file_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from cachemgr.base.disk import Disk

# How often something is looked for again because it moved while it was being locked.
MOST_MOVES = 20
# An ingest that nobody wants any more is kept this long, so that it can be resumed.
INGEST_LEASE_S = 86_400
# Of so many other addresses it is known that they give an image's bytes.
MOST_ADDRESSES = 16


@dataclass(frozen=True)
class Want:
    """An image that somebody wants in the pool. Its size is known before its first byte."""

    uri: str
    size_bytes: int
    digest: str = ""
    format: str = "file"
    owner_uid: int = 0
    readers: ImageAccess = PUBLIC
    expires_s: int | None = None
    # Names that will stand for its digest. Only who may be believed about them gives any.
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name(self.uri, "an image's address")
        if self.digest:
            object.__setattr__(self, "digest", checked_digest(self.digest))
        if self.size_bytes < 0:
            raise BadRequest(f"image {self.uri} cannot have {self.size_bytes} bytes")
        if self.format not in FORMATS:
            raise BadRequest(f"there is no format {self.format!r}: choose one of {', '.join(FORMATS)}")

    @property
    def key(self) -> str:
        """The name of its ingest: its digest or, while that is unknown, its address."""
        return self.digest or "u" + file_name(self.uri)


class ImagePool(PoolFiles):
    """One pool: images come in, are held, and go. Safe for several threads."""

    @staticmethod
    def create(disk: Disk, root: str, settings: PoolSettings) -> None:
        """Make a pool, finish one half made, or change the settings of one that is there."""
        layout = PoolLayout(root)
        with disk_errors(f"making the pool {root}"):
            if not disk.exists(layout.root):
                disk.make_folder(layout.root, SEARCHABLE)
            # Even if it was there: who made it may have died before syncing its name.
            disk.sync_folder(layout.root.rpartition("/")[0] or "/")
            strangers = [name for name in disk.names(layout.root) if not _is_left_by_init(name)]
            if strangers and not disk.exists(layout.settings):
                raise BadRequest(f"{root} is not empty (it holds {strangers[0]!r}): choose another folder")
            for name in FOLDERS:
                if not disk.exists(layout.folder(name)):
                    is_searchable = name in ("images", "instances")
                    disk.make_folder(layout.folder(name), SEARCHABLE if is_searchable else PRIVATE)
            if not disk.exists(layout.lock):
                disk.create(layout.lock, 0o600).close()
            disk.sync_folder(layout.root)
            replace_file(disk, layout.settings, settings.encode(), mode=0o644)

    # -- bringing in -----------------------------------------------------------------------

    def want(self, want: Want, pin: PoolPin | None = None) -> PoolImage | Ingest:
        """The image, if it is here; otherwise its ingest, begun or joined, its bytes reserved.

        The pin is on the disk before this returns, hence before the first byte.
        """
        if pin is not None:
            pins.checked_pin(pin, self.clock.now_s())
        for _ in range(MOST_MOVES):
            image = self.find(want.digest or want.uri)
            if image is not None:
                self._compare(want, image)
                if pin is None or self._pin_in(self.layout.image(image.digest), pin):
                    for name in want.aliases:
                        self.add_alias(Alias(name, image.digest))
                    return image
                continue
            ingest = self.ingest(want.key)
            if ingest is None:
                with self.changing("reserving bytes"):
                    if self.find(want.digest or want.uri) is None and self.ingest(want.key) is None:
                        return self._begin(want, pin)
                continue
            self._compare(want, ingest.image)
            if pin is None or self._pin_in(ingest.folder, pin):
                return ingest
        raise InUse(f"image {want.uri} comes and goes too fast to be held: try again")

    def ingest(self, key: str) -> Ingest | None:
        """What is arriving under that key."""
        return ingest_of(self, key)

    def ingests(self) -> list[Ingest]:
        """All that is arriving."""
        return ingests(self)

    def _begin(self, want: Want, pin: PoolPin | None) -> Ingest:
        """Reserve the bytes; made in the trash and renamed, so that it is whole or not there."""
        is_trusted = want.owner_uid in (0, os.geteuid())
        room.make_room(self, want.size_bytes, f"image {want.uri}", drops_abandoned=is_trusted)
        now_s = self.clock.now_s()
        lease_s = max(now_s + INGEST_LEASE_S, pin.expires_s if pin else 0)
        image = PoolImage(
            digest=want.digest,
            size_bytes=want.size_bytes,
            format=want.format,
            uri=want.uri,
            added_s=now_s,
            owner_uid=want.owner_uid,
            readers=want.readers,
            expires_s=want.expires_s,
        )
        draft = self.layout.trash(f"new-{want.key}")
        if self.disk.exists(draft):
            self.disk.remove_all(draft)
        try:
            self._write_draft(draft, want, image, pin, lease_s)
        except OSError:
            # A disk that is full may have allocated most of it.
            with suppress(OSError):
                self.disk.remove_all(draft)
            raise
        self.disk.rename(draft, self.layout.ingest(want.key))
        self.disk.sync_folder(self.layout.folder("ingest"))
        self.index.take(f"ingest:{want.key}", want.size_bytes)
        return Ingest(self, want.key, image)

    def _write_draft(
        self, draft: str, want: Want, image: PoolImage, pin: PoolPin | None, lease_s: int
    ) -> None:
        self.disk.make_folder(draft, SEARCHABLE)
        # Now and synced with the rest: a pin's own sync would not make this name safe.
        self.disk.make_folder(f"{draft}/pins", PRIVATE)
        with closing(self.disk.create(f"{draft}/data", 0o600)) as data:
            data.allocate(want.size_bytes)
            data.sync()
        with closing(self.disk.create(f"{draft}/writer", 0o600)):
            """Never unlinked while the ingest lives: it is what the writer locks."""
        replace_file(self.disk, f"{draft}/want.json", want_file(lease_s, want.aliases))
        replace_file(self.disk, f"{draft}/image.json", encode(image), mode=0o644)
        if pin is not None:
            pins.write_pin(self.disk, draft, pin, is_durable=True)

    def _compare(self, want: Want, image: PoolImage) -> None:
        if want.digest and image.size_bytes != want.size_bytes:
            raise BadRequest(
                f"image {want.uri} is said to have {want.size_bytes} bytes, but the content of that digest "
                f"has {image.size_bytes}: correct the size or the digest"
            )

    # -- names and leases ------------------------------------------------------------------

    def pin(self, name: str, pin: PoolPin, *, is_durable: bool = True) -> PoolImage:
        """Lease an image that is here: from the return on it stays until the pin ends."""
        pins.checked_pin(pin, self.clock.now_s())
        for _ in range(MOST_MOVES):
            image = self.find(name)
            if image is None:
                raise NotInPool(f"image {name} is not in the pool: add it first")
            self._pin_parts(image, pin, is_durable=is_durable)
            if self._pin_in(self.layout.image(image.digest), pin, is_durable=is_durable):
                return image
        raise InUse(f"image {name} comes and goes too fast to be held: try again")

    def unpin(self, name: str, owner: str) -> bool:
        """Give a lease back; whether there was one. What is arriving may be meant as well."""
        digest = digest_of(name)
        alias = self.alias(name) if digest is None else None
        folders = [self.layout.ingest("u" + file_name(name))]
        found = digest or (alias.digest if alias else None)
        if found:
            folders += [self.layout.ingest(found), self.layout.image(found)]
        with disk_errors("removing a pin"):
            removed = [pins.remove_pin(self.disk, folder, owner) for folder in folders]
        if found and layered.is_layered(self, found):
            layered.let_go(self, found, owner)
        return any(removed)

    def _pin_parts(self, image: PoolImage, pin: PoolPin, *, is_durable: bool) -> None:
        """Hold what an image consists of, before the image itself."""
        for part in layered.parts_of(self, image):
            held = layered.part_pin(pin, image.digest)
            if not self._pin_in(self.layout.image(part.digest), held, is_durable=is_durable):
                layered.let_go(self, image.digest, pin.owner)
                raise NotInPool(f"a layer of image {image.short} is not in the pool any more: add it again")

    def use(self, digest: str) -> None:
        """Count a use. A statistic: it may be lost, and nobody waits for it."""
        now_s = self.clock.now_s()
        path = f"{self.layout.image(digest)}/uses"
        try:
            uses, _ = room.read_uses(self.disk, path)
            replace_file(self.disk, path, b"%d %d\n" % (uses + 1, now_s), is_durable=False)
        except OSError:
            return
        with suppress(OSError):
            if self._has_index():
                self.index.touch(digest, now_s)

    def _has_index(self) -> bool:
        """Whether the index is open, or can be opened without waiting for anybody."""
        if self.index.is_open:
            return True
        lock = self.disk.lock(self.layout.lock, is_shared=False, waits=False)
        if lock is None:
            return False
        try:
            return self.index.open(self.disk.boot_id())
        finally:
            lock.release()

    def _pin_in(self, folder: str, pin: PoolPin, *, is_durable: bool = True) -> bool:
        """Whether the pin is on what lies there; False if that moved meanwhile."""
        with disk_errors(f"pinning for {pin.owner}"):
            try:
                lock = self.disk.lock(folder, is_shared=True, waits=True)
            except (FileNotFoundError, NotADirectoryError):
                return False
            if lock is None:
                return False
            try:
                if not lock.is_of(folder):
                    return False
                # Jobs' instances do not wait for others' leases to be on the disk.
                with self._renewing if pin.kind == "hold" else nullcontext():
                    pins.write_pin(
                        self.disk, folder, pins.renewed(self.disk, folder, pin), is_durable=is_durable
                    )
                if is_durable:
                    # Whoever committed the image may not yet have synced its name.
                    self.disk.sync_folder(folder.rpartition("/")[0])
                return lock.is_of(folder)
            except FileNotFoundError:
                return False
            finally:
                lock.release()

    # -- changing --------------------------------------------------------------------------

    def changing(self, doing: str) -> AbstractContextManager[None]:
        """Hold the pool's lock, with an index that can be believed."""
        return room.changing(self, doing)

    def change_image(self, image: PoolImage) -> None:
        """Write what is known of an image anew: its readers, its expiry."""
        self._change_image(image.digest, lambda there: image)

    def _change_image(self, digest: str, changed: Callable[[PoolImage], PoolImage]) -> PoolImage:
        """What is known of it, changed from what it is when nobody else can change it."""
        folder = self.layout.image(digest)
        with self.changing(f"changing image {digest[:12]}"):
            there = self.image(digest)
            if there is None:
                raise NotInPool(f"image {digest[:12]} is not in the pool any more")
            image = changed(there)
            # In this order, so that it is never more readable than its record says.
            if there.readers.is_public and not image.readers.is_public:
                self._set_data_mode(image)
            replace_file(self.disk, f"{folder}/image.json", encode(image), mode=0o644)
            if image.readers.is_public:
                self._set_data_mode(image)
            self.index.put(room.entry_of(self, image))
        return image

    def _set_data_mode(self, image: PoolImage) -> None:
        with closing(self.disk.open(self.data_path(image.digest))) as data:
            data.set_mode(image.data_mode)
            data.sync()

    def allow(self, image: PoolImage, uid: int) -> PoolImage:
        """Let one more user use a private image."""

        def admit(there: PoolImage) -> PoolImage:
            readers = dataclasses.replace(there.readers, uids=tuple(sorted({*there.readers.uids, uid})))
            return dataclasses.replace(there, readers=readers)

        return self._change_image(image.digest, admit)

    def note_address(self, image: PoolImage, address: str) -> PoolImage:
        """The same bytes are at that address, too: of several the last ones are known."""

        def note(there: PoolImage) -> PoolImage:
            known = (*(each for each in there.read_at if each != address), address)
            return dataclasses.replace(there, read_at=known[-MOST_ADDRESSES:])

        return self._change_image(image.digest, note)


def _is_left_by_init(name: str) -> bool:
    """Whether an `init` that died, or a pool that lost its settings, can have left that."""
    ours = {*FOLDERS, "lock", "lost+found"}
    return name in ours or name.startswith((".pool.json.", "index.sqlite", "clock.json", ".clock.json."))
