"""A pool in a folder of the real file system, and bytes to put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import PoolImage, PoolPin
from tests.simulation.crash.world import SetClock, digest_of

LIMIT_BYTES = 1000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "pool"
    ImagePool.create(RealDisk(), str(path), PoolSettings(limit_bytes=LIMIT_BYTES, policy="lru"))
    return path


@pytest.fixture
def open_pool(root: Path, clock: SetClock) -> Iterator[Callable[[], ImagePool]]:
    """Open the pool as one more process would; closed at the end."""
    with ExitStack() as opened:

        def open_one() -> ImagePool:
            pool = ImagePool(RealDisk(), str(root), clock, SqliteIndex(str(root / "index.sqlite")))
            opened.callback(pool.close)
            return pool

        yield open_one


@pytest.fixture
def pool(open_pool: Callable[[], ImagePool]) -> ImagePool:
    return open_pool()


Add = Callable[..., PoolImage]


@pytest.fixture
def add(pool: ImagePool) -> Add:
    """Bring bytes in, by digest unless told otherwise."""

    def bring(
        content: bytes, pin: PoolPin | None = None, *, is_known: bool = True, **more: object
    ) -> PoolImage:
        uri = str(more.pop("uri", f"http://site/{content[:8].hex()}"))
        digest = digest_of(content) if is_known else ""
        want = Want(uri=uri, size_bytes=len(content), digest=digest, **more)  # type: ignore[arg-type]
        found = pool.want(want, pin)
        if not isinstance(found, Ingest):
            return found
        writer = found.writer(InlineHasher())
        assert writer is not None
        writer.write(content)
        return writer.commit()

    return bring


def pin_of(owner: str, clock: SetClock, lease_s: int = 100, kind: str = "hold") -> PoolPin:
    now_s = clock.now_s()
    return PoolPin(owner=owner, kind=kind, uid=0, expires_s=now_s + lease_s, from_s=now_s)
