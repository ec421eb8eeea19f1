"""Images that consist of parts: which of them a node has without a transfer, and which have to be brought.

What is there belongs to other images, or to nobody. Whoever counts on it holds it from now on until its own
end, so that it does not go before the rest has come. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.core.images.pools import Life
from outrider.core.model import Image, ImagePart
from outrider.core.reservations.book import Book
from outrider.core.reservations.stock import Stock


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeParts:
    """What of an image is where, for one node.

    `own` is what has to be brought, as an image of the same name; `bases` are lives of other images that
    have the rest, `blobs` parts that linger there by themselves.
    """

    own: Image
    bases: tuple[Life, ...] = ()
    blobs: tuple[Image, ...] = ()


def parts_on(book: Book, stock: Stock, image: Image, node: int, there: Iterable[ImagePart] = ()) -> NodeParts:
    """Where a node has each part from by the stock's start; of some it is known that they are `there`."""
    pool = book.pools.pools[node]
    lacking = {part.key: part for part in image.parts}
    for part in there:
        lacking.pop(part.key, None)
    bases: list[Life] = []
    if book.terms.is_reusing:
        usable = [life for lives in pool.lives.values() for life in lives if stock.usable((life,)) is life]
        # The fewest others are held for it if those with the most come first.
        for life in sorted(usable, key=lambda each: (-_shared_bytes(each.image, lacking), each.number)):
            shared = [key for key in _keys(life.image) if key in lacking]
            if shared:
                bases.append(life)
                for key in shared:
                    del lacking[key]
    blobs: list[Image] = []
    if book.terms.is_reusing and book.terms.is_extending:
        for key in [key for key in lacking if key in pool.lingering]:
            part = lacking.pop(key)
            blobs.append(Image(uri=image.uri, size_bytes=max(1, part.size_bytes), digest=key))
    return NodeParts(own=own_of(image, lacking.values()), bases=tuple(bases), blobs=tuple(blobs))


def own_of(image: Image, parts: Iterable[ImagePart]) -> Image:
    """The same image, of which only these parts are meant. There is always something to do."""
    kept = tuple(parts)
    return replace(image, parts=kept, size_bytes=max(1, sum(part.size_bytes for part in kept)))


def together(image: Image, each: Sequence[Image]) -> Image:
    """What one transfer brings to several nodes that lack different parts."""
    return own_of(image, {part.key: part for own in each for part in own.parts}.values())


def extensions(
    found: Mapping[int, NodeParts], end_s: int, now_s: int
) -> list[tuple[int, tuple[int, int, int]]]:
    """By node, what keeping others' images and parts for longer takes of its pool."""
    stays = []
    for node, each in found.items():
        stays += [
            (node, (max(life.expires_s, now_s), end_s, life.image.size_bytes))
            for life in each.bases
            if life.expires_s < end_s
        ]
        stays += [(node, (now_s, end_s, blob.size_bytes)) for blob in each.blobs]
    return stays


def _keys(image: Image) -> tuple[str, ...]:
    return tuple(part.key for part in image.parts) or (image.key,)


def _shared_bytes(image: Image, lacking: Mapping[str, ImagePart]) -> int:
    return sum(lacking[key].size_bytes for key in _keys(image) if key in lacking)
