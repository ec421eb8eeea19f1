"""The disks that go into a guest: what a shell there makes of the job, and what cloud-init is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest
from cachemgr.machines.guest import channel
from cachemgr.machines.guest.channel import job_disk, seed_disk
from cachemgr.machines.wish import MIB, MachineDisk, MachineJob, MachineWish

NASTY = 'it\'s "$(touch evil)" `touch evil`\n\\ $HOME ; end'


def files_of(image: bytes, folder: Path) -> Path:
    """The files of a disk, as another program reads them."""
    if shutil.which("xorriso") is None and "CI" not in os.environ:
        pytest.skip("needs xorriso: make tools")
    (folder / "image").write_bytes(image)
    line = ["xorriso", "-osirrox", "on", "-indev", "image", "-extract", "/", "files"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True, timeout=240)
    return folder / "files"


def test_shell_in_the_guest_sets_what_was_set_on_the_node(tmp_path: Path) -> None:
    job = MachineJob(
        script="#!/bin/sh\n",
        arguments=("a b", NASTY),
        environment=(("VALUE", NASTY), ("BASH_FUNC_x%%", "() { :; }")),
    )
    files = files_of(job_disk(job), tmp_path)
    line = f'. {files}/environment; . {files}/arguments; printf "%s|%s|%s|%s" "$#" "$1" "$2" "$VALUE"'
    said = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=240)

    assert said.stdout == f"2|a b|{NASTY}|{NASTY}"
    assert not (tmp_path / "evil").exists()
    # What no shell can set is named, and not left out in silence.
    assert (files / "left-out").read_text() == "BASH_FUNC_x%%\n"


def test_runner_is_a_program_that_every_shell_reads(tmp_path: Path) -> None:
    files = files_of(job_disk(MachineJob(script="#!/bin/sh\n", folder="/w")), tmp_path)

    assert subprocess.run(["sh", "-n", files / "run"], timeout=240).returncode == 0
    assert (files / "folder").read_text() == "/w\n"


def wish(**fields: object) -> MachineWish:
    disks = (MachineDisk(name="root", path="/images/root"),)
    return MachineWish(name="m", memory_bytes=64 * MIB, disks=disks, **fields)  # type: ignore[arg-type]


def test_users_data_and_the_job_stand_beside_each_other_on_the_seed(tmp_path: Path) -> None:
    user_data = "#cloud-config\nruncmd: [mine]\n"
    job = MachineJob(script="#!/bin/sh\n")
    files = files_of(seed_disk(wish(context={"user_data": user_data, "hostname": "n1"}, job=job)), tmp_path)

    assert (files / "user-data").read_text() == user_data
    assert '"local-hostname": "n1"' in (files / "meta-data").read_text()
    assert "virtio-job" in (files / "vendor-data").read_text()


def test_seed_is_there_if_somebody_in_the_guest_reads_it() -> None:
    job = MachineJob(script="x")

    assert channel.has_seed(wish(job=job))
    assert channel.has_seed(wish(context={"hostname": "n1"}))
    assert not channel.has_seed(wish(kernel="/k", job=job))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", None),
        ("began\nended 3\n", None),
        ("began\nended 3\nexit 3\n", 3),
        # A line without its end, and what a status cannot be.
        ("began\nexit 3", None),
        ("exit 256\nexit -1\nexit x\nexit\n", None),
        ("\xff\n\nexit 0\n", 0),
    ],
)
def test_last_word_of_a_guest_is_its_status(tmp_path: Path, text: str, status: int | None) -> None:
    (tmp_path / "control").write_text(text, encoding="latin-1")

    assert channel.exit_status(RealDisk(), str(tmp_path)) == status


def test_signal_that_no_job_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no signal"):
        channel.send_signal(RealDisk(), str(tmp_path), "TERM; reboot", SystemClock())
