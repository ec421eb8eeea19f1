"""What a mirror has: images of layers by the names that runtimes ask for, and their blobs.

A name is an image's repository, with its registry in front if that is needed to tell two apart: runtimes
write `REGISTRY/NAME` where a colon cannot be as `REGISTRY_PORT/NAME`; containerd says `?ns=REGISTRY`.
"""

from __future__ import annotations

import json
from contextlib import suppress

from cachemgr.base.errors import BadRequest, NotInPool, PoolDamaged
from cachemgr.fetch.registry.manifests import MANIFESTS
from cachemgr.fetch.registry.references import Reference, read_reference
from cachemgr.pool.layered import LAYERS, is_whole, manifest_of
from cachemgr.pool.records import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage

    MayUse = Callable[[PoolImage], bool]


class MirroredImages:
    """The whole images of one pool; what is arriving is none."""

    def __init__(self, pool: ImagePool) -> None:
        self._pool = pool

    def manifest(self, name: str, wanted: str, registry: str, may_use: MayUse) -> PoolImage | None:
        """The image of that name and tag or digest. Raises `BadRequest` where several would do."""
        digest = digest_of(wanted)
        found = {
            image.digest: image
            for image, reference in self._references()
            if name in names_of(reference)
            and registry in ("", reference.host, reference.address, reference.api_host)
            and (image.digest == digest if digest else reference.tag == wanted)
            and may_use(image)
        }
        if len(found) > 1:
            raise BadRequest(
                f"{len(found)} registries have a {name}:{wanted} here: write REGISTRY/{name}, or its digest"
            )
        image = next(iter(found.values()), None)
        return image if image is not None and is_whole(self._pool, image) else None

    def blob(self, digest: str, may_use: MayUse) -> PoolImage | None:
        key = digest_of(digest)
        image = None if key is None else self._pool.image(key)
        return image if image is not None and may_use(image) else None

    def media_type(self, image: PoolImage) -> str:
        """Of a manifest, as it says itself."""
        try:
            said = json.loads(manifest_of(self._pool, image)).get("mediaType")
        except (ValueError, AttributeError, NotInPool, PoolDamaged):
            said = None
        return said if said in MANIFESTS else MANIFESTS[0]

    def _references(self) -> Iterator[tuple[PoolImage, Reference]]:
        images = {image.digest: image for image in self._pool.images() if image.format == LAYERS}
        names = [(image.uri, image) for image in images.values()]
        if images:
            aliases = self._pool.aliases()
            names += [(alias.name, images[alias.digest]) for alias in aliases if alias.digest in images]
        for name, image in names:
            with suppress(BadRequest):
                yield image, read_reference(name)


def names_of(reference: Reference) -> tuple[str, ...]:
    """Under which names runtimes ask for it."""
    repository = reference.repository
    return (
        repository,
        f"{reference.host}/{repository}",
        f"{reference.address.replace(':', '_')}/{repository}",
    )
