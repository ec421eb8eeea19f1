"""A pool's life in one script that needs the node side alone, for every Python that may run it.

The arguments are where the node side is and where the pool is to be. It imports each of its
modules, too, so that nothing in them is newer than the interpreter.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys

root, place = sys.argv[1:]
sys.path.insert(0, root)

from cachemgr.base.clock import SystemClock  # noqa: E402
from cachemgr.base.disk import RealDisk  # noqa: E402
from cachemgr.base.hashing import ThreadedHasher  # noqa: E402
from cachemgr.pool import check, instance_book, room  # noqa: E402
from cachemgr.pool.index import SqliteIndex  # noqa: E402
from cachemgr.pool.ingest import Ingest, drop_stale  # noqa: E402
from cachemgr.pool.layout import PoolSettings  # noqa: E402
from cachemgr.pool.pool import ImagePool, Want  # noqa: E402
from cachemgr.pool.records import PUBLIC, Alias, ImageAccess, PoolImage, PoolPin  # noqa: E402


class Maker:
    """An instance is a file that says so."""

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        return "note"

    def taken_bytes(self, method: str, image: PoolImage) -> int:
        return 10

    def make(
        self, wish: instance_book.InstanceWish, image_path: str, folder: str
    ) -> instance_book.MadeInstance:
        path = os.path.join(folder, "disk")
        with open(path, "w", encoding="ascii") as file:
            file.write(wish.image.digest)
        return instance_book.MadeInstance(path=path)

    def hand_over(self, folder: str, other: str) -> None:
        os.rename(os.path.join(folder, "disk"), os.path.join(other, "disk"))

    def remove(self, folder: str) -> None:
        path = os.path.join(folder, "disk")
        if os.path.exists(path):
            os.unlink(path)


def add(
    pool: ImagePool,
    letter: bytes,
    pin: PoolPin | None = None,
    aliases: tuple[str, ...] = (),
    readers: ImageAccess = PUBLIC,
) -> PoolImage:
    content = letter * 300_000
    digest = hashlib.sha256(content).hexdigest()
    want = Want(
        uri=f"http://x/{digest}", size_bytes=len(content), digest=digest, aliases=aliases, readers=readers
    )
    found = pool.want(want, pin)
    if not isinstance(found, Ingest):
        return found
    writer = found.writer(ThreadedHasher())
    assert writer is not None
    for at in range(0, len(content), 100_000):
        writer.write(content[at : at + 100_000])
        writer.checkpoint()
    return writer.commit()


def main() -> None:
    for folder, _, names in sorted(os.walk(os.path.join(root, "cachemgr"))):
        package = os.path.relpath(folder, root).replace(os.sep, ".")
        for name in sorted(names):
            if name.endswith(".py") and name not in ("__init__.py", "__main__.py"):
                importlib.import_module(f"{package}.{name[:-3]}")
    ImagePool.create(RealDisk(), place, PoolSettings(limit_bytes=1_000_000, policy="lfu"))
    pool = ImagePool(RealDisk(), place, SystemClock(), SqliteIndex(place + "/index.sqlite"))
    now_s = pool.clock.now_s()
    pin = PoolPin(owner="job", kind="hold", uid=0, expires_s=now_s + 100, from_s=now_s)
    first = add(pool, b"a", pin, aliases=("latest",))
    second = add(pool, b"b", readers=ImageAccess(is_public=False, uids=(5,)))
    add(pool, b"c")
    pool.add_alias(Alias("other", second.digest))
    pool.use(first.digest)
    pool.allow(second, 6)
    made = instance_book.make_instance(pool, Maker(), first, owner="job", uid=0, until_s=now_s + 100)
    images = len(pool.images())
    fourth = add(pool, b"d")
    with pool.changing("evicting"):
        room.evict(pool, fourth.digest)
    kept = pool.find("latest") == first and os.path.exists(made.path)
    instance_book.remove_instances(pool, Maker(), "job")
    pool.unpin("latest", "job")
    drop_stale(pool)
    check.check(pool, Maker(), fix=True)
    wrong = [*check.check(pool, Maker(), fix=False), *check.check_contents(pool, fix=False)]
    pool.close()
    print(images, "images and", "nothing wrong" if kept and not wrong else f"{kept} {wrong}")  # noqa: T201


main()
