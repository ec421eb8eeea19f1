"""Images in registries: what a reference stands for, and a reference that keeps standing for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cachemgr.base.clock import Clock
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.manifests import not_one_file
from cachemgr.fetch.registry.references import SCHEMES, Reference, read_reference
from cachemgr.fetch.registry.session import FoundBlob, FoundContainer, RegistrySettings, Session
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.uris import Location
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImage
from outrider.service.images.web import LOOK_S
from outrider.service.ports import FoundImage, ImageTrouble, Unread

__all__ = ["SCHEMES", "look"]

FORMATS = ("squashfs", "sif")


def look(
    location: Location,
    settings: RegistrySettings,
    web: WebSettings,
    clock: Clock,
    limit_s: float = LOOK_S,
    *,
    converter: Converter | None = None,
    uid: int = 0,
    image_format: str = "",
) -> FoundImage | Unread:
    """Size and digest of the image; all that is asked for has to come within the limit.

    What is found is called by its manifest's digest, too: a tag that is moved afterwards changes nothing.
    A container image has to be converted before anything is known of the result.
    """
    reference = read_reference(location.name)
    session = Session(reference, settings, web, clock)
    try:
        found = session.find(limit_s)
        if isinstance(found, FoundContainer) and converter is None:
            raise not_one_file(reference, found.container)
    except SourceFault as fault:
        raise ImageTrouble(f"the image {reference} cannot be looked up: {fault}") from fault
    if isinstance(found, FoundBlob):
        return FoundImage(
            size_bytes=found.blob.size_bytes,
            digest=found.blob.digest,
            uri=str(replace(reference, digest=found.manifest)),
        )
    assert converter is not None
    return _converted(reference, found, session, converter, uid, image_format)


def _converted(
    reference: Reference,
    found: FoundContainer,
    session: Session,
    converter: Converter,
    uid: int,
    image_format: str,
) -> FoundImage | Unread:
    wanted = image_format or converter.default_format
    if wanted not in FORMATS:
        raise ImageTrouble(
            f"the image {reference} is a container image, of which squashfs or sif is made, not {wanted}: "
            "correct "
            "its format"
        )
    recipe = converter.recipe(found.manifest, wanted, "")
    uri = str(replace(reference, digest=found.manifest))

    def image(made: MadeImage) -> FoundImage:
        return FoundImage(size_bytes=made.size_bytes, digest=made.digest, format=made.format, uri=uri)

    made = converter.find(recipe)
    if made is not None:
        return image(made)

    def read(is_wanted: Callable[[], bool]) -> FoundImage:
        return image(converter.make(str(reference), found.container, recipe, session, uid, is_wanted))

    return Unread(read=read, close=lambda: None)
