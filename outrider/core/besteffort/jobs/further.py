"""Images that a job needs beside its own on each of its nodes: where they are, and how they come there.

They take room in pools and time on the link like any other. Which nodes a job gets is decided by `placement`
with all of them in mind; here they are kept for it, or brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.core.images.pools import Life, PlannedPool
from outrider.core.links.best_effort import BestEffortLink
from outrider.core.model import Image, TransferClass
from outrider.core.reservations.book import Book


def others(own: Image, further: Sequence[Image]) -> tuple[Image, ...]:
    """Those that are not the job's own image, each once."""
    return tuple({each.key: each for each in further if each.key != own.key}.values())


def stay_of(pool: PlannedPool, image: Image) -> Life | None:
    """A stay on which a job may count: there, or brought by best effort. What comes with a deadline may still
    be withdrawn."""
    for life in pool.lives.get(image.key, ()):
        if not image.may_be(life.image, is_coming=life.transfer is not None):
            continue
        if life.transfer is None or TransferClass.of(life.transfer) is not TransferClass.DEADLINE:
            return life
    return None


def hold_further(
    book: Book,
    link: BestEffortLink,
    image: Image,
    name: str,
    nodes: Iterable[int],
    *,
    ready_s: int,
    until_s: int,
    now_s: int,
) -> dict[int, Life]:
    """Keep or bring an image on nodes that were chosen with room for it."""
    pools = book.pools
    held: dict[int, Life] = {}
    missing: list[int] = []
    for node in nodes:
        life = stay_of(pools.pools[node], image)
        if life is None and image.key not in pools.pools[node].lives:
            life = pools.revive(node, image.key, image, now_s, until_s)
        if life is None:
            missing.append(node)
        else:
            held[node] = life
    for node, cargo in link.add(image, missing):
        held[node] = Life(image, now_s, ready_s, until_s, transfer=cargo.number, is_firm=True)
        pools.add(node, held[node])
    for node, life in held.items():
        pools.extend(node, life, name, until_s)
    return held
