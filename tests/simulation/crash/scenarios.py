"""What the crash kit interrupts: one small story of a pool each.

`prepare` runs undisturbed; `act` is interrupted at each of its steps, and runs again after
the recovery, so it has to cope with having been there before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from cachemgr.base.errors import NeverFits, NotInPool, WrongBytes
from cachemgr.pool import check, ingest, instance_book, room
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.pool import INGEST_LEASE_S
from cachemgr.pool.records import Alias, ImageAccess, PoolImage
from tests.simulation.crash.memorynodes import File, Folder
from tests.simulation.crash.world import LEASE_S, ROOT, World, digest_of, fill, try_wrong_bytes

# A pool of 100 bytes holds A and B, but not C besides either.
A, B, C = b"alma" * 10, b"bookworm" * 5, b"centos" * 15
SMALL = b"tiny"
SITE = "http://site/latest"
PRIVATE = ImageAccess(is_public=False, uids=(1001,))


@dataclass(frozen=True)
class Scenario:
    name: str
    prepare: Callable[[World], object]
    act: Callable[[World], object]
    # Whether wrong bytes are there from the beginning, which no recovery notices by itself.
    is_damaged: bool = False


def made(world: World) -> None:
    world.create()


def with_a(world: World) -> None:
    world.create()
    world.add(A, owner="keeper", uri="http://site/a")


def with_a_and_b(world: World) -> None:
    world.create()
    world.add(A, uri="http://site/a")
    world.pass_time(10)
    world.add(B, uri="http://site/b")
    world.pass_time(10)


# -- making and adding ---------------------------------------------------------------------


def init(world: World) -> None:
    world.create()


def add_known(world: World) -> None:
    world.add(A, owner="job 1", readers=PRIVATE)


def add_unknown(world: World) -> None:
    world.add(A, owner="job 1", uri=SITE, is_known=False)


def add_nothing(world: World) -> None:
    """An image of no bytes at all."""
    world.add(b"", owner="job 1")


def add_moving_the_name(world: World) -> None:
    """`latest` stood for A and stands for B from now on; A stays."""
    world.add(B, owner="job 1", uri=SITE, is_known=False, aliases=(SITE, "latest"))


def with_latest(world: World) -> None:
    world.create()
    world.add(A, owner="keeper", uri="http://site/a", aliases=("latest",))


def half_arrived(world: World) -> None:
    world.create()
    begin_half(world)


def begin_half(world: World) -> None:
    found = world.begin(A, owner="job 1")
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            if writer.offset < 20:
                writer.write(A[writer.offset : 20])
                writer.checkpoint()
                writer.write(A[20:30])
                writer.pause()
    world.forget_process()


def half_arrived_and_power_lost(world: World) -> None:
    half_arrived(world)
    world.after_power_loss("all", "zeros")


def resume(world: World) -> None:
    world.add(A, owner="job 1")


def pause_and_resume(world: World) -> None:
    begin_half(world)
    resume(world)


def wrong_digest(world: World) -> None:
    """What comes is not what was promised; given up, then delivered right."""
    found = world.begin(A)
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            try_wrong_bytes(writer, A)
            writer.restart()
            fill(writer, A)
            world.commit(writer, A)


def wrong_digest_given_up(world: World) -> None:
    found = world.begin(A)
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            try_wrong_bytes(writer, A)
            writer.abandon()
    assert world.pool.find(digest_of(A)) is None
    world.promises.gone.add(digest_of(A))


def wrong_size(world: World) -> None:
    """More than was promised, then less: neither gets in."""
    found = world.begin(A)
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            expect(WrongBytes, lambda: writer.write(A + A))
            writer.restart()
            writer.write(A[:-1])
            expect(WrongBytes, writer.commit)
            writer.abandon()
    world.promises.gone.add(digest_of(A))


def too_large(world: World) -> None:
    expect(NeverFits, lambda: world.begin(A * 3))


def abandon_another_owners(world: World) -> None:
    """The writer gives up although somebody joined: the joiner is told by its absence."""
    found = world.begin(B)
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            writer.write(B[:10])
            writer.abandon()
    assert world.pool.ingest(digest_of(B)) is None


def join(world: World) -> None:
    """A second process wants what the first one is writing."""
    found = world.begin(A, owner="first")
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            writer.write(A[writer.offset : 10])
            world.begin(A, owner="second", pool=world.another_process(), aliases=("other",))
            fill(writer, A)
            world.commit(writer, A)
    assert isinstance(world.begin(A, owner="second", aliases=("other",)), PoolImage)


def merge(world: World) -> None:
    """What comes from an address without a digest turns out to be here already."""
    world.add(A, owner="job 1", uri=SITE, is_known=False, aliases=(SITE,))


def merge_of_two(world: World) -> None:
    """Two addresses of one content arrive at the same time; both want the same name."""
    first = world.begin(SMALL, owner="job 1", uri=SITE, is_known=False, aliases=("latest",))
    names = ("latest", "mirror")
    world.add(SMALL, owner="job 1", uri="http://mirror/", is_known=False, aliases=names)
    if isinstance(first, Ingest) and first.is_there():
        with world.writing(first) as writer:
            fill(writer, SMALL)
            world.commit(writer, SMALL, ("latest",))


def with_source(world: World) -> None:
    world.create()
    world.disk.make_folder("/source", 0o755)
    handle = world.disk.create("/source/a.img", 0o644)
    handle.write_at(0, A)
    handle.sync()
    world.disk.sync_folder("/source")
    world.disk.sync_folder("/")


def adopt(world: World) -> None:
    found = world.begin(A, owner="job 1")
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            writer.adopt("/source/a.img")
            world.commit(writer, A)


def adopt_then_write(world: World) -> None:
    """The source is another file than was promised; the right bytes come another way."""
    found = world.begin(B, owner="job 1")
    if isinstance(found, Ingest):
        with world.writing(found) as writer:
            if writer.offset < len(B):
                writer.adopt("/source/a.img")
                expect(WrongBytes, writer.commit)
                writer.restart()
            fill(writer, B)
            world.commit(writer, B)


# -- room ----------------------------------------------------------------------------------


def evict_two(world: World) -> None:
    """C takes the room of A and B."""
    world.gives_up(A, B)
    world.add(C, owner="job 1")


def with_the_older_one_pinned(world: World) -> None:
    world.create()
    world.add(A, owner="keeper", uri="http://site/a")
    world.pass_time(10)
    world.add(B, uri="http://site/b")


def evict_around_a_pin(world: World) -> None:
    """Room for 50 bytes: A would be the first to go, but it is pinned."""
    world.gives_up(B)
    world.add(C[:50], owner="job 1")


def evict_by_hand(world: World) -> None:
    world.gives_up(A)
    with world.pool.changing("evicting"):
        room.evict(world.pool, digest_of(A))
    world.promises.gone.add(digest_of(A))


def with_expiring(world: World) -> None:
    world.create()
    world.add(A, owner="keeper", uri="http://site/a")
    image = world.add(B, uri="http://site/b")
    world.pool.change_image(dataclasses.replace(image, expires_s=world.clock.now_s() + 5))
    world.pass_time(10)


def evict_expired(world: World) -> None:
    world.gives_up(B)
    with world.pool.changing("evicting what expired"):
        room.evict_expired(world.pool)
    world.promises.gone.add(digest_of(B))


# -- pins, names, readers ------------------------------------------------------------------


def pin_and_unpin(world: World) -> None:
    """A weak pin first, not durable; then a lease beside it, and the first one's end."""
    pool, digest = world.pool, digest_of(A)
    pool.pin(digest, world.pin("instance"), is_durable=False)
    world.promises.unpinned.discard((digest, "job 1"))
    pin = world.pin("job 1")
    pool.pin(digest, pin)
    world.promises.pins[digest, "job 1"] = pin.expires_s
    world.unpin(A, "instance")
    pool.use(digest)


def pins_expire(world: World) -> None:
    """What was pinned goes as soon as the time is over, without anybody's doing."""
    if world.pool.find(digest_of(A)) is not None:
        pin_and_unpin(world)
    world.pass_time(2 * LEASE_S)
    world.gives_up(A, B)
    world.add(C)


def name_and_rename(world: World) -> None:
    """A name gets another meaning, and one ends."""
    a, b = digest_of(A), digest_of(B)
    for digest in (a, b):
        world.promises.aliases.setdefault("latest", {None}).add(digest)
        world.pool.add_alias(Alias("latest", digest))
        world.promises.aliases["latest"] = {digest}
    world.promises.aliases["passing"] = {None, a}
    world.pool.add_alias(Alias("passing", a))
    world.pool.remove_alias("passing")
    world.promises.aliases["passing"] = {None}


def with_private(world: World) -> None:
    world.create()
    world.add(A, owner="keeper", readers=PRIVATE)


def change_readers(world: World) -> None:
    image = world.pool.find(digest_of(A))
    assert image is not None
    world.promises.readers.pop(digest_of(A), None)
    changed = world.pool.allow(image, 1002)
    world.promises.readers[digest_of(A)] = changed.readers


def publish(world: World) -> None:
    image = world.pool.find(digest_of(A))
    assert image is not None
    world.promises.readers.pop(digest_of(A), None)
    world.promises.in_flux.add(digest_of(A))
    world.pool.change_image(dataclasses.replace(image, readers=ImageAccess()))
    world.promises.readers[digest_of(A)] = ImageAccess()
    world.promises.in_flux.discard(digest_of(A))


# -- what is left over ---------------------------------------------------------------------


def with_leftovers(world: World) -> None:
    """A busy marker, a half deleted image and a half made ingest."""
    with_a(world)
    disk = world.disk
    disk.make_folder(f"{ROOT}/trash/image-{digest_of(B)}", 0o711)
    disk.create(f"{ROOT}/trash/image-{digest_of(B)}/data", 0o400).close()
    disk.make_folder(f"{ROOT}/trash/new-{digest_of(B)}", 0o711)
    disk.create(f"{ROOT}/trash/new-{digest_of(B)}/data", 0o600).close()
    lock = disk.node_at(f"{ROOT}/lock")
    assert isinstance(lock, File)
    lock.content[:] = b"busy"


def rescan(world: World) -> None:
    with world.pool.changing("looking"):
        pass
    trash = world.disk.node_at(f"{ROOT}/trash")
    assert isinstance(trash, Folder)
    assert trash.entries == {}


def abandoned_long_ago(world: World) -> None:
    half_arrived(world)
    world.pass_time(2 * INGEST_LEASE_S)


def drop_stale(world: World) -> None:
    ingest.drop_stale(world.pool)
    assert world.pool.ingests() == []


def cancel(world: World) -> None:
    world.promises.pins.clear()
    try:
        ingest.cancel(world.pool, digest_of(A), "job 1")
    except NotInPool:
        assert world.pool.ingests() == []


# -- instances and check --------------------------------------------------------------------


def make_instance(world: World) -> None:
    """A full copy: its bytes count, and its image stays while it is there."""
    image = world.pool.find(digest_of(A))
    assert image is not None
    made = instance_book.make_instance(
        world.pool,
        world.maker,
        image,
        owner="job 1",
        uid=1000,
        until_s=world.clock.now_s() + LEASE_S,
    )
    world.promises.pins[image.digest, made.pin_owner] = made.expires_s
    world.promises.instances.add(made.key)
    copy = world.disk.node_at(made.path)
    assert isinstance(copy, File)
    assert bytes(copy.content) == A


def with_instance(world: World) -> None:
    with_a(world)
    make_instance(world)


def remove_instance(world: World) -> None:
    key = instance_book.key_of("job 1", "")
    world.promises.instances.clear()
    world.promises.pins.pop((digest_of(A), f"instance:{key}"), None)
    instance_book.remove_instances(world.pool, world.maker, "job 1")
    assert instance_book.instances(world.pool) == []


def make_and_remove(world: World) -> None:
    make_instance(world)
    remove_instance(world)


def with_damage(world: World) -> None:
    """Whatever `check` mends: leftovers, a torn record, bytes that rotted."""
    with_leftovers(world)
    world.add(B, uri="http://site/b")
    world.add(SMALL, uri="http://site/tiny")
    world.gives_up(B, SMALL)
    rotten = world.disk.node_at(world.pool.data_path(digest_of(B)))
    torn = world.disk.node_at(f"{ROOT}/images/{digest_of(SMALL)}/image.json")
    for node in (rotten, torn):
        assert isinstance(node, File)
        node.content[3:6] = b"!!!"
        node.durable = bytes(node.content)


def check_and_fix(world: World) -> None:
    check.check(world.pool, world.maker, fix=True)
    check.check_contents(world.pool, fix=True)
    assert world.pool.find(digest_of(B)) is None
    assert world.pool.find(digest_of(SMALL)) is None


def expect(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


SCENARIOS = (
    Scenario("init", lambda world: None, init),
    Scenario("init again", made, init),
    Scenario("add by digest", made, add_known),
    Scenario("add by address", made, add_unknown),
    Scenario("add no bytes", made, add_nothing),
    Scenario("add and move a name", with_latest, add_moving_the_name),
    Scenario("resume", half_arrived, resume),
    Scenario("resume after a power cut", half_arrived_and_power_lost, resume),
    Scenario("pause and resume", made, pause_and_resume),
    Scenario("wrong digest, then right", made, wrong_digest),
    Scenario("wrong digest, given up", made, wrong_digest_given_up),
    Scenario("wrong size", made, wrong_size),
    Scenario("too large", with_a, too_large),
    Scenario("abandon", with_a, abandon_another_owners),
    Scenario("join", made, join),
    Scenario("merge", with_a, merge),
    Scenario("merge of two", made, merge_of_two),
    Scenario("adopt", with_source, adopt),
    Scenario("adopt the wrong file", with_source, adopt_then_write),
    Scenario("evict two", with_a_and_b, evict_two),
    Scenario("evict around a pin", with_the_older_one_pinned, evict_around_a_pin),
    Scenario("evict by hand", with_a_and_b, evict_by_hand),
    Scenario("evict what expired", with_expiring, evict_expired),
    Scenario("pin and unpin", with_a, pin_and_unpin),
    Scenario("pins expire", with_a_and_b, pins_expire),
    Scenario("names", with_a_and_b, name_and_rename),
    Scenario("one more reader", with_private, change_readers),
    Scenario("publish", with_private, publish),
    Scenario("rescan", with_leftovers, rescan),
    Scenario("drop what is stale", abandoned_long_ago, drop_stale),
    Scenario("cancel", half_arrived, cancel),
    Scenario("make an instance", with_a, make_instance),
    Scenario("remove an instance", with_instance, remove_instance),
    Scenario("make and remove", with_a, make_and_remove),
    Scenario("check and fix", with_damage, check_and_fix, is_damaged=True),
)
