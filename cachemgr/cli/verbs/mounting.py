"""The verbs with which root carries out, and undoes, the mounts of instances: mount, unmount.

They are what a hook runs on a node whose daemon is not root. They ask no daemon and believe
nothing but where the pool is: every path of a record is checked again to lie within the
instance, and nothing is followed out of it.
"""

from __future__ import annotations

import os
import re

from cachemgr.base.errors import BadRequest, NotAllowed, NotInPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession
    from cachemgr.pool.pool import ImagePool

KEY = re.compile(r"[0-9a-f]{32}")


def add(commands: VerbParsers) -> None:
    mount = commands.add(
        "mount", _mount, "as root: carry out the mounts of an instance that is prepared", "mount INSTANCE"
    )
    mount.add_argument("instance", metavar="INSTANCE", help="its 32 digits")
    unmount = commands.add(
        "unmount",
        _unmount,
        "as root: undo the mounts of an owner's instances and delete what was written to them",
        "unmount job-17",
        "unmount job-17 --label rank-3",
    )
    unmount.add_argument("owner", metavar="OWNER", help="the owner")
    unmount.add_argument("--label", help="this instance alone")


def _mount(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.instances.kernel import Kernel
    from cachemgr.instances.mounts import KINDS, carry_out, decode_mounts
    from cachemgr.pool.instance_book import read_instance

    pool = _pool(session)
    if not KEY.fullmatch(arguments.instance):
        raise BadRequest(f"{arguments.instance[:60]!r} is not an instance: those have 32 digits 0-9a-f")
    instance = read_instance(pool, arguments.instance)
    if instance is None or not instance.is_ready:
        raise NotInPool(f"there is no instance {arguments.instance}: ask for it first")
    kinds = [kind for kind in KINDS if session.config.mount_squashfs or kind != "squashfs"]
    mounts = decode_mounts([dict(each) for each in instance.mounts])
    carry_out(mounts, pool=pool.layout.root, mounter=Kernel(), allowed_kinds=kinds)
    session.show({"path": instance.path, "mounts": len(mounts)}, instance.path)


def _unmount(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.instances.kernel import Kernel
    from cachemgr.instances.removal import remove
    from cachemgr.pool.instance_book import key_of, keys_of

    pool = _pool(session)
    if arguments.label is not None:
        keys = [key_of(arguments.owner, arguments.label)]
    else:
        keys = keys_of(pool, arguments.owner)
    there = [key for key in keys if pool.disk.exists(pool.layout.instance(key))]
    for key in there:
        remove(Kernel(), pool.layout.instance(key), pool=pool.layout.root)
    session.show({"instances": len(there)}, f"{len(there)} undone")


def _pool(session: VerbSession) -> ImagePool:
    """The pool's folders, with nothing opened that root would leave behind as its own."""
    from cachemgr.base.disk import RealDisk
    from cachemgr.pool.index import SqliteIndex
    from cachemgr.pool.layout import PoolLayout
    from cachemgr.pool.pool import ImagePool

    if os.geteuid() != 0:
        raise NotAllowed("only root may mount: run this as root, as a prolog does")
    root = os.path.realpath(session.config.pool)
    return ImagePool(RealDisk(), root, session.clock, SqliteIndex(PoolLayout(root).index))
