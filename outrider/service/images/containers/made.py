"""What has been made of container images, by what it was made of: found again, shared, and removed when there
is no room.

A file gets its name when it is whole and on the disk; its record comes after it. So there is never a record
of a part, and a file without a record is a leftover.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cachemgr.base.clock import WallClock
from cachemgr.base.disk import RealDisk, drop_drafts, replace_file
from cachemgr.base.ownfolder import OwnFolder
from cachemgr.base.sizes import in_words
from outrider.service.images.containers.faults import ConversionFault

PURPOSE = "conversions"
VERSION = 1
MOST_RECORD_BYTES = 4_096
BLOCK = 1 << 20
PARTS = ("made", "records", "layers", "work", "pace")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What decides the bytes of a result. `scope` is the repository of one that not everybody may read: who
    names the same manifest elsewhere has not shown that they may."""

    manifest: str
    format: str
    tool: str
    scope: str = ""

    @property
    def key(self) -> str:
        words = json.dumps([VERSION, self.manifest, self.format, self.tool, self.scope])
        return hashlib.sha256(words.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeImage:
    digest: str
    size_bytes: int
    format: str


class MadeImages:
    """The folder of results. Any thread may call."""

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        clock: WallClock,
        needed: Callable[[], Collection[str] | None] = lambda: (),
    ) -> None:
        """`needed` tells the digests of images that were promised; None if nobody knows: then none goes."""
        self.folder = folder
        self._most_bytes = most_bytes
        self._clock = clock
        self._needed = needed
        self._guard = threading.Lock()
        self._kept_for: dict[object, int] = {}
        self._origins: dict[str, set[tuple[str, str]]] = {}
        """Of each result the manifests that it was made of, and their scopes."""

    def prepare(self) -> None:
        """Make the folder, and remove what a service that was killed has left half done. Raises BadRequest
        or OSError."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        OwnFolder(str(self.folder), PURPOSE, mode=0o711, is_left=lambda name, found: name in PARTS).close()
        for part in PARTS:
            (self.folder / part).mkdir(mode=0o711, exist_ok=True)
        for name in os.listdir(self.folder / "work"):
            RealDisk().remove_all(str(self.folder / "work" / name))
        for left in (self.folder / "layers").glob("*.part"):
            left.unlink()
        drop_drafts(RealDisk(), str(self.folder / "records"))
        self._drop_leftovers()
        for record in (self.folder / "records").glob("*.json"):
            self._note(record)

    def find(self, recipe: Recipe) -> MadeImage | None:
        """What was made by this recipe, if it is still there. It counts as used now."""
        record = self._record(recipe.key)
        found = self._read(record)
        if found is None or self._size(found.digest) != found.size_bytes:
            return None
        with suppress(OSError):
            os.utime(record, (self._clock.now_s(), self._clock.now_s()))
        return found

    def path_of(self, digest: str) -> Path | None:
        """Where the result with this digest is; None if there is none."""
        path = self._made(digest)
        return path if self._size(digest) is not None else None

    def path_for(self, digest: str, manifest: str, repository: str) -> Path | None:
        """The same, if it was made of that manifest and everybody may read that, or has to have shown a right
        to that repository: who only names the digest of a private image gets nothing."""
        origins = self._origins.get(digest, set())
        return self.path_of(digest) if origins & {(manifest, ""), (manifest, repository)} else None

    def keep(self, recipe: Recipe, file: Path, digest: str) -> MadeImage:
        """Take a whole file over, under its digest's name."""
        size_bytes = file.stat().st_size
        made = MadeImage(digest=digest, size_bytes=size_bytes, format=recipe.format)
        with self._guard:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            os.rename(file, self._made(digest))
            RealDisk().sync_folder(str(self.folder / "made"))
            origin = {"manifest": recipe.manifest, "scope": recipe.scope}
            text = json.dumps({"version": VERSION, **asdict(made), **origin})
            replace_file(RealDisk(), str(self._record(recipe.key)), text.encode())
            self._note(self._record(recipe.key))
        return made

    def reserve(self, owner: object, size_bytes: int) -> None:
        """Room for what is about to be fetched and made, others' results making way. Raises "
        "ConversionFault."""
        with self._guard:
            others = sum(size for each, size in self._kept_for.items() if each != owner)
            wanted = size_bytes + others
            if wanted + self._used() > self._most_bytes or wanted > self._free():
                self._make_way(wanted)
            used, free = self._used(), self._free()
            if wanted + used > self._most_bytes or wanted > free:
                raise ConversionFault(
                    f"its conversion needs {in_words(size_bytes)} on the head, where "
                    f"{in_words(used + others)} "
                    f"of {in_words(self._most_bytes)} are taken and {in_words(free)} are free: try again "
                    "later, "
                    "or ask the administrators for conversions.size"
                )
            self._kept_for[owner] = size_bytes

    def release(self, owner: object) -> None:
        with self._guard:
            self._kept_for.pop(owner, None)

    def _make_way(self, wanted: int) -> None:
        """Remove layers that nobody uses now, then the results that were not used for longest."""
        if not self._kept_for:
            for layer in (self.folder / "layers").iterdir():
                layer.unlink()
        promised = self._needed()
        if promised is None:
            return
        needed = set(promised)
        oldest = sorted((self.folder / "records").glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
        for record in oldest:
            if wanted + self._used() <= self._most_bytes and wanted <= self._free():
                return
            found = self._read(record)
            # Of what stays in its layers the manifest is promised, and its parts with it.
            if found is None or not needed & self._promised_as(record, found):
                record.unlink(missing_ok=True)
                self._drop_leftovers()

    def _promised_as(self, record: Path, found: MadeImage) -> set[str]:
        """By which digests it may have been promised."""
        try:
            origin = json.loads(record.read_bytes()[:MOST_RECORD_BYTES])
        except (OSError, ValueError, RecursionError):
            origin = {}
        is_part = str(found.format).startswith("layers ")
        return {found.digest, *([str(origin.get("manifest"))] if is_part else [])}

    def _drop_leftovers(self) -> None:
        kept = {
            found.digest
            for each in (self.folder / "records").glob("*.json")
            if (found := self._read(each)) is not None
        }
        for file in (self.folder / "made").iterdir():
            if f"sha256:{file.name}" not in kept:
                file.unlink(missing_ok=True)

    def _used(self) -> int:
        folders = (self.folder / "made", self.folder / "layers")
        return sum(each.stat().st_size for folder in folders for each in folder.iterdir())

    def _free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def _record(self, key: str) -> Path:
        return self.folder / "records" / f"{key}.json"

    def _made(self, digest: str) -> Path:
        return self.folder / "made" / digest.removeprefix("sha256:")

    def _size(self, digest: str) -> int | None:
        try:
            found = os.stat(self._made(digest), follow_symlinks=False)
        except OSError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def _note(self, record: Path) -> None:
        try:
            found = json.loads(record.read_bytes()[:MOST_RECORD_BYTES])
            origin = str(found["manifest"]), str(found["scope"])
            self._origins.setdefault(str(found["digest"]), set()).add(origin)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return

    def _read(self, record: Path) -> MadeImage | None:
        try:
            with record.open("rb") as file:
                found = json.loads(file.read(MOST_RECORD_BYTES))
            if found["version"] != VERSION:
                return None
            return MadeImage(
                digest=str(found["digest"]), size_bytes=int(found["size_bytes"]), format=str(found["format"])
            )
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None


def digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return f"sha256:{found.hexdigest()}"
