"""Where an image is or will be at the start of a reservation, without a transfer of its own; and for a
site's own order of nodes, what else there is of each node then.

Of an image that consists of parts, what is there belongs to other images, or to nobody. Whoever counts on
it holds it from now on until its own end, so that it does not go before the rest has come. What is only on
its way for another image is not counted on: it ends with the reservation that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outrider.core.images.pools import Life
from outrider.core.model import Image, ImagePart, Workspace
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Book

if TYPE_CHECKING:
    from outrider.core.leases.nodes import NodeOrder


class Stock:
    """Where the image is or will be at a start, by what is already in pools or on its way.

    Asked node by node, because a popular image is in thousands of pools.
    """

    def __init__(
        self,
        book: Book,
        image: Image | None,
        start_s: int,
        end_s: int,
        now_s: int,
        *,
        is_advancing: bool = False,
    ) -> None:
        """`is_advancing`: whether a transfer of the image that waits, and is due later, counts as well."""
        self._book = book
        self._image = image
        self._start_s = start_s
        self._end_s = end_s
        self._now_s = now_s
        self.lives: dict[int, Life] = {}
        self.lingering: set[int] = set()
        self.advanced: set[int] = set()
        """The transfers that would have to be there by the start instead of later."""
        is_reused = image is not None and book.terms.is_reusing
        self.nodes = book.pools.mask_with(image.key) if image is not None and is_reused else 0
        self._late = book.link.late(now_s)
        self._is_advancing = is_advancing

    def holds(self, node: int) -> bool:
        """Whether the image can be used on the node without a transfer of its own."""
        image = self._image
        assert image is not None
        pool = self._book.pools.pools[node]
        life = self.usable(pool.lives.get(image.key, ()))
        if life is not None:
            late = (max(life.expires_s, self._now_s), self._end_s, image.size_bytes)
            if life.expires_s < self._end_s and not pool.has_room((late,), self._now_s, image.key):
                return False
            if not self._is_whole(node, life):
                return False
            self.lives[node] = life
            return True
        if image.parts:
            # Of what lingers, or is due later, the parts are counted one by one.
            return False
        if self._is_advancing and (life := self._waiting(pool.lives.get(image.key, ()))) is not None:
            assert life.transfer is not None
            self.lives[node] = life
            self.advanced.add(life.transfer)
            return True
        if not self._book.terms.is_extending or image.key not in pool.lingering:
            return False
        if not pool.has_room(((self._now_s, self._end_s, image.size_bytes),), self._now_s, image.key):
            return False
        self.lingering.add(node)
        return True

    def _is_whole(self, node: int, life: Life) -> bool:
        """Whether the node has, beside what is that life's own, all other parts of its image."""
        image = self._image
        if image is None or not image.parts:
            return True
        others = {part.key for part in image.parts} - {part.key for part in life.image.parts}
        lives = self._book.pools.pools[node].lives.values()
        for each in (each for group in lives for each in group if self.is_there(each)):
            others -= {part.key for part in each.image.parts} | {each.image.key}
        return not others

    def is_there(self, life: Life) -> bool:
        """Whether another image can count on its parts."""
        return life.transfer is None and self.usable((life,)) is life

    def usable(self, lives: Sequence[Life]) -> Life | None:
        """The first of these, of whatever image, that is there at the start or may be kept for it."""
        aside = self._book.link.aside
        for life in lives:
            if not self._may_be(life):
                continue
            if life.transfer is not None and (life.transfer in aside or life.transfer in self._late):
                # Nobody guarantees any more when it will have arrived.
                continue
            if life.is_firm and life.transfer is not None:
                # A best-effort transfer may still be delayed by deadlines on a link they share.
                end_s = self._book.links.guaranteed_end_of(life.transfer, self._now_s)
                if end_s is None or end_s > self._start_s:
                    continue
            # Algorithm 4's guarantee, or a transfer still to come whose deadline is early enough
            # (section 6.3.1), or an image that is there and may be kept.
            if life.ready_s <= self._start_s and (
                self._start_s <= life.expires_s
                or life.ready_s > self._now_s
                or (self._book.terms.is_extending and life.expires_s >= self._now_s)
            ):
                return life
        return None

    def _may_be(self, life: Life) -> bool:
        return self._image is None or self._image.may_be(life.image, is_coming=life.transfer is not None)

    def _waiting(self, lives: Sequence[Life]) -> Life | None:
        """A copy that is due after the start, by a transfer with a deadline that has not begun."""
        for life in lives:
            if life.transfer is None or life.is_firm or life.transfer in self._late:
                continue
            if not self._may_be(life):
                continue
            if life.ready_s > self._start_s and self._book.link.waits(life.transfer):
                return life
        return None


def stages_of(
    book: Book, order: NodeOrder, workspace: Workspace, start_s: int, now_s: int, available: int
) -> list[dict[int, int]]:
    """How many instances which nodes have room for, those that are to be taken first in front.

    All nodes are looked at: this costs more than Algorithm 1, which takes the first that will do.
    """
    from outrider.core.leases.nodes import NodeState

    timeline, count = book.timeline, workspace.instances
    need, end_s = timeline.layout.pack(workspace.resources), start_s + workspace.duration_s
    stock = Stock(book, workspace.image, start_s, end_s, now_s)
    stages: dict[int, dict[int, int]] = {}
    for node in numbers(available):
        row = timeline.rows[node]
        empty = timeline.layout.most(need, row.capacity, FOREVER)
        room = row.most(need, start_s, end_s, empty)
        if not room:
            continue
        state = NodeState(
            room_instances=room,
            empty_instances=empty,
            idle_instances=book.beside.rows[node].most(need, start_s, end_s, room),
            has_image=bool(stock.nodes >> node & 1) and stock.holds(node),
            is_empty=row.is_untouched(start_s, end_s),
        )
        stages.setdefault(order.score(state), {})[node] = min(room, count)
    return [stages[score] for score in sorted(stages)]


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
        usable = [life for lives in pool.lives.values() for life in lives if stock.is_there(life)]
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
