"""Which accelerator is chosen, and that it is said why; the test boot is the program whose source is told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import Unsuitable
from cachemgr.machines.qemu import accelerator
from cachemgr.machines.qemu.accelerator import ProbedBoots, find_facts, qemu_version

NOT_THERE = "there is no /dev/kvm"


@pytest.mark.parametrize(
    ("boots", "chosen", "words"),
    [
        (ProbedBoots(400, 80), "kvm", "80 ms with KVM and 400 ms without"),
        (ProbedBoots(400, 400), "tcg", "400 ms with KVM and 400 ms without"),
        (ProbedBoots(400, 10_000), "tcg", "10000 ms with KVM and 400 ms without"),
        (ProbedBoots(400, None), "tcg", "failed, or took over twice as long as the 400 ms"),
        (ProbedBoots(400, None, NOT_THERE), "tcg", NOT_THERE),
    ],
)
def test_faster_boot_decides(boots: ProbedBoots, chosen: str, words: str) -> None:
    assert boots.choice()[0] == chosen
    assert words in boots.choice()[1]


def test_boot_sector_is_the_program_that_is_told(tmp_path: Path) -> None:
    for tool in ("/usr/bin/as", "/usr/bin/ld"):
        if not os.path.exists(tool) and "CI" not in os.environ:
            pytest.skip(f"needs {tool}: make tools")
    (tmp_path / "probe.S").write_text(accelerator.PROBE_SOURCE)
    run = ["as", "--32", "probe.S", "-o", "probe.o"]
    subprocess.run(run, cwd=tmp_path, check=True, timeout=240)
    run = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "probe.o", "-o", "probe"]
    subprocess.run(run, cwd=tmp_path, check=True, timeout=240)

    assert (tmp_path / "probe").read_bytes() == accelerator.BOOT_SECTOR


class FakeQemu:
    """A program that says a version and remembers that it was asked."""

    def __init__(self, folder: Path, words: str = "QEMU emulator version 9.1.2 (Somewhere)") -> None:
        self.path = folder / "qemu"
        self.asked = folder / "asked"
        self.path.write_text(f'#!/bin/sh\necho "$*" >>{self.asked}\necho "{words}"\n')
        self.path.chmod(0o755)

    @property
    def count(self) -> int:
        return len(self.asked.read_text().splitlines()) if self.asked.exists() else 0


@pytest.fixture
def without_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "KVM", "/nonexistent/kvm")


@pytest.mark.usefixtures("without_kvm")
def test_facts_are_kept_until_qemu_changes(tmp_path: Path) -> None:
    qemu, path = FakeQemu(tmp_path), str(tmp_path / "facts.json")

    def found(*, is_new: bool = False) -> object:
        return find_facts(str(qemu.path), SystemClock(), RealDisk(), path, is_new=is_new)

    first = found()
    if os.geteuid() != 0:
        assert not os.path.exists(path)
        return
    assert json.loads(Path(path).read_text())["version"] == "9.1.2"
    assert (found(), qemu.count) == (first, 1)
    assert (found(is_new=True), qemu.count) == (first, 2)
    qemu.path.write_text(qemu.path.read_text() + "\n")
    assert (found(), qemu.count) == (first, 3)


@pytest.mark.usefixtures("without_kvm")
def test_kvm_that_root_has_found_is_of_no_use_to_whoever_may_not_open_it(tmp_path: Path) -> None:
    qemu, path = FakeQemu(tmp_path), tmp_path / "facts.json"
    stamp = accelerator._stamp(str(qemu.path), RealDisk())
    facts = {"version": "9.1.2", "accelerator": "kvm", "reason": "faster", "processor": "X"}
    path.write_text(json.dumps({"stamp": stamp, **facts}))
    found = find_facts(str(qemu.path), SystemClock(), RealDisk(), str(path))

    assert (found.accelerator, found.reason) == ("tcg", "there is no /nonexistent/kvm")
    assert qemu.count == 0


def test_program_that_is_missing_or_another_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Unsuitable, match="install QEMU"):
        qemu_version(str(tmp_path / "nothing"))
    with pytest.raises(Unsuitable, match="says nothing that is understood"):
        qemu_version(str(FakeQemu(tmp_path, "hello").path))
