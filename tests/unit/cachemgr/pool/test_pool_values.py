"""Images, pins and names at the edges of what the pool takes, and what it says of the rest."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, InUse, NeverFits, NoRoom, NotAllowed, NotInPool, WrongBytes
from cachemgr.base.hashing import InlineHasher, ThreadedHasher
from cachemgr.pool.ingest import Ingest, cancel, drop_stale
from cachemgr.pool.layout import PoolLayout, PoolSettings
from cachemgr.pool.pins import LONGEST_LEASE_S, read_pins
from cachemgr.pool.pool import INGEST_LEASE_S, ImagePool, Want
from cachemgr.pool.records import Alias, ImageAccess, PoolImage, PoolPin
from tests.simulation.crash.world import SetClock, digest_of
from tests.unit.cachemgr.pool.conftest import LIMIT_BYTES, Add, pin_of

A, B = b"a" * 400, b"b" * 400
ODD_NAMES = (
    "../../../etc/passwd",
    "http://user:pass@host/%2e%2e/ä ö?x=1#y",
    "-rf",
    "a" * 4096,
    "ubuntu:24.04",
    "'; DROP TABLE image; --",
    "/" * 300,
    "雪.qcow2",
)


# -- sizes ---------------------------------------------------------------------------------


def test_image_of_no_bytes_is_an_image(pool: ImagePool, add: Add) -> None:
    image = add(b"")

    assert image.size_bytes == 0
    assert pool.find(image.digest) == image
    assert Path(pool.data_path(image.digest)).read_bytes() == b""


def test_image_of_exactly_the_limit_fits_and_one_byte_more_never_does(pool: ImagePool, add: Add) -> None:
    with pytest.raises(NeverFits, match=r"\(1001 B\) never fits into the pool of 1000 B"):
        add(b"x" * (LIMIT_BYTES + 1))
    image = add(b"x" * LIMIT_BYTES)

    assert pool.images() == [image]


def test_full_pool_still_takes_an_image_of_no_bytes(pool: ImagePool, add: Add, clock: SetClock) -> None:
    add(b"x" * LIMIT_BYTES, pin_of("job 1", clock))
    add(b"")

    assert len(pool.images()) == 2


def test_lower_limit_is_reached_by_the_next_ingest(
    root: Path, pool: ImagePool, add: Add, clock: SetClock
) -> None:
    add(A)
    clock.at_s += 1
    add(B)
    ImagePool.create(RealDisk(), str(root), PoolSettings(limit_bytes=500, policy="lru"))
    smaller = ImagePool(RealDisk(), str(root), clock, pool.index)
    found = smaller.want(Want(uri="c", size_bytes=100, digest=digest_of(b"c" * 100)))

    assert isinstance(found, Ingest)
    assert [image.digest for image in smaller.images()] == [digest_of(B)]


def test_bytes_of_what_arrives_count_before_the_first_one_is_there(
    pool: ImagePool, add: Add, clock: SetClock
) -> None:
    pool.want(Want(uri="arriving", size_bytes=700, digest=digest_of(b"x" * 700)), pin_of("o", clock))
    with pytest.raises(NoRoom, match="700 B are arriving"):
        add(A)

    assert pool.images() == []


def test_bytes_of_what_arrives_for_nobody_go_before_who_is_trusted_is_refused(
    pool: ImagePool, add: Add
) -> None:
    left = pool.want(Want(uri="left", size_bytes=700, digest=digest_of(b"x" * 700)))
    image = add(A)

    assert isinstance(left, Ingest)
    assert not left.is_there()
    assert [each.digest for each in pool.images()] == [image.digest]


@pytest.mark.parametrize("hasher", [InlineHasher, ThreadedHasher])
def test_image_in_many_blocks_has_its_digest(pool: ImagePool, hasher: type[InlineHasher]) -> None:
    content = bytes(range(250)) * 4
    want = Want(uri="x", size_bytes=1000, digest=digest_of(content))
    found = pool.want(want)
    assert isinstance(found, Ingest)
    writer = found.writer(hasher())
    assert writer is not None
    for at in range(0, 1000, 7):
        writer.write(memoryview(content)[at : at + 7])
    image = writer.commit()

    assert image.digest == digest_of(content)
    assert Path(pool.data_path(image.digest)).read_bytes() == content


def test_more_bytes_than_promised_are_refused_at_once_and_fewer_at_the_end(pool: ImagePool) -> None:
    found = pool.want(Want(uri="http://site/x.img", size_bytes=10, digest=digest_of(b"x" * 10)))
    assert isinstance(found, Ingest)
    writer = found.writer(InlineHasher())
    assert writer is not None
    with pytest.raises(WrongBytes, match="promised to have 10 bytes and has more"):
        writer.write(b"x" * 11)
    writer.write(b"x" * 9)
    with pytest.raises(WrongBytes, match="promised to have 10 bytes and has 9"):
        writer.commit()
    writer.write(b"x")

    assert writer.commit().size_bytes == 10


def test_same_digest_with_another_size_is_refused_arriving_or_here(pool: ImagePool, add: Add) -> None:
    wrong = Want(uri="x", size_bytes=399, digest=digest_of(A))
    pool.want(Want(uri="x", size_bytes=400, digest=digest_of(A)))
    with pytest.raises(BadRequest, match="said to have 399 bytes, but the content of that digest has 400"):
        pool.want(wrong)
    add(A)
    with pytest.raises(BadRequest, match="correct the size or the digest"):
        pool.want(wrong)

    assert len(pool.images()) == 1


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_are_kept_as_they_are_and_become_no_path(
    name: str, root: Path, pool: ImagePool, add: Add, clock: SetClock
) -> None:
    before = sorted(path.name for path in root.parent.iterdir())
    image = add(A, pin_of(name, clock), uri=name, aliases=(name,))
    found = pool.find(name)

    assert found == image
    assert image.uri == name
    assert [pin.owner for pin in pool.pins(image.digest)] == [name]
    assert [alias.name for alias in pool.aliases()] == [name]
    assert pool.unpin(name, name)
    assert pool.remove_alias(name)
    assert sorted(path.name for path in root.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["", "a" * 4097, "line\nbreak", "nul\0", "\x1b[2J", "\u2028"])
def test_names_that_would_mislead_people_are_refused(name: str, pool: ImagePool, clock: SetClock) -> None:
    with pytest.raises(BadRequest, match="must have 1 to 4096 printable characters"):
        Want(uri=name, size_bytes=1)
    with pytest.raises(BadRequest, match="a pin's owner must have"):
        pool.pin("x", pin_of(name, clock))
    with pytest.raises(BadRequest, match="an alias must have"):
        pool.add_alias(Alias(name, digest_of(A)))

    assert pool.aliases() == []


def test_digest_with_and_without_its_prefix_is_the_same_name(pool: ImagePool, add: Add) -> None:
    image = add(A)

    assert pool.find(digest_of(A)) == pool.find(f"sha256:{digest_of(A)}") == image


def test_digest_names_nothing_but_itself(pool: ImagePool, add: Add) -> None:
    image = add(A)
    pool.add_alias(Alias(digest_of(A), image.digest))
    with pytest.raises(BadRequest, match="cannot be the name of another image"):
        pool.add_alias(Alias(digest_of(B), image.digest))

    assert pool.aliases() == []


@pytest.mark.parametrize("digest", ["sha256:abc", "md5:" + "0" * 64, "A" * 64, "0" * 63, "../" + "0" * 61])
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(BadRequest, match="is not a sha256 digest: write sha256: and 64 digits"):
        Want(uri="x", size_bytes=1, digest=digest)


def test_two_names_of_one_image_one_expires_and_the_other_stays(
    pool: ImagePool, add: Add, clock: SetClock
) -> None:
    image = add(A, aliases=("stable",))
    pool.add_alias(Alias("nightly", image.digest, clock.now_s() + 10))
    assert pool.find("nightly") == image
    clock.at_s += 10

    assert pool.find("nightly") is None
    assert pool.find("stable") == image
    assert [alias.name for alias in pool.aliases()] == ["stable"]


def test_alias_of_an_image_that_went_finds_nothing(pool: ImagePool, add: Add) -> None:
    add(A, aliases=("latest",))
    add(b"x" * LIMIT_BYTES)

    assert pool.find("latest") is None
    assert pool.alias("latest") is not None


def test_relative_pool_is_refused() -> None:
    with pytest.raises(BadRequest, match="must be an absolute path"):
        PoolLayout("pool")

    assert PoolLayout("/pool/").root == "/pool"


@pytest.mark.parametrize(("limit_bytes", "policy"), [(0, "lfu"), (-1, "lfu"), (1, "fifo")])
def test_settings_that_make_no_sense_are_refused(limit_bytes: int, policy: str) -> None:
    with pytest.raises(BadRequest, match=r"give a limit above 0|choose one of calendar, largest_first, lfu"):
        PoolSettings(limit_bytes=limit_bytes, policy=policy)


# -- pins ----------------------------------------------------------------------------------


def test_pin_holds_until_its_last_second_and_no_longer(pool: ImagePool, add: Add, clock: SetClock) -> None:
    add(b"x" * LIMIT_BYTES, pin_of("job 1", clock, lease_s=100))
    clock.at_s += 99
    with pytest.raises(NoRoom):
        add(A)
    clock.at_s += 1
    add(A)

    assert [image.digest for image in pool.images()] == [digest_of(A)]


def test_same_owner_pins_again_and_has_one_pin_until_the_later_end(
    pool: ImagePool, add: Add, clock: SetClock
) -> None:
    """A job that was queued again on the same node."""
    image = add(A, pin_of("job 1", clock, lease_s=100))
    pool.pin(image.digest, pin_of("job 1", clock, lease_s=500))

    assert [pin.expires_s for pin in pool.pins(image.digest)] == [clock.now_s() + 500]
    assert pool.unpin(image.digest, "job 1")
    assert not pool.unpin(image.digest, "job 1")
    assert pool.pins(image.digest) == []


def test_order_that_comes_late_does_not_shorten_a_lease(pool: ImagePool, add: Add, clock: SetClock) -> None:
    """It was under way while the lease was renewed, or is carried out a second time."""
    late = pin_of("reservation 1", clock, lease_s=100)
    image = add(A, late)
    pool.pin(image.digest, pin_of("reservation 1", clock, lease_s=500))
    pool.pin(image.digest, late)
    pool.want(Want(uri=image.uri, size_bytes=image.size_bytes, digest=image.digest), late)

    assert [pin.expires_s for pin in pool.pins(image.digest)] == [clock.now_s() + 500]


def test_order_that_comes_late_does_not_shorten_the_lease_of_what_arrives(
    pool: ImagePool, clock: SetClock
) -> None:
    want = Want(uri="http://a/b", size_bytes=len(A), digest=digest_of(A))
    late = pin_of("reservation 1", clock, lease_s=100)
    pool.want(want, late)
    pool.want(want, pin_of("reservation 1", clock, lease_s=500))
    ingest = pool.want(want, late)

    assert isinstance(ingest, Ingest)
    assert [pin.expires_s for pin in read_pins(pool.disk, ingest.folder)] == [clock.now_s() + 500]


def test_expected_use_may_become_shorter(pool: ImagePool, add: Add, clock: SetClock) -> None:
    image = add(A, pin_of("plan 1", clock, lease_s=500, kind="expect"))
    pool.pin(image.digest, pin_of("plan 1", clock, lease_s=100, kind="expect"))

    assert [pin.expires_s for pin in pool.pins(image.digest)] == [clock.now_s() + 100]


def test_one_owner_giving_back_leaves_the_others_pins(pool: ImagePool, add: Add, clock: SetClock) -> None:
    image = add(b"x" * LIMIT_BYTES, pin_of("job 1", clock))
    pool.pin(image.digest, pin_of("job 2", clock))
    pool.unpin(image.digest, "job 1")
    with pytest.raises(NoRoom):
        add(A)

    assert pool.find(image.digest) == image


def test_expected_use_holds_nothing(pool: ImagePool, add: Add, clock: SetClock) -> None:
    add(b"x" * LIMIT_BYTES, pin_of("reservation 1", clock, kind="expect"))
    add(A)

    assert [image.digest for image in pool.images()] == [digest_of(A)]


@pytest.mark.parametrize(
    ("lease_s", "kind", "sentence"),
    [
        (0, "hold", "must expire after now"),
        (-5, "hold", "must expire after now"),
        (LONGEST_LEASE_S + 1, "hold", "within 366 days"),
        (10, "forever", "choose one of hold, expect, instance"),
    ],
)
def test_pin_that_makes_no_sense_reserves_nothing(
    lease_s: int, kind: str, sentence: str, pool: ImagePool, add: Add, clock: SetClock
) -> None:
    with pytest.raises(BadRequest, match=sentence):
        add(A, pin_of("job 1", clock, lease_s, kind))

    assert pool.ingests() == []


def test_pin_on_what_is_not_here_says_so(pool: ImagePool, clock: SetClock) -> None:
    with pytest.raises(NotInPool, match="image ubuntu is not in the pool: add it first"):
        pool.pin("ubuntu", pin_of("job 1", clock))

    assert not pool.unpin("ubuntu", "job 1")


def test_pin_on_what_is_arriving_is_given_back_by_its_address(pool: ImagePool, clock: SetClock) -> None:
    found = pool.want(Want(uri="http://site/x", size_bytes=10), pin_of("job 1", clock))
    assert isinstance(found, Ingest)

    assert pool.unpin("http://site/x", "job 1")
    assert not pool.unpin("http://site/x", "job 1")


# -- what arrives --------------------------------------------------------------------------


def test_one_writes_and_another_one_waits_and_goes_on_where_the_first_one_stopped(pool: ImagePool) -> None:
    want = Want(uri="x", size_bytes=400, digest=digest_of(A))
    first, second = pool.want(want), pool.want(want)
    assert isinstance(first, Ingest)
    assert isinstance(second, Ingest)
    writer = first.writer(InlineHasher())
    assert writer is not None
    assert second.writer(InlineHasher()) is None
    writer.write(A[:100])
    writer.pause()
    assert second.arrived_bytes() == 100
    next_one = second.writer(InlineHasher())
    assert next_one is not None

    assert next_one.offset == 100
    next_one.write(A[100:])
    assert next_one.commit().digest == digest_of(A)
    with pytest.raises(NotInPool, match="not arriving any more"):
        first.writer(InlineHasher())


def test_ingest_is_kept_for_its_pins_and_a_day_then_dropped(pool: ImagePool, clock: SetClock) -> None:
    long_s = 3 * INGEST_LEASE_S
    pool.want(Want(uri="pinned", size_bytes=10), pin_of("job 1", clock, long_s))
    pool.want(Want(uri="unpinned", size_bytes=10))
    clock.at_s += INGEST_LEASE_S
    left = []
    for _ in range(2):
        drop_stale(pool)
        left.append([ingest.image.uri for ingest in pool.ingests()])
        clock.at_s += long_s

    assert left == [["pinned"], []]
    assert pool.index.used_bytes() == 0


def test_cancel_by_one_of_two_owners_keeps_what_is_arriving(pool: ImagePool, clock: SetClock) -> None:
    want = Want(uri="x", size_bytes=10)
    for owner in ("job 1", "job 2"):
        pool.want(want, pin_of(owner, clock))
    cancel(pool, want.key, "job 1")
    assert len(pool.ingests()) == 1
    cancel(pool, want.key, "job 2")

    assert pool.ingests() == []
    with pytest.raises(NotInPool, match="nothing is arriving"):
        cancel(pool, want.key, "job 2")


def test_ingest_that_is_written_is_neither_stale_nor_cancelled(pool: ImagePool, clock: SetClock) -> None:
    want = Want(uri="x", size_bytes=10)
    found = pool.want(want, pin_of("job 1", clock))
    assert isinstance(found, Ingest)
    writer = found.writer(InlineHasher())
    assert writer is not None
    clock.at_s += 10 * INGEST_LEASE_S

    assert drop_stale(pool) == []
    with pytest.raises(InUse, match="being written: cancel its transfer"):
        cancel(pool, want.key, "job 1")
    writer.abandon()
    assert pool.ingests() == []


# -- who may -------------------------------------------------------------------------------


def test_private_image_is_for_its_owner_its_readers_and_root(pool: ImagePool, add: Add) -> None:
    image = add(A, owner_uid=1000, readers=ImageAccess(is_public=False, uids=(1001,), gids=(50,)))
    refused = {}
    for uid, gids in ((1000, ()), (1001, ()), (1002, (50, 51)), (0, ()), (1002, (51,)), (1003, ())):
        try:
            pool.authorise(image.digest, uid, frozenset(gids))
        except NotAllowed as error:
            refused[uid] = str(error).rpartition(": ")[2]

    assert refused == dict.fromkeys((1002, 1003), "ask its owner (uid 1000) for it")
    pool.allow(image, 1003)
    assert pool.authorise(image.digest, 1003).readers.uids == (1001, 1003)


def test_mode_of_the_data_says_who_may_read_them_and_that_nobody_writes(pool: ImagePool, add: Add) -> None:
    public = add(A)
    private = add(B, readers=ImageAccess(is_public=False))
    modes = [stat.S_IMODE(Path(pool.data_path(each.digest)).stat().st_mode) for each in (public, private)]

    assert modes == [0o444, 0o400]


def test_folders_can_be_entered_by_all_and_listed_by_nobody_else(
    root: Path, pool: ImagePool, add: Add
) -> None:
    image = add(A)
    found = {
        path: stat.S_IMODE((root / path).stat().st_mode)
        for path in ("", "images", f"images/{image.digest}", "instances", "ingest", "aliases", "trash")
    }

    assert list(found.values()) == [0o711, 0o711, 0o711, 0o711, 0o700, 0o700, 0o700]
    assert stat.S_IMODE((root / "images" / image.digest / "pins").stat().st_mode) == 0o700


def test_changing_an_image_that_is_gone_says_so(pool: ImagePool, add: Add) -> None:
    image = add(A)
    add(b"x" * LIMIT_BYTES)
    with pytest.raises(NotInPool, match="not in the pool any more"):
        pool.allow(image, 7)

    assert pool.find(image.digest) is None


def test_format_is_told_from_the_first_bytes_and_may_be_refused(pool: ImagePool) -> None:
    def inspect(head: bytes, size_bytes: int) -> str:
        if head.startswith(b"evil"):
            raise BadRequest("this image refers to other files")
        return "qcow2"

    images: list[PoolImage | None] = []
    for content in (b"QFI\xfb" + bytes(10), b"evil"):
        found = pool.want(Want(uri="x", size_bytes=len(content), digest=digest_of(content)))
        assert isinstance(found, Ingest)
        writer = found.writer(InlineHasher())
        assert writer is not None
        writer.write(content)
        try:
            images.append(writer.commit(inspect))
        except BadRequest:
            images.append(None)
            writer.abandon()

    assert images[0] is not None
    assert images[0].format == "qcow2"
    assert images[1] is None
    assert len(pool.images()) == 1
    assert pool.ingests() == []


def test_records_come_back_as_they_were_written(pool: ImagePool, add: Add, clock: SetClock) -> None:
    readers = ImageAccess(is_public=False, uids=(1, 2), gids=(3,))
    image = add(A, readers=readers, owner_uid=5, expires_s=clock.now_s() + 9, format="raw")
    pin = PoolPin(owner="o", kind="expect", uid=7, expires_s=clock.now_s() + 5, from_s=clock.now_s() + 1)
    pool.pin(image.digest, pin)

    assert pool.find(image.digest) == dataclasses.replace(image, readers=readers, owner_uid=5, format="raw")
    assert pool.pins(image.digest) == [pin]


def test_what_a_power_cut_may_have_taken_is_not_said_to_have_arrived(pool: ImagePool) -> None:
    found = pool.want(Want(uri="x", size_bytes=len(A), digest=digest_of(A)))
    assert isinstance(found, Ingest)
    progress = Path(found.folder) / "progress"
    progress.write_text(f"100 300 {pool.disk.boot_id()}\n")
    same_boot = found.arrived_bytes()
    progress.write_text("100 300 another-boot\n")

    assert (same_boot, found.arrived_bytes()) == (300, 100)
