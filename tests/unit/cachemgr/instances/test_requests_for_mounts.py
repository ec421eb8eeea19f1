"""What root is asked to mount is trusted in nothing: every other request is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, CacheError, NotAllowed, NotInPool
from cachemgr.instances.kernel import MountPoint, parse_table
from cachemgr.instances.mounts import TREE, Mount, carry_out, decode_mounts
from cachemgr.instances.removal import undo

DIGEST, KEY = "a" * 64, "b" * 32
SAFE = ("ro", "nosuid", "nodev")


class Watching:
    """A kernel that mounts nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        self.asked.append((os.path.realpath(source), os.path.realpath(target)))

    def unmount(self, target: str, *, is_lazy: bool) -> None:
        self.asked.append(("", os.path.realpath(target)))

    def attach_loop(self, image_fd: int) -> tuple[str, int]:
        return "/dev/null", os.open("/dev/null", os.O_RDONLY)

    def table(self) -> list[MountPoint]:
        return []


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "pool"
    (root / "images" / DIGEST).mkdir(parents=True)
    (root / "images" / DIGEST / "data").write_bytes(b"image")
    folder = root / "instances" / KEY
    for name in ("root", "lower", "overlay/upper", "overlay/work"):
        (folder / name).mkdir(parents=True)
    (folder / "disk").write_bytes(b"")
    return root


def request(pool: Path, **changes: Any) -> Mount:
    plain: dict[str, Any] = {
        "kind": "bind",
        "source": f"{pool}/images/{DIGEST}/data",
        "target": f"{pool}/instances/{KEY}/disk",
        "options": SAFE,
    }
    return Mount(**{**plain, **changes})


def test_request_that_is_right_reaches_the_kernel(pool: Path) -> None:
    kernel = Watching()
    carry_out([request(pool)], pool=str(pool), mounter=kernel)

    assert kernel.asked[0] == (f"{pool}/images/{DIGEST}/data", f"{pool}/instances/{KEY}/disk")


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "tmpfs"},
        {"kind": "ext4"},
        {"kind": ""},
        {"options": ()},
        {"options": ("ro", "nosuid")},
        {"options": ("nosuid", "nodev")},
        {"options": (*SAFE, "suid")},
        {"options": (*SAFE, "dev")},
        {"options": (*SAFE, "lowerdir=/etc")},
        {"options": ("ro,nosuid,nodev",)},
        {"source": "/etc/shadow"},
        {"source": "{pool}/images/../../etc/shadow"},
        {"source": "{pool}/images/" + DIGEST + "/../../lock"},
        {"source": "{pool}/images/" + DIGEST},
        {"source": "{pool}/images/" + DIGEST.upper() + "/data"},
        {"source": "{pool}/images/" + DIGEST + "/data\n"},
        {"source": "{pool}/instances/" + KEY + "/overlay/upper"},
        {"source": "images/" + DIGEST + "/data"},
        {"source": "{pool}//images/" + DIGEST + "/data"},
        {"target": "/etc/passwd"},
        {"target": "{pool}/instances/" + KEY},
        {"target": "{pool}/instances/" + KEY + "/overlay/work"},
        {"target": "{pool}/instances/" + KEY + "/lower"},
        {"target": "{pool}/instances/../instances/" + KEY + "/disk"},
        {"target": "{pool}/instances/" + KEY + f"/{TREE}/../disk"},
        {"target": "{pool}/images/" + DIGEST + "/data"},
        {"target": "{pool}/instances/" + KEY + "/disk/"},
        {"target": "{pool}x/instances/" + KEY + "/disk"},
        {"kind": "overlay", "options": SAFE},
        {"kind": "overlay", "options": ("nosuid", "nodev"), "target": "{pool}/instances/" + KEY + "/disk"},
        {
            "kind": "overlay",
            "options": ("nosuid", "nodev"),
            "target": "{pool}/instances/" + KEY + f"/{TREE}",
            "source": "{pool}/instances/" + "c" * 32 + "/lower",
        },
    ],
)
def test_any_other_request_is_refused(pool: Path, changes: dict[str, Any]) -> None:
    filled = {
        key: value.replace("{pool}", str(pool)) if isinstance(value, str) else value
        for key, value in changes.items()
    }
    kernel = Watching()
    with pytest.raises(NotAllowed):
        carry_out([request(pool, **filled)], pool=str(pool), mounter=kernel)

    assert kernel.asked == []


def test_site_that_mounts_no_squashfs_refuses_it(pool: Path) -> None:
    mount = request(pool, kind="squashfs", target=f"{pool}/instances/{KEY}/{TREE}")

    with pytest.raises(NotAllowed, match="allowed are bind, overlay"):
        carry_out([mount], pool=str(pool), mounter=Watching(), allowed_kinds=("bind", "overlay"))


def test_one_wrong_request_stops_all_before_the_first(pool: Path) -> None:
    kernel = Watching()
    with pytest.raises(NotAllowed):
        carry_out([request(pool), request(pool, source="/etc/shadow")], pool=str(pool), mounter=kernel)

    assert kernel.asked == []


def replaced_by_link(path: Path, target: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(
    "part",
    [
        "images",
        f"images/{DIGEST}",
        f"images/{DIGEST}/data",
        "instances",
        f"instances/{KEY}",
        f"instances/{KEY}/disk",
    ],
)
def test_link_in_any_place_is_refused(pool: Path, tmp_path: Path, part: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(pool, elsewhere)
    replaced_by_link(pool / part, str(elsewhere / part))
    kernel = Watching()
    with pytest.raises(NotAllowed, match="symbolic link"):
        carry_out([request(pool)], pool=str(pool), mounter=kernel)

    assert kernel.asked == []


def test_pool_behind_a_link_is_refused(pool: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(pool)
    kernel = Watching()
    with pytest.raises(NotAllowed, match="symbolic link"):
        carry_out([request(link)], pool=str(link), mounter=kernel)

    assert kernel.asked == []


@pytest.mark.parametrize("part", ["overlay", "overlay/upper", "overlay/work"])
def test_link_in_place_of_a_writable_folder_is_refused(pool: Path, tmp_path: Path, part: str) -> None:
    image = pool / "images" / DIGEST / "data"
    image.unlink()
    image.mkdir()
    replaced_by_link(pool / "instances" / KEY / part, "/etc")
    mount = request(
        pool, kind="overlay", target=f"{pool}/instances/{KEY}/{TREE}", options=("nosuid", "nodev")
    )
    kernel = Watching()
    with pytest.raises(NotAllowed, match="symbolic link"):
        carry_out([mount], pool=str(pool), mounter=kernel)

    assert kernel.asked == []


def test_name_that_changes_its_meaning_after_the_check_changes_nothing(pool: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    data = pool / "images" / DIGEST / "data"

    class Racing(Watching):
        def mount(self, source: str, target: str, kind: str, flags: int, data_: str) -> None:
            if not self.asked:
                data.rename(pool / "kept")
                data.symlink_to(secret)
            super().mount(source, target, kind, flags, data_)

    kernel = Racing()
    carry_out([request(pool)], pool=str(pool), mounter=kernel)

    assert kernel.asked[0][0] == f"{pool}/kept"


@pytest.mark.parametrize("pool_path", ["relative/pool", "{pool}/", "{pool}/../pool", ""])
def test_pool_must_be_a_plain_absolute_path(pool: Path, pool_path: str) -> None:
    kernel = Watching()
    with pytest.raises(CacheError):
        carry_out([request(pool)], pool=pool_path.replace("{pool}", str(pool)), mounter=kernel)

    assert kernel.asked == []


def test_instance_that_does_not_exist_is_missing(pool: Path) -> None:
    with pytest.raises(NotInPool, match="make the instance first"):
        carry_out(
            [request(pool, target=f"{pool}/instances/{'c' * 32}/disk")], pool=str(pool), mounter=Watching()
        )


def test_too_many_mounts_are_refused(pool: Path) -> None:
    with pytest.raises(BadRequest, match="at most 4"):
        carry_out([request(pool)] * 5, pool=str(pool), mounter=Watching())


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        [None],
        [{}],
        [{"kind": "bind", "source": "/a", "target": "/b"}],
        [{"kind": "bind", "source": "/a", "target": "/b", "options": "ro"}],
        [{"kind": "bind", "source": "/a", "target": "/b", "options": [1]}],
        [{"kind": "bind", "source": "/a", "target": "/b", "options": ["ro"], "more": 1}],
        [{"kind": 1, "source": "/a", "target": "/b", "options": []}],
        [{"kind": "bind", "source": "/" * 5000, "target": "/b", "options": []}],
        [{"kind": "bind", "source": "/a", "target": "/b", "options": []}] * 5,
    ],
)
def test_message_of_another_shape_is_refused(plain: object) -> None:
    with pytest.raises(BadRequest):
        decode_mounts(plain)


@pytest.mark.parametrize(
    "folder", ["/", "{pool}", "{pool}/instances", "{pool}/images", "{pool}/instances/..", "/etc"]
)
def test_undo_accepts_nothing_but_an_instance(pool: Path, folder: str) -> None:
    kernel = Watching()
    with pytest.raises(BadRequest, match="is not an instance"):
        undo(kernel, folder.replace("{pool}", str(pool)), pool=str(pool))

    assert kernel.asked == []


class Endless(Watching):
    """A table of mounts that no unmounting shortens."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__()
        self.paths = paths

    def table(self) -> list[MountPoint]:
        return [MountPoint(number, path, "tmpfs", ()) for number, path in enumerate(self.paths)]


def test_undo_goes_from_the_deepest_outwards_and_ends(pool: Path) -> None:
    folder = f"{pool}/instances/{KEY}"
    os.mkdir(f"{folder}x")
    kernel = Endless([f"{folder}/{TREE}", f"{folder}/lower", f"{folder}x/{TREE}"])
    with pytest.raises(CacheError, match="cannot be unmounted"):
        undo(kernel, folder, pool=str(pool))

    assert [target for _, target in kernel.asked] == [f"{folder}/lower", f"{folder}/{TREE}"] * 3


def test_undo_does_not_begin_what_it_cannot_end(pool: Path) -> None:
    folder = f"{pool}/instances/{KEY}"
    kernel = Endless([f"{folder}/{TREE}"] * 257)
    with pytest.raises(CacheError, match="257 mounts"):
        undo(kernel, folder, pool=str(pool))

    assert kernel.asked == []


def test_table_of_mounts_is_read_with_its_escapes() -> None:
    text = (
        "22 1 0:21 / /proc rw,relatime shared:5 - proc proc rw\n"
        "36 35 98:0 /mnt1 /mnt2/a\\040b\\011c\\012d\\134e rw,noatime - ext3 /dev/sda rw,errors=continue\n"
        "37 35 0:45 / /\u00e4 ro,nosuid - overlay overlay ro,lowerdir=/a - b\n"
    )

    assert parse_table(text) == [
        MountPoint(22, "/proc", "proc", ("rw", "relatime")),
        MountPoint(36, "/mnt2/a b\tc\nd\\e", "ext3", ("rw", "noatime")),
        MountPoint(37, "/\u00e4", "overlay", ("ro", "nosuid")),
    ]


def test_table_of_this_machine_has_its_root(as_root: None, site_on: Callable[[str], Any]) -> None:
    site = site_on("xfs")

    assert any(each.path == "/" for each in site.kernel.table())
