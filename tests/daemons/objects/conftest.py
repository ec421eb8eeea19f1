"""A store with a private bucket, a key of the site's, and the head's buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.service.images.buckets import Bucket
from tests.daemons.objects.store import KEY_NAME, REGION, SECRET, Store, running

MakeBucket = Callable[..., Bucket]


@pytest.fixture(scope="module")
def served() -> Iterator[Store]:
    with running() as store:
        store.bucket("images")
        store.bucket("open", is_private=False)
        yield store


@pytest.fixture
def store(served: Store) -> Store:
    served.ahead_s = 0
    served.asked.clear()
    return served


@pytest.fixture
def key_file(tmp_path: Path) -> Callable[..., Path]:
    def make(secret: str = SECRET, more: str = "", mode: int = 0o600) -> Path:
        path = tmp_path / "credentials"
        text = f"[default]\naws_access_key_id = {KEY_NAME}\naws_secret_access_key = {secret}\n{more}"
        path.write_text(text)
        path.chmod(mode)
        return path

    return make


@pytest.fixture
def bucket(store: Store, key_file: Callable[..., Path]) -> MakeBucket:
    """Makes the head's knowledge of a bucket; with the site's key unless another is given."""

    def make(name: str = "images", **changes: object) -> Bucket:
        own = {} if "key_file" in changes else {"key_file": str(key_file())}
        given = {**own, "endpoint": store.endpoint, "region": REGION, **changes}
        return Bucket(name=name, **given)  # type: ignore[arg-type]

    return make
