"""Which images are where, and whose, as whoever asks may know it.

A private image is for those who may use it: whose reservation or job has it, and whom a node lets
read it. Everybody may use the others. Administrators see all, and whose each private one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.core.model import Image
from outrider.core.nodes.timeline import numbers
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.images import ImageList, ImageOnNodes
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import NodeStatus, image_of
from outrider.service.desk.state.site import Site
from outrider.service.ports import NodeImage, Readers
from outrider.service.requests import Caller, ListImages

MOST_OWNERS = 20


@dataclass(slots=True)
class _Found:
    """An image, as far as whoever asks may see it."""

    image: Image
    is_open: bool = False
    """Whether everybody may use it on some node; that somebody wants it so is nothing."""
    owners: dict[int, None] = field(default_factory=dict)
    """Users whose it is while it is private."""
    is_kept_private: bool = False
    reservations: int = 0
    jobs: int = 0
    nodes: dict[str, None] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        return self.is_kept_private and not self.is_open


class ImageViews:
    """Answers to whoever looks at images."""

    def __init__(self, site: Site, node_orders: NodeOrders, jobs: JobManager) -> None:
        self._site = site
        self._node_orders = node_orders
        self._jobs = jobs

    def images(self, request: ListImages, caller: Caller) -> ImageList:
        found: dict[str, _Found] = {}
        names = self._wanted(caller, found)
        holders: dict[str, set[str]] = {}
        for status in self._node_orders.statuses.values():
            self._on_node(status, caller, found, holders)
        keys = sorted(found, key=lambda key: (-found[key].reservations, found[key].image.uri, key))
        views = tuple(
            self._view(key, found[key], caller, names, holders.get(key, set()))
            for key in keys[: request.most]
        )
        return ImageList(images=views, is_complete=len(keys) <= request.most)

    def _wanted(self, caller: Caller, found: dict[str, _Found]) -> dict[int, str]:
        """Images of reservations and of jobs; and the users' names that these tell."""
        names = {caller.uid: caller.user}
        for live in self._site.live.values():
            owner = live.record.owner
            names[owner.uid] = owner.user
            each = _see(found, live.document.image, caller, (owner.uid,), live.document.readers)
            if each is not None:
                each.reservations += 1
        for entry in self._jobs.entries.values():
            names[entry.job.uid] = entry.job.user
            if entry.image is not None:
                each = _see(found, entry.image.image, caller, (entry.job.uid,), entry.readers)
                if each is not None:
                    each.jobs += 1
        return names

    def _on_node(
        self, status: NodeStatus, caller: Caller, found: dict[str, _Found], holders: dict[str, set[str]]
    ) -> None:
        """What a node has said that it has, and what has come since."""
        for image, uids, readers in (*_held(status), *_come(status)):
            holders.setdefault(image.digest, set()).add(status.name)
            each = _see(found, image, caller, uids, readers)
            if each is not None:
                each.nodes[status.name] = None
                each.is_open = each.is_open or readers is None

    def _view(
        self, key: str, found: _Found, caller: Caller, names: dict[int, str], holders: set[str]
    ) -> ImageOnNodes:
        site = self._site
        nodes = site.book.timeline.nodes
        coming = {nodes[node].name for node in numbers(site.book.pools.mask_with(key))} - holders
        uids = sorted(found.owners) if found.is_private else ()
        shown = [uid for uid in uids if caller.is_admin or uid == caller.uid]
        return ImageOnNodes(
            digest=found.image.digest,
            uri=found.image.uri,
            size_bytes=found.image.size_bytes,
            nodes=fold(found.nodes),
            node_count=len(found.nodes),
            coming_nodes=fold(sorted(coming)),
            reservations=found.reservations,
            is_private=found.is_private,
            jobs=found.jobs,
            owners=tuple(names.get(uid, str(uid)) for uid in shown[:MOST_OWNERS]),
        )


def _held(status: NodeStatus) -> Iterator[tuple[Image, tuple[int, ...], Readers | None]]:
    """The images of a node's last list, each with the users whose it is, and who may use it."""
    for held in status.images.values():
        yield image_of(held), _owners_of(held), None if held.is_public else held.readers or Readers()


def _come(status: NodeStatus) -> Iterator[tuple[Image, tuple[int, ...], Readers | None]]:
    """Images that have come since, for reservations and jobs."""
    for digest, need in status.come.items():
        if digest not in status.images:
            image = Image(uri=need.uri, size_bytes=need.size_bytes, digest=digest)
            yield image, () if need.readers is None else need.readers.uids, need.readers


def _owners_of(held: NodeImage) -> tuple[int, ...]:
    """Whose a private image is: who has put it there or, of one that the service has, who may use it."""
    if held.owner_uid is not None:
        return (held.owner_uid,)
    return () if held.readers is None else held.readers.uids


def _see(
    found: dict[str, _Found],
    image: Image,
    caller: Caller,
    uids: tuple[int, ...],
    readers: Readers | None,
) -> _Found | None:
    """An image that somebody has; None if it is not for whoever asks."""
    if not (caller.is_admin or readers is None or caller.uid in uids or _reads(caller, readers)):
        return None
    each = found.setdefault(image.digest, _Found(image))
    if readers is not None:
        each.is_kept_private = True
        each.owners.update(dict.fromkeys(uids))
    return each


def _reads(caller: Caller, readers: Readers) -> bool:
    return caller.uid in readers.uids or not set(caller.gids).isdisjoint(readers.gids)
