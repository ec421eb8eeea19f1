"""The site's own images, by short names: an administrator vouches for them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outrider.service.ports import FoundImage, ImageTrouble, Readers

SHOWN = 10
Made = Callable[[str, str, int | None], str | None]
"""From an address, a digest, and until when it is needed if that is known. That somebody
names a digest shows no right to what has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueImage:
    """`readers` is None for an image that everybody may use."""

    name: str
    uri: str
    digest: str
    size_bytes: int
    format: str = ""
    readers: Readers | None = None


class Catalogue:
    """Names and what they stand for. What is not an address is looked for here."""

    def __init__(
        self, images: Iterable[CatalogueImage] = (), made: Made = lambda uri, digest, until_s: None
    ) -> None:
        """`made` tells where nodes fetch what an address names if they could not by it: what the service has
        made of it, or a signed address."""
        self._made = made
        self._images = {image.name: image for image in sorted(images, key=lambda image: image.name)}

    def source_of(self, uri: str) -> str:
        """Where the bytes of an image are that a workspace names so."""
        found = self._images.get(uri)
        return uri if found is None else found.uri

    def made(self, uri: str, digest: str, until_s: int | None = None) -> str | None:
        """Where nodes fetch what they could not by this address; None of all others."""
        return self._made(uri, digest, until_s)

    def readers_of(self, uri: str) -> Readers | None:
        """For whom a private image of the catalogue is."""
        found = self._images.get(uri)
        return None if found is None else found.readers

    def find(self, name: str, *, is_private: bool, uid: int, gids: tuple[int, ...]) -> FoundImage:
        image = self._images.get(name)
        if image is None or not _may_use(image, uid, gids):
            # Both alike: what an image of others is called is nobody's business.
            known = [each for each, found in self._images.items() if _may_use(found, uid, gids)]
            raise ImageTrouble(
                f"there is no image {name!r} in the catalogue for you{_suggestion(name, known)}"
            )
        if image.readers is not None and not is_private:
            raise ImageTrouble(
                f"the image {name} of the catalogue is not for everybody: write `private: true`"
            )
        return FoundImage(size_bytes=image.size_bytes, digest=image.digest, format=image.format)


def _may_use(image: CatalogueImage, uid: int, gids: tuple[int, ...]) -> bool:
    readers = image.readers
    return readers is None or uid == 0 or uid in readers.uids or not set(gids).isdisjoint(readers.gids)


def _suggestion(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f": did you mean {near[0]}?"
    if not known:
        return ", which is empty: write an address such as https://images.example.org/render.qcow2"
    more = ", …" if len(known) > SHOWN else ""
    return f": it has {', '.join(known[:SHOWN])}{more}"
