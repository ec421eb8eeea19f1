"""Where the demo cannot have a guest, it says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.demo import guest


def test_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "PROGRAM", f"{tmp_path}/qemu")

    assert guest.provided_guest(tmp_path) == f"there is no {tmp_path}/qemu (apt install qemu-system-x86)"


def test_missing_tools_and_packages_that_cannot_be_had_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(within: Path | None = None) -> None:
        raise AssertionError("apt knows no busybox-static: run apt-get update")

    monkeypatch.setattr(guest, "PROGRAM", "/bin/sh")
    monkeypatch.setattr(guest, "TOOLS", ("sh", "no-such-tool"))
    lacking = guest.provided_guest(tmp_path)
    monkeypatch.setattr(guest, "TOOLS", ("sh",))
    monkeypatch.setattr(guest, "linux_guest", none)
    failed = guest.provided_guest(tmp_path)

    assert lacking == "its guest is made with no-such-tool, which is not here (apt install lz4 cpio)"
    assert str(failed).endswith("cannot be made: apt knows no busybox-static: run apt-get update")
