"""The pool's book of instances with the real maker: from an image to an instance and back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.base.hashing import InlineHasher
from cachemgr.instances.formats import admitted
from cachemgr.instances.kernel import Kernel
from cachemgr.instances.maker import InstanceMaker
from cachemgr.instances.probing import probe
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.instance_book import instances, make_instance, remove_instances
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import PoolImage

USER, OTHER_USER = 64001, 64002
LATER_S = SystemClock().now_s() + 3600


@pytest.fixture
def pool(site: Any) -> Iterator[ImagePool]:
    root = str(site.root.parent / "real")
    disk = RealDisk()
    ImagePool.create(disk, root, PoolSettings(limit_bytes=100 << 20, policy="lfu"))
    index = SqliteIndex(f"{root}/index.sqlite")
    found = ImagePool(disk, root, SystemClock(), index)
    yield found
    found.close()
    kernel = Kernel()
    for each in reversed(kernel.table()):
        if each.path.startswith(f"{root}/"):
            kernel.unmount(each.path, is_lazy=True)


def maker_of(pool: ImagePool, *, mounts_itself: bool) -> InstanceMaker:
    folder = Path(pool.layout.root, "trash", "probe")
    folder.mkdir()
    abilities = probe(pool.disk, str(folder), Kernel())
    pool.disk.remove_all(str(folder))
    return InstanceMaker(
        pool.disk, pool.layout.root, abilities=abilities, mounter=Kernel(), mounts_itself=mounts_itself
    )


@pytest.fixture
def maker(pool: ImagePool) -> InstanceMaker:
    return maker_of(pool, mounts_itself=True)


def ingested(pool: ImagePool, data: bytes) -> PoolImage:
    digest = hashlib.sha256(data).hexdigest()
    ingest = pool.want(Want(uri=f"file:///{digest}", size_bytes=len(data), digest=digest))
    assert isinstance(ingest, Ingest)
    writer = ingest.writer(InlineHasher())
    assert writer is not None
    writer.write(data)
    return writer.commit(admitted)


def test_disk_becomes_an_instance_with_its_seed_and_goes_again(
    pool: ImagePool, maker: InstanceMaker, as_user: Callable[..., str]
) -> None:
    image = ingested(pool, bytes(1080) + b"\x53\xef" + bytes(5000))
    context = {"hostname": "n1", "files": {"role": "head"}}
    made = make_instance(pool, maker, image, owner="job 7", uid=USER, until_s=LATER_S, context=context)

    def write() -> None:
        with open(made.path, "r+b") as file:
            file.write(b"of the job")

    assert (image.format, made.method, made.is_ready) == ("raw", "reflink", True)
    assert made.seed == f"{pool.layout.instance(made.key)}/seed.iso"
    assert as_user(USER, write) == ""
    assert as_user(OTHER_USER, write) == "PermissionError"
    assert make_instance(pool, maker, image, owner="job 7", uid=USER, until_s=LATER_S) == made
    assert remove_instances(pool, maker, "job 7") == 1
    assert remove_instances(pool, maker, "job 7") == 0
    assert os.listdir(pool.layout.folder("instances")) == []


def test_squashfs_becomes_a_writable_root_and_goes_again(
    pool: ImagePool, maker: InstanceMaker, squashfs: Path, as_user: Callable[..., str]
) -> None:
    image = ingested(pool, squashfs.read_bytes())
    made = make_instance(
        pool, maker, image, owner="job 8", uid=USER, until_s=LATER_S, context={"hostname": "n1"}
    )
    Path(made.path, "etc", "motd").write_text("changed")
    written = as_user(USER, lambda: os.mkdir(f"{made.path}/new"))
    seed = sorted(os.listdir(str(made.seed)))
    removed = remove_instances(pool, maker, "job 8")

    assert (image.format, made.method, made.mounts) == ("squashfs", "overlay", ())
    assert (written, removed) == ("", 1)
    assert seed == ["files", "meta-data", "user-data"]
    assert Path(pool.data_path(image.digest)).read_bytes() == squashfs.read_bytes()
    assert instances(pool) == []


def test_full_copy_counts_in_the_pool_and_others_do_not(pool: ImagePool, maker: InstanceMaker) -> None:
    image = ingested(pool, b"x" * 10_000)

    assert maker.taken_bytes("copy", image) == 10_000
    assert maker.taken_bytes("reflink", image) == 0
    made = make_instance(pool, maker, image, owner="job 9", uid=0, until_s=LATER_S, method="copy")
    assert pool.index.taken() == {f"instance:{made.key}": 10_000}
    remove_instances(pool, maker, "job 9")
    assert pool.index.taken() == {}


def test_trap_is_refused_when_it_would_enter_the_pool(pool: ImagePool) -> None:
    trap = b"QFI\xfb" + bytes((0, 0, 0, 3)) + (4096).to_bytes(8, "big") + bytes(4096)

    with pytest.raises(Unsuitable, match="backing file"):
        ingested(pool, trap)
    assert pool.images() == []


def test_wrong_context_leaves_nothing_behind(pool: ImagePool, maker: InstanceMaker) -> None:
    image = ingested(pool, b"program")
    with pytest.raises(BadRequest, match="has no key"):
        make_instance(pool, maker, image, owner="job 1", uid=USER, until_s=LATER_S, context={"x": 1})

    assert os.listdir(pool.layout.folder("instances")) == []
    assert pool.pins(image.digest) == []


def test_without_root_the_mounts_are_handed_on(pool: ImagePool, squashfs: Path) -> None:
    maker = maker_of(pool, mounts_itself=False)
    image = ingested(pool, squashfs.read_bytes())
    made = make_instance(pool, maker, image, owner="job 2", uid=USER, until_s=LATER_S, is_writable=False)

    assert [each["kind"] for each in made.mounts] == ["squashfs"]
    assert os.listdir(made.path) == []
