"""Images in registries: which blob a reference stands for, and a reference that keeps standing for it."""

from __future__ import annotations

from dataclasses import replace

from cachemgr.base.clock import Clock
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.references import SCHEMES, read_reference
from cachemgr.fetch.registry.session import RegistrySettings, Session
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.uris import Location
from outrider.service.images.web import LOOK_S
from outrider.service.ports import FoundImage, ImageTrouble

__all__ = ["SCHEMES", "look"]


def look(
    location: Location,
    settings: RegistrySettings,
    web: WebSettings,
    clock: Clock,
    limit_s: float = LOOK_S,
) -> FoundImage:
    """Size and digest of the one blob that is the image; all that is asked for has to come within the limit.

    What is found is called by its manifest's digest, too: a tag that is moved afterwards changes nothing.
    """
    reference = read_reference(location.name)
    try:
        found = Session(reference, settings, web, clock).look(limit_s)
    except SourceFault as fault:
        raise ImageTrouble(f"the image {reference} cannot be looked up: {fault}") from fault
    return FoundImage(
        size_bytes=found.blob.size_bytes,
        digest=found.blob.digest,
        uri=str(replace(reference, digest=found.manifest)),
    )
