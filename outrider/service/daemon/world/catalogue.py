"""The images that the configuration names."""

from __future__ import annotations

from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.world.stores import readers_of
from outrider.service.images.catalogue import Catalogue, CatalogueImage, Made


def catalogue_of(config: Config, made: Made = lambda uri, digest, until_s: None) -> Catalogue:
    """The site's images, with the numbers of those who may use them. Raises InputError."""
    images = (
        CatalogueImage(
            name=name,
            uri=image.uri,
            digest=image.digest,
            size_bytes=image.size_bytes,
            format=image.format or "",
            readers=readers_of(f"images.{name}", image.readers),
        )
        for name, image in config.images.items()
    )
    return Catalogue(images, made)
