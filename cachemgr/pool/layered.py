"""Container images as they are: a manifest in the pool, which stands for the blobs that it names.

Each blob is an image of its own, once, whoever needs it. The manifest comes into the pool after all of
them; a pin on it is one on each of them, under a name of its own, so that giving one image back does not
take a blob from another of the same owner.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace

from cachemgr.base.errors import NotInPool, PoolDamaged
from cachemgr.pool import pins
from cachemgr.pool.ingest import ingest_of
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.pool.files import PoolFiles
    from cachemgr.pool.records import PoolImage, PoolPin

LAYERS = "layers"
MOST_MANIFEST_BYTES = 4 << 20
PART = " layers "


@dataclass(frozen=True)
class Part:
    """A blob that a manifest names, by its 64 digits."""

    digest: str
    size_bytes: int


def read_parts(manifest: bytes) -> tuple[Part, ...]:
    """The configuration and the layers, each once, in the manifest's order."""
    try:
        found = json.loads(manifest)
        blobs = [found["config"], *found["layers"]]
        parts = [Part(digest_of(each["digest"]) or "", int(each["size"])) for each in blobs]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PoolDamaged("a manifest in the pool names no layers: run `cachemgr check --fix`") from error
    if not all(part.digest for part in parts):
        raise PoolDamaged("a manifest in the pool names layers by no sha256: run `cachemgr check --fix`")
    return tuple({part.digest: part for part in parts}.values())


def manifest_of(pool: PoolFiles, image: PoolImage) -> bytes:
    """The bytes of the manifest. Raises `NotInPool` if it has just gone."""
    with disk_errors(f"reading image {image.short}"):
        try:
            with closing(pool.disk.open(pool.data_path(image.digest))) as data:
                return data.read_at(0, min(image.size_bytes, MOST_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise NotInPool(f"image {image.short} is not in the pool any more") from error


def parts_of(pool: PoolFiles, image: PoolImage) -> tuple[Part, ...]:
    """The blobs that an image consists of; none of one that is a file."""
    return () if image.format != LAYERS else read_parts(manifest_of(pool, image))


def is_whole(pool: PoolFiles, image: PoolImage) -> bool:
    """Whether all that it consists of is here: what nobody holds may have left one by one."""
    try:
        return all(pool.image(part.digest) is not None for part in parts_of(pool, image))
    except (NotInPool, PoolDamaged):
        return False


def part_owner(owner: str, digest: str) -> str:
    """Under which name an owner of an image holds its blobs."""
    return f"{owner}{PART}{digest[:16]}"


def is_part_owner(owner: str) -> bool:
    return PART in owner


def part_pin(pin: PoolPin, digest: str) -> PoolPin:
    """The pin on each blob that goes with one on the image of that digest."""
    return replace(pin, owner=part_owner(pin.owner, digest))


def folders(pool: PoolFiles) -> Iterator[tuple[str, str]]:
    """Everything that is here or arriving, by its key and its folder."""
    for kind, path_of in (("images", pool.layout.image), ("ingest", pool.layout.ingest)):
        with disk_errors("listing the pool"):
            names = pool.disk.names(pool.layout.folder(kind))
        for name in names:
            yield name, path_of(name)


def let_go(pool: PoolFiles, digest: str, owner: str) -> int:
    """Give back what an owner holds of the blobs of that image, wherever they are."""
    name = part_owner(owner, digest)
    with disk_errors(f"giving back the pins of {owner}"):
        return sum(pins.remove_pin(pool.disk, folder, name) for _, folder in folders(pool))


def is_layered(pool: PoolFiles, digest: str) -> bool:
    """Whether what is here, or arriving, under that digest is an image of layers."""
    image = pool.image(digest)
    if image is None:
        ingest = ingest_of(pool, digest)
        image = None if ingest is None else ingest.image
    return image is not None and image.format == LAYERS
