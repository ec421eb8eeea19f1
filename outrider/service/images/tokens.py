"""Images on web servers that want a token of the site's in a header, as OpenStack's Glance does.

No node gets the token: the head fetches such an image once, before it is promised, and hands it out itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.base.clock import Clock
from cachemgr.base.errors import BadRequest
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.manifests import Blob, Container
from cachemgr.fetch.sources.connect import Terms, WebSettings, address_of
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.fetch.sources.web import WebSource
from outrider.service.images.buckets import Asker, may_use
from outrider.service.images.containers.conversion import AS_IT_IS
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImage, Recipe
from outrider.service.images.web import look_with
from outrider.service.ports import FoundImage, ImageTrouble, Readers, Unread

if TYPE_CHECKING:
    from cachemgr.fetch.sources.web import AnyBody

MOST_TOKEN_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenHost:
    """`address` is the host, with its port if addresses name one. Below `path` its images are."""

    address: str
    header: str
    file: str
    path: str = "/"
    readers: Readers | None = None

    def terms(self) -> Terms:
        """How it is asked: by TLS alone. Raises SourceFault."""
        try:
            with open(self.file, encoding="ascii") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise SourceFault(f"others may read the token {self.file}: chmod 600 it", is_final=True)
                token = file.read(MOST_TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SourceFault(f"the token {self.file} cannot be read: {reason}", is_final=True) from error
        if not token or not token.isprintable():
            raise SourceFault(f"the token {self.file} is not one line of text", is_final=True)
        return Terms({self.header: token}, frozenset())


class TokenHosts:
    """The site's hosts of this kind. A token is read whenever it is used: a new one needs no restart."""

    def __init__(self, hosts: Iterable[TokenHost] = (), web: WebSettings | None = None) -> None:
        self._hosts = {host.address: host for host in hosts}
        self._web = web or WebSettings()

    def find(self, location: Location) -> TokenHost | None:
        """The host of an address that is asked with a token; None of all others."""
        host = self._hosts.get(address_of(location))
        parts = location.path.split("/")
        if host is None or location.scheme != "https" or ".." in parts or "." in parts:
            return None
        return host if location.path.startswith(f"{host.path.rstrip('/')}/") else None

    def origin(self, uri: str, digest: str) -> tuple[str, str] | None:
        """Of what, and in whose name, the head has brought an image; None where no token is wanted."""
        if not uri.startswith("https://") or not self._hosts:
            return None
        try:
            location = parse(uri)
        except BadRequest:
            return None
        host = self.find(location)
        return None if host is None else _origin(location, digest)

    def look(
        self,
        host: TokenHost,
        location: Location,
        given: str,
        asker: Asker,
        converter: Converter | None,
        clock: Clock,
        limit_s: float,
    ) -> FoundImage | Unread:
        """Size and digest, by the server's answer; then the image itself, on the head."""
        name = location.name
        if not may_use(host.readers, asker):
            raise ImageTrouble(f"images of {host.address} are not for you: ask the administrators")
        if host.readers is not None and not asker.is_private:
            raise ImageTrouble(
                f"images of {host.address} are not for everybody: write `private: true`, so that {name} is "
                "for you alone on the nodes as well"
            )
        if converter is None:
            raise ImageTrouble(
                f"nodes could not fetch {name}, which takes a token: ask the administrators for "
                "conversions.address"
            )
        try:
            terms = host.terms()
            found = look_with(
                location, given, lambda place: WebSource(place, self._web, clock, terms=terms), clock, limit_s
            )
        except SourceFault as fault:
            hint = ""
            if fault.status in (401, 403):
                hint = f"; the site's token for {host.address} may be out of date: tell the administrators"
            raise ImageTrouble(f"the image {name} cannot be looked up: {fault}{hint}") from fault
        manifest, scope = _origin(location, found.digest)
        recipe = Recipe(manifest=manifest, format=AS_IT_IS, tool="", scope=scope)
        made = converter.find(recipe)
        if made is not None:
            return _image(made)
        blob, source = Blob(found.digest, found.size_bytes), _Asked(location, host, self._web, clock)

        def read(is_wanted: Callable[[], bool]) -> FoundImage:
            container = Container(blob, (blob,))
            return _image(converter.make(name, container, recipe, source, asker.uid, is_wanted))

        return Unread(read=read, close=lambda: None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The bytes of one address, as the converter asks for them."""

    location: Location
    host: TokenHost
    web: WebSettings
    clock: Clock

    def open(self, digest: str, offset: int, size_bytes: int, timeout_s: float) -> AnyBody:
        source = WebSource(self.location, self.web, self.clock, terms=self.host.terms())
        return source.open(offset, size_bytes, timeout_s)


def _origin(location: Location, digest: str) -> tuple[str, str]:
    """Who names another address has shown no right to this one, whatever digest they say."""
    return f"https://{address_of(location)}{location.target} {digest}", f"token:{address_of(location)}"


def _image(made: MadeImage) -> FoundImage:
    return FoundImage(size_bytes=made.size_bytes, digest=made.digest)
