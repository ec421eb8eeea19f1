"""Room in pools that a job has for itself, beside the stays of its image that others may use.

A full copy is one. The other is the rest of an image in layers: the stay that a reservation left is of the
layers that were brought for it alone, and it counted on the others only as long as it lasted; but the job's
node keeps all of them.
"""

from __future__ import annotations

from outrider.core.images.pools import Life
from outrider.core.model import Image
from outrider.core.reservations.book import Book


def copy_of(name: str, image: Image) -> Image:
    """A job's own copy of its image, as it is counted in a pool."""
    return Image(uri=_copy_key(name), size_bytes=image.size_bytes)


def rest_bytes(image: Image, life: Life) -> int:
    """How much of an image is no part of a stay that has it."""
    return max(0, image.size_bytes - life.image.size_bytes)


def hold_rest(book: Book, name: str, image: Image, node: int, life: Life, now_s: int, until_s: int) -> None:
    """Count what a stay lacks of a job's image, which is there."""
    size_bytes = rest_bytes(image, life)
    rest = Image(uri=_rest_key(name), size_bytes=max(1, size_bytes))
    if size_bytes and not book.pools.pools[node].lives.get(rest.key):
        book.pools.add(node, Life(rest, now_s, now_s, until_s))


def drop_copy(book: Book, name: str, node: int) -> None:
    """A job has no need of room for a copy of its own any more, or has it as an instance."""
    _drop(book, _copy_key(name), node)


def drop_own_room(book: Book, name: str, node: int) -> None:
    """A job needs nothing there any more."""
    _drop(book, _copy_key(name), node)
    _drop(book, _rest_key(name), node)


def keep_own_room(book: Book, name: str, node: int, until_s: int) -> None:
    """Let the room for a job alone be kept until then."""
    for key in (_copy_key(name), _rest_key(name)):
        for life in tuple(book.pools.pools[node].lives.get(key, ())):
            book.pools.lose(node, life)
            book.pools.add(node, Life(life.image, life.start_s, life.ready_s, max(life.expires_s, until_s)))


def _copy_key(name: str) -> str:
    return f"copy:{name}"


def _rest_key(name: str) -> str:
    return f"rest:{name}"


def _drop(book: Book, key: str, node: int) -> None:
    for life in tuple(book.pools.pools[node].lives.get(key, ())):
        book.pools.lose(node, life)
