"""What the pool asks for instances: the parts of this package behind the pool's own interface."""

from __future__ import annotations

from cachemgr.instances.context import attach, checked_context
from cachemgr.instances.making import BuildOrder, hand_over, make
from cachemgr.instances.methods import choose
from cachemgr.instances.mounts import carry_out
from cachemgr.instances.removal import remove
from cachemgr.pool import instance_book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.disk import Disk
    from cachemgr.instances.kernel import Mounter
    from cachemgr.instances.methods import Abilities
    from cachemgr.pool.instance_book import InstanceWish
    from cachemgr.pool.records import PoolImage

VIRTUAL_DISKS = ("raw", "qcow2")


class InstanceMaker:
    """Makes and removes the files of instances of one pool.

    With `mounts_itself`, which only root can, an instance is ready when it is made; without,
    its mounts are handed on to whoever asks root for them.
    """

    __slots__ = ("_abilities", "_disk", "_mounter", "_mounts_itself", "_pool")

    def __init__(
        self, disk: Disk, pool: str, *, abilities: Abilities, mounter: Mounter, mounts_itself: bool
    ) -> None:
        self._disk = disk
        self._pool = pool
        self._abilities = abilities
        self._mounter = mounter
        self._mounts_itself = mounts_itself

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        return choose(image.format, self._abilities, wanted, is_writable=is_writable)

    def taken_bytes(self, method: str, image: PoolImage) -> int:
        return image.size_bytes if method == "copy" else 0

    def make(self, wish: InstanceWish, image_path: str, folder: str) -> instance_book.MadeInstance:
        # First what a user can have got wrong, then what takes time.
        context = checked_context(wish.context) if wish.context else None
        order = BuildOrder(
            image_path=image_path,
            image_format=wish.image.format,
            size_bytes=wish.image.size_bytes,
            folder=folder,
            uid=wish.uid,
            is_writable=wish.is_writable,
            watch=wish.watch,
        )
        made = make(self._disk, wish.method, order)
        seed = None
        if context is not None:
            name = folder.rpartition("/")[2]
            as_seed = made.format in VIRTUAL_DISKS
            seed = attach(self._disk, context, instance=name, folder=folder, uid=wish.uid, as_seed=as_seed)
        mounts = made.mounts
        if self._mounts_itself:
            carry_out(mounts, pool=self._pool, mounter=self._mounter)
            mounts = ()
        return instance_book.MadeInstance(
            path=made.path, mounts=tuple(each.encode() for each in mounts), seed=seed
        )

    def hand_over(self, folder: str, other: str) -> None:
        hand_over(self._disk, folder, other)

    def remove(self, folder: str) -> None:
        remove(self._mounter, folder, pool=self._pool)
