"""Reading all contents again, while the pool is in use."""

from __future__ import annotations

from pathlib import Path

from cachemgr.pool import check, room
from cachemgr.pool.pool import ImagePool
from tests.unit.cachemgr.pool.conftest import Add

A, B = b"alma" * 10, b"bookworm" * 5


def test_check_does_not_hide_what_took_the_place_of_wrong_bytes_meanwhile(pool: ImagePool, add: Add) -> None:
    image = add(A)
    data = Path(pool.data_path(image.digest))
    data.chmod(0o600)
    data.write_bytes(B)

    def replace_it(size_bytes: int) -> None:
        with pool.changing("evicting"):
            assert room.evict(pool, image.digest)
        add(A)

    findings = check.check_contents(pool, fix=True, on_bytes=replace_it)

    assert findings == []
    assert data.read_bytes() == A
    assert pool.find(image.digest) is not None
