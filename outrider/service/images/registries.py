"""Images in registries: what a reference stands for, and a reference that keeps standing for it.

What not everybody may pull is looked up in its user's name, each time anew, and is brought to the head
before it is promised: nodes have no rights at registries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cachemgr.base.clock import Clock
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.manifests import Blob, Container, not_one_file
from cachemgr.fetch.registry.references import SCHEMES, Reference, read_reference
from cachemgr.fetch.registry.session import FoundBlob, FoundContainer, RegistrySettings, Session
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.uris import Location
from outrider.core.model import ImagePart
from outrider.service.images.buckets import Asker, may_use
from outrider.service.images.containers.conversion import AS_IT_IS, AS_LAYERS
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImage, Recipe
from outrider.service.images.logins import Logins, host_of
from outrider.service.images.secrets.sitelogins import SiteLogins
from outrider.service.images.web import LOOK_S
from outrider.service.ports import FoundImage, ImageTrouble, LoginFault, Unread

if TYPE_CHECKING:
    from cachemgr.fetch.ports import Stream

__all__ = ["SCHEMES", "Entrance", "look"]

FORMATS = ("squashfs", "sif", "bundle")
CLOSED = (401, 403, 404)
"""What a registry says of what not everybody may pull; some say that it is not there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrance:
    """How registries are asked, and in whose name."""

    settings: RegistrySettings
    web: WebSettings
    clock: Clock
    limit_s: float = LOOK_S
    converter: Converter | None = None
    logins: Logins | None = None
    site: SiteLogins | None = None
    uid: int = 0
    gids: tuple[int, ...] = ()
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a reference stands for, and whether everybody may see it, here (`is_shared`) or anywhere."""

    reference: Reference
    found: FoundBlob | FoundContainer
    session: Session
    is_open: bool
    is_shared: bool = False

    @property
    def uri(self) -> str:
        return str(replace(self.reference, digest=self.found.manifest))

    @property
    def scope(self) -> str:
        """Where a right to it was shown; nothing for what everybody may see."""
        return "" if self.is_open else f"{self.reference.address}/{self.reference.repository}"


def look(location: Location, entrance: Entrance, image_format: str = "") -> FoundImage | Unread:
    """Size and digest of the image; all that is asked for has to come within the limit.

    What is found is called by its manifest's digest, too: a tag that is moved afterwards changes nothing.
    A container image has to be converted before anything is known of the result.
    """
    seen = _seen(read_reference(location.name), entrance)
    reference, found, converter = seen.reference, seen.found, entrance.converter
    if not (seen.is_open or seen.is_shared or entrance.is_private):
        raise ImageTrouble(
            f"not everybody may pull the image {reference}: write `private: true`, so that it is for you "
            "alone on "
            "the nodes as well, or let everybody pull it"
        )
    if isinstance(found, FoundBlob):
        if seen.is_open:
            return FoundImage(size_bytes=found.blob.size_bytes, digest=found.blob.digest, uri=seen.uri)
        if converter is None:
            raise ImageTrouble(
                f"the image {reference} is private, and nodes could not fetch it: ask the administrators for "
                "conversions.address"
            )
        recipe = Recipe(manifest=found.manifest, format=AS_IT_IS, tool="", scope=seen.scope)
        return _brought(seen, Container(found.blob, (found.blob,)), recipe, converter, entrance.uid)
    if image_format == AS_LAYERS:
        image = _in_layers(seen, found)
        return image if seen.is_open else _brought_in_layers(seen, found, image, converter, entrance.uid)
    if converter is None:
        raise _trouble(reference, not_one_file(reference, found.container))
    wanted = image_format or converter.default_format
    if wanted not in FORMATS:
        raise ImageTrouble(
            f"the image {reference} is a container image, of which squashfs, sif or bundle is made, "
            f"not {wanted}: correct its format"
        )
    recipe = converter.recipe(found.manifest, wanted, seen.scope)
    return _brought(seen, found.container, recipe, converter, entrance.uid)


def _in_layers(seen: _Seen, found: FoundContainer) -> FoundImage:
    """The image as it is."""
    blobs = {blob.digest: blob for blob in (found.container.config, *found.container.layers)}
    parts = tuple(ImagePart(key=blob.digest, size_bytes=blob.size_bytes) for blob in blobs.values())
    return FoundImage(
        size_bytes=sum(part.size_bytes for part in parts),
        digest=found.manifest,
        format=AS_LAYERS,
        uri=seen.uri,
        parts=parts,
    )


def _brought_in_layers(
    seen: _Seen, found: FoundContainer, image: FoundImage, converter: Converter | None, uid: int
) -> FoundImage | Unread:
    """One that nodes may not fetch themselves: the head brings its blobs and its manifest."""
    if converter is None:
        raise ImageTrouble(
            f"the image {seen.reference} is private, and nodes could not fetch it: ask the administrators "
            "for conversions.address"
        )
    recipe = Recipe(manifest=found.manifest, format=AS_LAYERS, tool="", scope=seen.scope)
    if converter.find(recipe) is not None:
        return image
    blobs = {blob.digest: blob for blob in (found.container.config, *found.container.layers)}
    whole = Container(Blob(found.manifest, len(found.body)), tuple(blobs.values()))
    source = _WithManifest(seen.session, found)

    def read(is_wanted: Callable[[], bool]) -> FoundImage:
        converter.make(str(seen.reference), whole, recipe, source, uid, is_wanted)
        return image

    return Unread(read=read, close=lambda: None)


@dataclass(frozen=True, slots=True)
class _WithManifest:
    """A registry's blobs, and the manifest that it has given already."""

    session: Session
    found: FoundContainer

    def open(self, digest: str, offset: int, size_bytes: int, timeout_s: float) -> Stream:
        if digest == self.found.manifest:
            return _Body(self.found.body)
        return self.session.open(digest, offset, size_bytes, timeout_s)


class _Body:
    """Bytes that are here already, as an answer's."""

    start_bytes = 0

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    def read_into(self, block: memoryview, timeout_s: float) -> int:
        count = min(len(block), len(self._left))
        block[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        """Nothing is open."""


def _seen(reference: Reference, entrance: Entrance) -> _Seen:
    """Ask as anybody first; and in the user's name if that is not enough and there is a login."""
    until_s = entrance.clock.monotonic_s() + entrance.limit_s
    session = Session(reference, entrance.settings, entrance.web, entrance.clock)
    try:
        return _Seen(reference, session.find(entrance.limit_s), session, is_open=True)
    except SourceFault as fault:
        ways = _ways(reference, entrance)
        if fault.status not in CLOSED or not ways:
            raise _trouble(reference, fault) from fault
    for number, (settings, is_shared) in enumerate(ways, 1):
        session = Session(reference, settings, entrance.web, entrance.clock)
        left_s = max(1.0, until_s - entrance.clock.monotonic_s())
        try:
            found = session.find(left_s)
        except SourceFault as fault:
            if number == len(ways) or fault.status not in CLOSED:
                raise _trouble(reference, fault, is_known=True) from fault
        else:
            return _Seen(reference, found, session, is_open=False, is_shared=is_shared)
    raise AssertionError("the last way ends it")


def _ways(reference: Reference, entrance: Entrance) -> list[tuple[RegistrySettings, bool]]:
    """In whose names the registry may be asked, and whether what is seen so is for everybody here: its
    user's, and the site's. What the site's program said before may be out of date: so that comes twice."""
    own = _own_settings(reference, entrance)
    ways = [] if own is None else [(own, False)]
    login = None if entrance.site is None else entrance.site.find(host_of(reference.address))
    who = Asker(entrance.is_private, entrance.uid, entrance.gids)
    if entrance.site is not None and login is not None and may_use(login.readers, who):
        settings = entrance.site.settings_for(login, entrance.settings)
        ways += [(settings, login.readers is None)] * 2
    return ways


def _own_settings(reference: Reference, entrance: Entrance) -> RegistrySettings | None:
    """How the registry is asked in the user's name; None without a login there."""
    logins = entrance.logins
    try:
        if logins is None or logins.find(entrance.uid, host_of(reference.address)) is None:
            return None
    except LoginFault as fault:
        raise ImageTrouble(f"the image {reference} cannot be looked up in your name: {fault}") from fault
    return logins.settings_for(entrance.uid, entrance.settings)


def _trouble(reference: Reference, fault: SourceFault, *, is_known: bool = False) -> ImageTrouble:
    words = f"the image {reference} cannot be looked up: {fault}"
    if fault.status in (401, 403):
        words += (
            f"; your login at {reference.address} has no right to it, or is out of date"
            if is_known
            else f"; or log in there: `outrider login {reference.address}`"
        )
    return ImageTrouble(words)


def _brought(
    seen: _Seen, container: Container, recipe: Recipe, converter: Converter, uid: int
) -> FoundImage | Unread:
    def image(made: MadeImage) -> FoundImage:
        image_format = "" if made.format == AS_IT_IS else made.format
        return FoundImage(size_bytes=made.size_bytes, digest=made.digest, format=image_format, uri=seen.uri)

    made = converter.find(recipe)
    if made is not None:
        return image(made)

    def read(is_wanted: Callable[[], bool]) -> FoundImage:
        return image(converter.make(str(seen.reference), container, recipe, seen.session, uid, is_wanted))

    return Unread(read=read, close=lambda: None)
