"""Images in files of the head node: read with their user's rights, and no others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.images.opening import OpenAs, open_by_program, open_by_walk
from outrider.service.ports import FoundImage, ImageTrouble
from tests.daemons.node.daemons import needs_root

ALICE, BOB, GROUP = 61001, 61002, 61900
CONTENT = b"an image"
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
FOUND = FoundImage(size_bytes=len(CONTENT), digest=DIGEST, format="file")

Put = Callable[..., Path]
Ask = Callable[[str, str, bool, int, tuple[int, ...]], FoundImage]
MakeResolver = Callable[..., Ask]


@pytest.fixture(params=["program", "walk"])
def open_as(request: pytest.FixtureRequest) -> OpenAs:
    """Both ways, as a root service; the walk judges by modes whoever it is run by."""
    needs_root()
    ways: dict[str, OpenAs] = {"program": open_by_program, "walk": open_by_walk}
    return ways[str(request.param)]


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_file_that_everybody_may_read_is_found_by_its_content(
    put: Put, resolver: MakeResolver, open_as: OpenAs, form: str
) -> None:
    uri = form.format(put())

    assert resolver(open_as)(uri, "", False, ALICE, ()) == FOUND
    assert resolver(open_as)(uri, DIGEST, False, ALICE, ()) == FOUND


def test_another_digest_than_the_files_is_refused_with_both(
    put: Put, resolver: MakeResolver, open_as: OpenAs
) -> None:
    other = f"sha256:{'0' * 64}"

    with pytest.raises(ImageTrouble, match=f"has the digest {DIGEST}, not {other}: correct"):
        resolver(open_as)(str(put()), other, False, ALICE, ())


def test_private_file_is_for_those_who_may_read_it(put: Put, resolver: MakeResolver, open_as: OpenAs) -> None:
    path = str(put(mode=0o600, uid=ALICE))

    assert resolver(open_as)(path, "", True, ALICE, ()) == FOUND
    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(path, "", True, BOB, ())
    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(path, DIGEST, False, BOB, ())


def test_group_of_a_file_may_read_it_and_others_may_not(
    put: Put, resolver: MakeResolver, open_as: OpenAs
) -> None:
    path = put(mode=0o640)
    os.chown(path, ALICE, GROUP)

    assert resolver(open_as)(str(path), "", True, BOB, (BOB, GROUP)) == FOUND
    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(str(path), "", True, BOB, (BOB,))


def test_owner_who_may_not_read_is_refused_though_others_may(
    put: Put, resolver: MakeResolver, open_as: OpenAs
) -> None:
    path = str(put(mode=0o044, uid=ALICE))

    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(path, "", True, ALICE, (ALICE,))


@pytest.mark.parametrize("how", ["file", "folder"])
def test_image_that_others_cannot_read_has_to_be_called_private(
    put: Put, resolver: MakeResolver, open_as: OpenAs, how: str
) -> None:
    path = put("home/image", mode=0o640 if how == "file" else 0o644, uid=ALICE)
    if how == "folder":
        path.parent.chmod(0o700)
        os.chown(path.parent, ALICE, ALICE)

    with pytest.raises(ImageTrouble, match="write `private: true`"):
        resolver(open_as)(str(path), "", False, ALICE, ())
    assert resolver(open_as)(str(path), "", True, ALICE, ()) == FOUND


def test_file_of_nobody_is_not_everybodys(put: Put, resolver: MakeResolver, open_as: OpenAs) -> None:
    path = str(put(mode=0o600, uid=65534))

    with pytest.raises(ImageTrouble, match="write `private: true`"):
        resolver(open_as)(path, "", False, 65534, ())


def test_folder_that_the_user_cannot_enter_hides_its_files(
    put: Put, resolver: MakeResolver, open_as: OpenAs
) -> None:
    path = put("home/image", mode=0o644)
    path.parent.chmod(0o700)

    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(str(path), "", True, ALICE, ())


def test_symbolic_link_lends_no_rights(
    put: Put, folder: Path, resolver: MakeResolver, open_as: OpenAs
) -> None:
    path = put(mode=0o600)
    link = folder / "link"
    link.symlink_to(path)

    with pytest.raises(ImageTrouble, match="you cannot read the image"):
        resolver(open_as)(str(link), "", True, ALICE, ())
    path.chmod(0o644)
    assert resolver(open_as)(str(link), "", False, ALICE, ()) == FOUND


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/self/mem", "/proc/1/environ"])
def test_insides_of_the_service_are_no_images(resolver: MakeResolver, path: str) -> None:
    needs_root()

    with pytest.raises(ImageTrouble):
        resolver(open_by_program)(path, "", True, ALICE, ())


def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    folder: Path, resolver: MakeResolver, open_as: OpenAs
) -> None:
    os.mkfifo(folder / "pipe", 0o644)
    (folder / "pipe").chmod(0o644)

    for path in (folder / "pipe", folder, Path("/dev/zero")):
        with pytest.raises(ImageTrouble, match="not a regular file"):
            resolver(open_as)(str(path), "", True, ALICE, ())


def test_missing_empty_and_oversized_files_are_refused(
    put: Put, folder: Path, resolver: MakeResolver, open_as: OpenAs
) -> None:
    huge = put("huge")
    os.truncate(huge, (1 << 30) + 1)

    with pytest.raises(ImageTrouble, match="No such file"):
        resolver(open_as)(str(folder / "none"), "", False, ALICE, ())
    with pytest.raises(ImageTrouble, match="is empty"):
        resolver(open_as)(str(put("empty", b"")), "", False, ALICE, ())
    with pytest.raises(ImageTrouble, match=r"at most 1\.0 GiB are staged here"):
        resolver(open_as)(str(huge), "", False, ALICE, ())


def test_image_that_a_pool_would_refuse_is_refused_at_once(put: Put, resolver: MakeResolver) -> None:
    trap = b"QFI\xfb" + (9).to_bytes(4, "big") + bytes(200)

    with pytest.raises(ImageTrouble, match="cannot be staged: the qcow2 image has version 9"):
        resolver()(str(put("trap.qcow2", trap)), "", False, os.geteuid(), ())


def test_file_is_opened_for_a_user_without_leaving_processes(put: Put) -> None:
    needs_root()
    before = children()
    file = open_by_program(str(put(mode=0o600, uid=ALICE)), ALICE, ())
    found = os.pread(file, 100, 0)
    os.close(file)

    assert found == CONTENT
    assert children() == before


def test_program_that_does_not_answer_is_told(put: Put, folder: Path) -> None:
    needs_root()
    with pytest.raises(ImageTrouble, match="cannot be run"):
        open_by_program(str(put()), ALICE, (), python=str(folder / "python"))
    with pytest.raises(ImageTrouble, match="could not be opened for you"):
        open_by_program(str(put()), ALICE, (), python="/bin/false")


def test_opening_that_hangs_is_given_up(put: Put, folder: Path) -> None:
    needs_root()
    slow = folder / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    before, begin_s = children(), SystemClock().monotonic_s()

    with pytest.raises(ImageTrouble, match=r"could not be opened within 0\.2 s"):
        open_by_program(str(put()), ALICE, (), python=str(slow), timeout_s=0.2)
    assert SystemClock().monotonic_s() - begin_s < 5
    assert children() == before


def children() -> set[str]:
    """The processes that this thread has started, and which are not buried."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
