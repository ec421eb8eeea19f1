"""Images in buckets: the head looks them up with the site's key, and nodes read them by signed addresses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import SourceFailed, Unsuitable
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.signing import expiry_of
from cachemgr.fetch.sources.sources import SourceSettings, resolve, source_of
from outrider.service.images.buckets import Bucket, Buckets
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Readers
from tests.daemons.objects.conftest import MakeBucket
from tests.daemons.objects.store import SECRET, Store
from tests.unit.cachemgr.fetch.servers import Asked, head, serving

if TYPE_CHECKING:
    from cachemgr.fetch.sources.sources import AnySource

CLOCK = SystemClock()
PATIENCE_S = 30.0
DATA = b"disk" + os.urandom(200_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
KEY = "team a/render+1.qcow2"
URI = "s3://images/team%20a/render%2B1.qcow2"
ADA, BOB = 61001, 61002


def ask(uri: str, *buckets: Bucket, digest: str = "", is_private: bool = False, uid: int = ADA) -> FoundImage:
    resolver = Resolver(open_as=opener(), hashes=Hashes(None, CLOCK), clock=CLOCK, buckets=Buckets(buckets))
    found = resolver(ImageClaim(uri=uri, uid=uid, digest=digest, is_private=is_private))
    assert isinstance(found, FoundImage)
    return found


def refusal(uri: str, *buckets: Bucket, is_private: bool = False, uid: int = ADA) -> str:
    with pytest.raises(ImageTrouble) as trouble:
        ask(uri, *buckets, is_private=is_private, uid=uid)
    return str(trouble.value)


def signed(bucket: Bucket, *, ago_s: int = 0, uri: str = URI) -> str:
    found = Buckets([bucket]).address_of(uri, CLOCK.now_s() - ago_s, None)
    assert found is not None
    return found


def source(uri: str) -> AnySource:
    return source_of(uri, SourceSettings(), CLOCK)


def read(found: AnySource, offset: int) -> bytes:
    stream = found.open(offset, len(DATA), PATIENCE_S)
    data = bytearray()
    try:
        with memoryview(bytearray(65_536)) as block:
            while count := stream.read_into(block, PATIENCE_S):
                data += block[:count]
    finally:
        stream.close()
    assert stream.start_bytes == offset
    return bytes(data)


def test_object_of_a_private_bucket_is_looked_up_with_the_sites_key(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)

    assert ask(URI, bucket()) == FoundImage(size_bytes=len(DATA), digest=DIGEST)
    assert [status for _, _, status in store.asked] == [200]


def test_digest_beside_an_object_counts_where_the_store_keeps_none(store: Store, bucket: MakeBucket) -> None:
    store.put("images", "bare", DATA, has_checksum=False)
    store.put("images", "bare.sha256", f"{DIGEST[7:]}  bare\n".encode())

    assert ask("s3://images/bare", bucket()).digest == DIGEST
    store.put("images", "none", DATA, has_checksum=False)
    assert "write its digest" in refusal("s3://images/none", bucket())


@pytest.mark.parametrize(
    ("secret", "uri", "words"),
    [
        ("of somebody else", URI, "does not let the site's key read it"),
        (SECRET, "s3://images/not-there", "no such object"),
    ],
)
def test_what_the_store_refuses_is_said(
    store: Store, bucket: MakeBucket, key_file: Callable[..., Path], secret: str, uri: str, words: str
) -> None:
    store.put("images", KEY, DATA)

    said = refusal(uri, bucket(key_file=str(key_file(secret))))

    assert words in said
    assert secret not in said


def test_clock_that_is_wrong_is_among_the_causes(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)
    store.ahead_s = 3_600

    assert "the head's clock" in refusal(URI, bucket())


def test_object_whose_size_is_unknown_is_refused(bucket: MakeBucket) -> None:
    def answer(asked: Asked, sock: object) -> None:
        sock.sendall(head("200 OK"))  # type: ignore[attr-defined]

    with serving(answer) as server:
        said = refusal(URI, bucket(endpoint=f"http://127.0.0.1:{server.port}"))

    assert "does not say how large it is" in said


def test_bucket_in_another_region_is_named(bucket: MakeBucket) -> None:
    def answer(asked: Asked, sock: object) -> None:
        said = {"Content-Length": "0", "x-amz-bucket-region": "eu-test-2"}
        sock.sendall(head("301 Moved Permanently", **said))  # type: ignore[attr-defined]

    with serving(answer) as server:
        assert "region eu-test-2" in refusal(URI, bucket(endpoint=f"http://127.0.0.1:{server.port}"))


def test_bucket_is_for_whom_the_site_says_and_nobody_else_learns_of_it(
    store: Store, bucket: MakeBucket
) -> None:
    store.put("images", KEY, DATA)
    theirs = bucket(readers=Readers(uids=(ADA,)))

    assert "write `private: true`" in refusal(URI, theirs)
    assert ask(URI, theirs, is_private=True).digest == DIGEST
    of_bob, of_nobody = (refusal(URI, *each, is_private=True, uid=BOB) for each in ((theirs,), ()))
    assert of_bob == of_nobody
    assert len(store.asked) == 1


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [
        (0o640, "", "others may read the key"),
        (0o600, "[default]\naws_access_key_id = x\n", "no section [default] with"),
        (0o600, "s3cret without a section\n", "no section [default] with"),
    ],
)
def test_key_that_cannot_be_used_is_refused_and_not_shown(
    bucket: MakeBucket, key_file: Callable[..., Path], mode: int, text: str, words: str
) -> None:
    found = bucket(key_file=str(key_file(mode=mode)))
    if text:
        Path(str(found.key_file)).write_text(text)

    said = refusal(URI, found)

    assert words in said
    assert "s3cret" not in said


def test_node_reads_by_a_signed_address_from_any_offset(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)
    address = signed(bucket())

    assert read(source(address), 0) == DATA
    assert read(source(address), 150_000) == DATA[150_000:]
    assert SECRET not in address
    assert "Signature" not in source(address).name


def test_address_for_one_object_reads_no_other(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)
    store.put("images", "other", DATA)
    address = signed(bucket())

    with pytest.raises(SourceFault, match="403") as fault:
        read(source(address.replace("/images/team%20a/render%2B1.qcow2?", "/images/other?")), 0)
    assert fault.value.is_final


def test_expired_address_is_refused_by_the_store(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)
    address = signed(bucket(), ago_s=86_400)

    with pytest.raises(SourceFault, match="403"):
        read(source(address), 0)


def test_address_is_good_beyond_its_need_and_the_same_when_asked_for_soon_again(bucket: MakeBucket) -> None:
    buckets, now_s = Buckets([bucket()]), CLOCK.now_s() // 900 * 900
    until_s = now_s + 100_000

    first, again = (buckets.address_of(URI, now_s + each, until_s) for each in (0, 899))
    far = buckets.address_of(URI, now_s, now_s + 100 * 86_400)

    assert first is not None
    assert first == again
    assert (expiry_of(first.partition("?")[2]) or 0) > until_s
    assert far is not None
    assert expiry_of(far.partition("?")[2]) == now_s + 7 * 86_400


def test_key_that_expires_limits_what_is_promised_and_every_address(
    store: Store, bucket: MakeBucket, key_file: Callable[..., Path]
) -> None:
    store.put("images", KEY, DATA)
    more = "x_security_token_expires = 2100-01-01T00:00:00+00:00\n"
    lent = bucket(key_file=str(key_file(more=more)))
    ends_s = 4_102_444_800

    assert ask(URI, lent).usable_until_s == ends_s
    last = Buckets([lent]).address_of(URI, ends_s - 7_200, ends_s)
    assert last is not None
    assert expiry_of(last.partition("?")[2]) == ends_s
    with pytest.raises(Unsuitable, match="has expired"):
        Buckets([lent]).address_of(URI, ends_s, None)


def test_open_bucket_is_asked_without_a_key(store: Store, bucket: MakeBucket) -> None:
    store.put("open", "image", DATA)
    found = bucket("open", key_file=None)

    assert ask("s3://open/image", found).digest == DIGEST
    address = signed(found, uri="s3://open/image")
    assert address == f"{store.endpoint}/open/image"
    assert read(source(address), 0) == DATA


def test_signed_address_of_a_user_is_promised_until_it_expires(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)
    address = signed(bucket())

    found = ask(address, digest=DIGEST)

    assert found == replace(
        FoundImage(size_bytes=len(DATA), digest=DIGEST),
        usable_until_s=expiry_of(address.partition("?")[2]),
    )
    assert found.usable_until_s is not None


def test_address_with_a_signature_for_another_time_is_not_looked_up(store: Store, bucket: MakeBucket) -> None:
    store.put("images", KEY, DATA)

    with pytest.raises(SourceFailed, match="403"):
        resolve(signed(bucket()).replace("X-Amz-Expires=", "X-Amz-Expires=1"), SourceSettings(), CLOCK)
