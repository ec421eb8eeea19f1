"""What people and other programs leave in a pool's folders hinders nobody."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, InUse, NoRoom, NotAllowed, NotInPool, PoolDamaged
from cachemgr.pool.check import check
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import drop_stale
from cachemgr.pool.instance_book import make_instance, remove_instances
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool
from tests.simulation.crash.world import CopyingMaker, SetClock, digest_of
from tests.unit.cachemgr.pool.conftest import LIMIT_BYTES, Add, pin_of

A, B = b"a" * 400, b"b" * 400
SETTINGS = PoolSettings(limit_bytes=LIMIT_BYTES, policy="lru")


def plant_strangers(folder: Path) -> None:
    (folder / "lost+found").mkdir()
    (folder / "notes.txt").write_text("do not delete")
    (folder / "ä\n'; rm").write_text("odd")
    (folder / "link").symlink_to("/etc/hostname")
    (folder / "nowhere").symlink_to("/no/such/file")


@pytest.mark.parametrize("place", ["images", "ingest", "aliases", "instances"])
def test_strangers_in_a_folder_change_nothing_and_stay(
    place: str, root: Path, pool: ImagePool, add: Add
) -> None:
    plant_strangers(root / place)
    image = add(A, aliases=("latest",))
    (root / "lock").write_text("busy")
    drop_stale(pool)
    with pool.changing("looking again"):
        used_bytes = pool.index.used_bytes()

    assert used_bytes == 400
    assert pool.images() == [image]
    assert [alias.name for alias in pool.aliases()] == ["latest"]
    assert pool.ingests() == []
    assert (root / place / "notes.txt").read_text() == "do not delete"


def test_check_reports_strangers_and_removes_none(root: Path, pool: ImagePool, add: Add) -> None:
    for place in ("images", "ingest", "aliases", "instances"):
        plant_strangers(root / place)
    add(A)
    maker = CopyingMaker(RealDisk())  # type: ignore[arg-type]
    found = check(pool, maker, fix=True)
    strangers = {finding.path for finding in found if finding.what == "not of this pool"}

    for place in ("images", "ingest", "aliases", "instances"):
        assert sorted(os.listdir(root / place))[-1] == "ä\n'; rm"
        assert (root / place / "notes.txt").read_text() == "do not delete"
        assert str(root / place / "notes.txt") in strangers


class GuardedDisk(RealDisk):
    """Keeps the record of one image from whoever looks, as if root had copied it there."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def read(self, path: str, most: int) -> bytes:
        if path == self._path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().read(path, most)


def test_image_of_another_user_keeps_nothing_else_from_being_checked(root: Path, clock: SetClock) -> None:
    record = root / "images" / ("0" * 64) / "image.json"
    record.parent.mkdir()
    torn = root / "aliases" / ("0" * 64 + ".json")
    torn.write_text("{")
    disk = GuardedDisk(record)
    pool = ImagePool(disk, str(root), clock, SqliteIndex(str(root / "index.sqlite")))
    with closing(pool):
        found = check(pool, CopyingMaker(disk), fix=True)  # type: ignore[arg-type]

    assert (str(torn), True) in [(each.path, each.is_fixed) for each in found]
    guarded = [each for each in found if each.path == str(record)]
    assert guarded
    assert all("chown" in each.remedy and not each.is_fixed for each in guarded)


class RootsOwn(CopyingMaker):
    """Cannot remove what a job's user left in its instance."""

    def remove(self, folder: str) -> None:
        raise NotAllowed(f"{folder} holds what belongs to the job's user: root has to remove it")


def test_instance_that_only_root_can_remove_keeps_nothing_else_from_being_mended(
    root: Path, pool: ImagePool
) -> None:
    stuck = root / "instances" / ("0" * 32)
    stuck.mkdir()
    torn = root / "aliases" / ("0" * 64 + ".json")
    torn.write_text("{")
    found = check(pool, RootsOwn(RealDisk()), fix=True)  # type: ignore[arg-type]

    assert [(each.path, each.is_fixed) for each in found] == [
        (str(stuck), False),
        (str(torn), True),
    ]
    assert "root has to remove it" in found[0].remedy
    assert not torn.exists()


def test_whatever_is_in_the_trash_is_swept_but_nothing_that_it_points_to(root: Path, pool: ImagePool) -> None:
    plant_strangers(root / "trash")
    (root / "trash" / "deep" / "er").mkdir(parents=True)
    (root / "trash" / "out").symlink_to(root / "images")
    (root / "lock").write_text("busy")
    with pool.changing("looking again"):
        pass

    assert os.listdir(root / "trash") == []
    assert (root / "images").is_dir()


def test_init_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(BadRequest, match=r"is not empty \(it holds 'thesis.tex'\): choose another folder"):
        ImagePool.create(RealDisk(), str(tmp_path), SETTINGS)

    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_init_takes_a_fresh_file_system(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    ImagePool.create(RealDisk(), str(tmp_path), SETTINGS)

    assert (tmp_path / "pool.json").exists()


def test_init_again_changes_the_settings_and_keeps_what_is_there(
    root: Path, pool: ImagePool, add: Add
) -> None:
    image = add(A)
    ImagePool.create(RealDisk(), str(root), PoolSettings(limit_bytes=2000, policy="lfu"))
    again = ImagePool(RealDisk(), str(root), pool.clock, pool.index)

    assert (again.settings.limit_bytes, again.settings.policy) == (2000, "lfu")
    assert again.images() == [image]


def test_settings_that_were_lost_can_be_made_again(
    root: Path, add: Add, open_pool: Callable[[], ImagePool]
) -> None:
    image = add(A)
    (root / "pool.json").unlink()
    with pytest.raises(NotInPool, match="is not a pool: make one with `cachemgr --pool"):
        open_pool()
    ImagePool.create(RealDisk(), str(root), SETTINGS)

    assert open_pool().images() == [image]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "torn or was edited by hand: write it again with `cachemgr init --limit"),
        ("[]", "has no version: write it again with `cachemgr init --limit"),
        ('{"version":1}', "does not describe a pool"),
        ('{"version":1,"format":"outrider-pool"}', "lacks 'limit_bytes'"),
        ('{"version":99,"format":"outrider-pool"}', "written by a newer cachemgr"),
    ],
)
def test_settings_that_cannot_be_read_say_so(
    text: str, sentence: str, root: Path, open_pool: Callable[[], ImagePool]
) -> None:
    (root / "pool.json").write_text(text)
    with pytest.raises(PoolDamaged, match=sentence):
        open_pool()


def test_damaged_record_spoils_no_list_and_its_bytes_count(root: Path, pool: ImagePool, add: Add) -> None:
    add(A)
    image = add(B)
    (root / "images" / digest_of(A) / "image.json").write_text("{")
    (root / "lock").write_text("busy")
    with pool.changing("looking again"):
        used_bytes = pool.index.used_bytes()

    assert pool.images() == [image]
    assert used_bytes == 800
    with pytest.raises(PoolDamaged, match="check --fix"):
        pool.find(digest_of(A))


def test_record_of_another_digest_stops_no_change(root: Path, pool: ImagePool, add: Add) -> None:
    add(A)
    add(B)
    other = (root / "images" / digest_of(B) / "image.json").read_text()
    (root / "images" / digest_of(A) / "image.json").write_text(other)
    (root / "lock").write_text("busy")
    with pool.changing("looking again"):
        pass

    assert pool.index.used_bytes() == 800
    assert [entry.key for entry in pool.index.entries()] == [digest_of(B)]


def test_image_whose_folder_somebody_keeps_locked_is_passed_over(
    pool: ImagePool, add: Add, clock: SetClock
) -> None:
    add(A)
    clock.at_s += 10
    add(B)
    lock = pool.disk.lock(pool.layout.image(digest_of(A)), is_shared=True, waits=False)
    assert lock is not None
    add(b"c" * 300)

    assert pool.find(digest_of(A)) is not None
    assert pool.find(digest_of(B)) is None
    lock.release()


def test_no_room_but_what_is_being_pinned_is_busy_and_not_an_endless_try(pool: ImagePool, add: Add) -> None:
    add(A)
    lock = pool.disk.lock(pool.layout.image(digest_of(A)), is_shared=True, waits=False)
    assert lock is not None
    with pytest.raises(InUse, match="being pinned"):
        add(b"c" * 700)

    assert pool.find(digest_of(A)) is not None
    lock.release()


def test_refusal_for_lack_of_room_evicts_nothing_and_says_what_holds_it(
    pool: ImagePool, add: Add, clock: SetClock
) -> None:
    add(A, pin_of("job 1", clock))
    add(B)
    with pytest.raises(NoRoom, match="400 B are held by pins and 0 B are arriving"):
        add(b"c" * 601)

    assert len(pool.images()) == 2


def test_instance_of_a_pool_that_was_moved_is_not_handed_out_at_its_old_path(
    root: Path, pool: ImagePool, add: Add, clock: SetClock
) -> None:
    image = add(A)
    maker = CopyingMaker(RealDisk())  # type: ignore[arg-type]
    until_s = clock.now_s() + 100
    make_instance(pool, maker, image, owner="job", uid=0, until_s=until_s)
    pool.close()
    new = root.rename(root.with_name("elsewhere"))
    with closing(ImagePool(RealDisk(), str(new), clock, SqliteIndex(str(new / "index.sqlite")))) as moved:
        with pytest.raises(InUse, match="before the pool was moved: release it first"):
            make_instance(moved, maker, image, owner="job", uid=0, until_s=until_s)
        assert remove_instances(moved, maker, "job") == 1
        again = make_instance(moved, maker, image, owner="job", uid=0, until_s=until_s)

    assert again.path == f"{new}/instances/{again.key}/disk"


def test_instance_is_the_same_through_a_link_to_the_pool(
    root: Path, pool: ImagePool, add: Add, clock: SetClock
) -> None:
    image = add(A)
    maker = CopyingMaker(RealDisk())  # type: ignore[arg-type]
    until_s = clock.now_s() + 100
    made = make_instance(pool, maker, image, owner="job", uid=0, until_s=until_s)
    link = root.with_name("link")
    link.symlink_to(root)
    with closing(ImagePool(RealDisk(), str(link), clock, SqliteIndex(str(link / "index.sqlite")))) as linked:
        assert make_instance(linked, maker, image, owner="job", uid=0, until_s=until_s) == made
