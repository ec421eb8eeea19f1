"""From an image's address, and who asks, to what is there: the service's `Resolve`.

What only some may read at its source never becomes everybody's in a pool: such an image has to
be called private, and is then for those who may read it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cachemgr.base.clock import Clock
from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.base.sizes import in_words
from cachemgr.fetch.registry.session import RegistrySettings
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.instances.formats import HEAD_BYTES, admitted
from outrider.service.images import registries, web
from outrider.service.images.buckets import Asker, Buckets
from outrider.service.images.catalogue import Catalogue
from outrider.service.images.containers.converter import Converter
from outrider.service.images.hashing import Hashes
from outrider.service.images.logins import Logins
from outrider.service.images.opening import NOBODY, OpenAs
from outrider.service.images.secrets.sitelogins import SiteLogins
from outrider.service.images.tokens import TokenHosts
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Unread

MOST_IMAGE_BYTES = 1 << 44


@dataclass(frozen=True, slots=True)
class Means:
    """What a look at an address takes; all that it asks for has to come within the limit."""

    web: WebSettings
    registries: RegistrySettings
    clock: Clock
    limit_s: float
    converter: Converter | None = None
    logins: Logins | None = None
    buckets: Buckets = field(default_factory=Buckets)
    tokens: TokenHosts = field(default_factory=TokenHosts)
    site_logins: SiteLogins | None = None


Look = Callable[[Location, ImageClaim, Means], FoundImage | Unread]
"""From an address, and what its user says of it, to size and digest, or ImageTrouble."""


def _web(location: Location, claim: ImageClaim, means: Means) -> FoundImage | Unread:
    host = means.tokens.find(location)
    if host is not None:
        who = Asker(claim.is_private, claim.uid, claim.gids or ())
        return means.tokens.look(
            host, location, claim.digest, who, means.converter, means.clock, means.limit_s
        )
    return web.look(location, claim.digest, means.web, means.clock, means.limit_s)


def _bucket(location: Location, claim: ImageClaim, means: Means) -> FoundImage:
    who = Asker(claim.is_private, claim.uid, claim.gids or ())
    return means.buckets.look(location, claim.digest, who, means.clock, means.limit_s)


def _registry(location: Location, claim: ImageClaim, means: Means) -> FoundImage | Unread:
    entrance = registries.Entrance(
        settings=means.registries,
        web=means.web,
        clock=means.clock,
        limit_s=means.limit_s,
        converter=means.converter,
        logins=means.logins,
        site=means.site_logins,
        uid=claim.uid,
        gids=claim.gids or (),
        is_private=claim.is_private,
    )
    return registries.look(location, entrance, claim.format)


LOOKS: dict[str, Look] = {
    **dict.fromkeys(("http", "https"), _web),
    "s3": _bucket,
    **dict.fromkeys(registries.SCHEMES, _registry),
}
"""How the head looks an image up, by the scheme of its address. Files are read with their user's rights."""


class Resolver:
    """Called as `Resolve`; any thread may. `most_bytes` is the largest image that is promised."""

    def __init__(
        self,
        *,
        open_as: OpenAs,
        hashes: Hashes,
        clock: Clock,
        web_settings: WebSettings | None = None,
        registry_settings: RegistrySettings | None = None,
        catalogue: Catalogue | None = None,
        most_bytes: Callable[[], int] = lambda: MOST_IMAGE_BYTES,
        limit_s: float = web.LOOK_S,
        converter: Converter | None = None,
        logins: Logins | None = None,
        buckets: Buckets | None = None,
        tokens: TokenHosts | None = None,
        site_logins: SiteLogins | None = None,
    ) -> None:
        self._open_as = open_as
        self._hashes = hashes
        # Never the site's netrc file: its passwords are not for whoever may name an address.
        web_settings = web_settings or WebSettings()
        self._means = Means(
            web_settings,
            registry_settings or RegistrySettings(),
            clock,
            limit_s,
            converter,
            logins,
            buckets or Buckets(),
            tokens or TokenHosts(),
            site_logins,
        )
        self._catalogue = catalogue or Catalogue()
        self._most_bytes = most_bytes
        if web_settings.netrc_file is not None:
            raise ValueError("users' images are looked up without the site's passwords: netrc_file is set")

    def __call__(self, claim: ImageClaim) -> FoundImage | Unread:
        uri = claim.uri
        found: FoundImage | Unread
        if "://" not in uri and not uri.startswith("/"):
            found = self._catalogue.find(
                uri, is_private=claim.is_private, uid=claim.uid, gids=claim.gids or ()
            )
        else:
            try:
                location = parse(uri)
            except BadRequest as error:
                raise ImageTrouble(str(error)) from error
            if location.user is not None or location.password is not None:
                raise ImageTrouble(
                    f"the address {location.name} holds a user or a password, which others could see: "
                    "write it without"
                )
            if location.scheme == "file":
                return self._of_file(claim, location.path)
            look = LOOKS.get(location.scheme)
            if look is None:
                raise ImageTrouble(
                    f"images come from {_enumerated(['file', *LOOKS])} addresses, not from "
                    f"{location.scheme}: ask the administrators to put {location.name} into the catalogue"
                )
            found = look(location, claim, self._means)
        if isinstance(found, Unread):
            return self._checked_later(uri, claim.digest, found)
        self._check(uri, claim.digest, found)
        return found

    def _checked_later(self, uri: str, digest: str, unread: Unread) -> Unread:
        def read(is_wanted: Callable[[], bool]) -> FoundImage:
            found = unread.read(is_wanted)
            self._check(uri, digest, found)
            return found

        return Unread(read=read, close=unread.close)

    def _check(self, uri: str, digest: str, found: FoundImage) -> None:
        if digest and digest != found.digest:
            raise ImageTrouble(
                f"the image {uri} has the digest {found.digest}, not {digest}: correct the digest or the "
                "address"
            )
        if found.size_bytes <= 0:
            raise ImageTrouble(f"the image {uri} is empty: was it written to its end?")
        most_bytes = self._most_bytes()
        if found.size_bytes > most_bytes:
            raise ImageTrouble(
                f"the image {uri} has {in_words(found.size_bytes)}: at most {in_words(most_bytes)} are "
                "staged here; make it smaller, or ask the administrators"
            )

    def _of_file(self, claim: ImageClaim, path: str) -> FoundImage | Unread:
        """What is known of it already; otherwise it is left open, to be read."""
        file = self._open_as(path, claim.uid, claim.gids or ())
        is_left_open = False
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise ImageTrouble(f"{path} is not a regular file: name an image")
            if not claim.is_private and not self._is_everybodys(path, found):
                raise ImageTrouble(
                    f"not everybody may read the image {path}: write `private: true`, so that it is for you "
                    "alone on the nodes as well, or let everybody read it"
                )
            # Before it is read to its end: an image that is too large takes as long.
            self._check(path, "", FoundImage(size_bytes=found.st_size, digest=""))
            image_format = _format_of(file, path, found.st_size)
            known = self._hashes.known(file)
            if known is not None:
                image = FoundImage(size_bytes=found.st_size, digest=known, format=image_format)
                self._check(claim.uri, claim.digest, image)
                return image
            is_left_open = True
        finally:
            if not is_left_open:
                os.close(file)

        def read(is_wanted: Callable[[], bool]) -> FoundImage:
            content = self._hashes.digest_of(file, path, claim.uid, is_wanted)
            image = FoundImage(size_bytes=os.fstat(file).st_size, digest=content, format=image_format)
            self._check(claim.uri, claim.digest, image)
            return image

        return Unread(read=read, close=lambda: os.close(file))

    def _is_everybodys(self, path: str, opened: os.stat_result) -> bool:
        """Whether somebody without any rights of their own opens the same file at that path.

        Its mode alone does not tell: it may lie in a folder that others cannot enter.
        """
        if not opened.st_mode & stat.S_IROTH:
            return False
        try:
            file = self._open_as(path, NOBODY, ())
        except ImageTrouble:
            return False
        try:
            found = os.fstat(file)
        finally:
            os.close(file)
        return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _format_of(file: int, path: str, size_bytes: int) -> str:
    """What the content says it is. One that would be refused in a pool is refused here, not there."""
    try:
        return admitted(os.pread(file, HEAD_BYTES, 0), size_bytes)
    except Unsuitable as error:
        raise ImageTrouble(f"the image {path} cannot be staged: {error}") from error
    except OSError as error:
        raise ImageTrouble(f"the image {path} cannot be read: {error.strerror}") from error


def _enumerated(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
