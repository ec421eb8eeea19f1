"""What a batch job's machine is made of: its image, its kernel, its folder, and its batch system's words."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, NotAllowed, SourceFailed, Unsuitable
from cachemgr.instances.qcow2 import overlay
from cachemgr.machines.batch import main as program
from cachemgr.machines.batch import system
from cachemgr.machines.batch.bootfiles import boot_files
from cachemgr.machines.batch.image import BaseImage, JobImages, base_image
from cachemgr.machines.batch.main import make_private
from cachemgr.machines.batch.options import understood
from cachemgr.machines.batch.remains import continued
from cachemgr.machines.batch.steps.holding import HeldNote, JobWatch
from cachemgr.machines.batch.steps.marks import Door, SavedMark
from cachemgr.machines.batch.system import BatchJob, job_here
from cachemgr.machines.guest.archive import pack, unpack
from cachemgr.machines.keeper import real_site
from cachemgr.machines.live.landing import MachineLanding
from cachemgr.machines.machine import Machine
from cachemgr.machines.record import MachineRecord, QemuFacts, write_record
from cachemgr.machines.wish import MIB, MachineDisk, MachineJob, MachineWish
from tests.repository import ROOT

DIGEST = "0123456789abcdef" * 4
SLURM = {"SLURM_JOB_ID": "17", "SLURM_CPUS_ON_NODE": "2", "SLURM_RESTART_COUNT": "1"}


def instance(folder: Path, below: str | None, kind: str = "qcow2") -> str:
    path = folder / "disk"
    with path.open("wb") as file:
        for offset, data in overlay(below, kind, MIB):
            file.seek(offset)
            file.write(data)
    return str(path)


@pytest.mark.parametrize("kind", ["qcow2", "raw"])
def test_machine_stands_on_the_pools_image_and_not_on_the_jobs_overlay(tmp_path: Path, kind: str) -> None:
    below = f"/pool/images/{DIGEST}/data"

    found = base_image(RealDisk(), instance(tmp_path, below, kind))

    assert (found.path, found.format, found.digest) == (below, kind, DIGEST)


def test_instance_that_is_a_whole_copy_is_the_lowest_layer_itself(tmp_path: Path) -> None:
    whole, raw = instance(tmp_path, None), tmp_path / "raw"
    raw.write_bytes(b"\0" * MIB)

    assert base_image(RealDisk(), whole).path == whole
    assert base_image(RealDisk(), str(raw)).format == "raw"


@pytest.mark.parametrize("below", ["/etc/shadow", "/pool/images/x", f"/pool/images/{DIGEST}x"])
def test_instance_that_stands_on_another_file_of_the_node_is_refused(tmp_path: Path, below: str) -> None:
    with pytest.raises(Unsuitable, match="not an image of a pool"):
        base_image(RealDisk(), instance(tmp_path, below))


def test_image_that_is_no_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsuitable, match="is not a disk"):
        base_image(RealDisk(), str(tmp_path))
    with pytest.raises(BadRequest, match="no image on this node"):
        base_image(RealDisk(), "")


def test_options_come_with_the_script_or_in_the_environment() -> None:
    line = "run=vm,memory=512,boot=debian"

    by_line = understood([line, "script", "a b"], {})
    by_environment = understood(["script", "a b"], {"OUTRIDER_MACHINE": line})

    assert by_line == by_environment
    options, script, arguments = by_line
    assert (options.memory_bytes, options.boot) == (512 * MIB, "debian")
    assert (script, list(arguments)) == ("script", ["a b"])


@pytest.mark.parametrize(
    "words", [[], ["script"], ["run=vm", "script"], ["run=vm,memory=x", "s"], ["run=vm,memory=1,b=../x", "s"]]
)
def test_options_that_the_filter_does_not_write_are_refused(words: list[str]) -> None:
    with pytest.raises(BadRequest):
        understood(words, {})


def test_job_of_slurm_gives_itself_back_by_its_own_address() -> None:
    task = {**SLURM, "SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"}

    one, other = job_here(SLURM), job_here(task)

    assert (one.key, one.cpus, one.attempt) == ("17", 2, 1)
    assert one.giving_back == ("scontrol", "requeuehold", "17")
    # The number of a task can be that of its array: then all tasks would be sent back.
    assert other.giving_back == ("scontrol", "requeuehold", "16_3")


def test_job_of_grid_engine_has_a_machine_on_each_of_its_nodes(tmp_path: Path) -> None:
    hosts = tmp_path / "pe_hostfile"
    # A node may be there by several queues.
    hosts.write_text("n3 2 all.q@n3 <NULL>\nn1 4 all.q@n1 <NULL>\nn3 1 more.q@n3 <NULL>\n")
    plain = {"JOB_ID": "17", "SGE_TASK_ID": "undefined", "NSLOTS": "7"}

    first, alone = job_here({**plain, "PE_HOSTFILE": str(hosts)}), job_here(plain)
    member = job_here({**plain, "OUTRIDER_MEMBER": "1:4"})

    assert (first.nodes, first.cpus, first.member, first.comes_back) == (2, 3, 0, False)
    assert first.others_step == ("/usr/lib/outrider/machine", "tasks", "n1:4")
    assert (alone.nodes, alone.cpus, alone.member, alone.comes_back) == (1, 7, 0, True)
    assert (member.member, member.cpus) == (1, 4)


# As qrsh: it runs a line in a shell, and says where.
QRSH = """#!/bin/sh
[ "$1" = -inherit ] || exit 9
echo "{\\"on\\": \\"$2\\"}"
exec /bin/sh -c "$3"
"""


def test_programs_on_other_nodes_hear_what_comes_in_and_are_heard_by_lines(tmp_path: Path) -> None:
    qrsh, folder = tmp_path / "qrsh", tmp_path / "its folder"
    qrsh.write_text(QRSH)
    qrsh.chmod(0o755)
    folder.mkdir()
    work = (
        'read -r line; printf "$OUTRIDER_MEMBER "; sleep 0.2; echo "$line $PWD"; exit ${OUTRIDER_MEMBER%:*}'
    )
    code = "import sys; from cachemgr.machines.batch.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "tasks", "n1:4,n2:2", "sh", "-c", work]

    done = subprocess.run(
        argv, input="said\n", cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"1:4 said {folder}", f"2:2 said {folder}", '{"on": "n1"}', '{"on": "n2"}',
    ]  # fmt: skip


@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": "17; rm"}, {"SLURM_JOB_ID": "1" * 11}])
def test_what_is_no_job_has_no_machine(environment: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        job_here(environment)


def test_kernel_of_the_site_is_a_folder_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "kernel").touch()
    (tmp_path / "debian" / "append").write_text("quiet\n panic=-1\n")

    found = boot_files("debian", str(tmp_path))

    assert (found.kernel, found.initrd) == (f"{tmp_path}/debian/kernel", None)
    assert found.append == "quiet panic=-1"
    assert boot_files("", str(tmp_path)).kernel is boot_files("disk", str(tmp_path)).kernel is None
    for name in ("other", "../debian", "debian/../debian"):
        with pytest.raises(BadRequest):
            boot_files(name, str(tmp_path))


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    for each in tmp_path.parents:
        each.chmod(each.stat().st_mode | 0o011)
    foreign, link = tmp_path / "foreign", tmp_path / "link"
    foreign.mkdir(mode=0o700)
    (tmp_path / "target").mkdir(mode=0o700)
    os.chown(tmp_path / "target", 65534, -1)
    link.symlink_to(tmp_path / "target")

    with as_user(65534):
        make_private(str(tmp_path / "own"))
        make_private(str(tmp_path / "own"))
        for path in (foreign, link):
            with pytest.raises(NotAllowed, match="not a folder of yours alone"):
                make_private(str(path))

    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(NotAllowed):
        make_private(str(folder))


def test_mark_names_another_place_at_which_the_machine_is_saved(tmp_path: Path) -> None:
    mark = SavedMark(str(tmp_path), "17")

    assert mark.elsewhere("n1:/m") == ""
    mark.write("n2:/m")
    assert mark.elsewhere("n1:/m") == "n2:/m"
    assert mark.elsewhere("n2:/m") == ""
    mark.remove()
    assert mark.elsewhere("n1:/m") == ""


def test_job_that_is_gone_leaves_no_mark_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder job that was killed has left its door open."""
    monkeypatch.setattr(system, "MACHINES", str(tmp_path / "machines"))
    monkeypatch.setenv("HOME", str(tmp_path))
    mark = SavedMark(str(tmp_path), "17")
    mark.write("n1:/m")
    mark.write_door(Door("n1", 7000, "00", 1))
    mark.write_end(3)
    before = sorted(os.listdir(tmp_path / ".outrider" / "machines"))

    assert program.discard("17", real_site("n1", "/usr/bin/qemu")) == 0
    assert before == ["17", "17.door", "17.ended"]
    assert os.listdir(tmp_path / ".outrider" / "machines") == []


def test_job_that_has_ended_and_is_started_once_more_ends_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MACHINES", str(tmp_path / "machines"))
    (tmp_path / "machines").mkdir()
    mark = SavedMark(str(tmp_path), "17")
    again = {"JOB_ID": "17", "SGE_TASK_ID": "undefined", "RESTARTED": "2", "HOME": str(tmp_path)}
    mark.write_end(3)
    status = program._main(["run=vm,memory=96", "script"], again, real_site("n1", "/usr/bin/qemu"))
    told_again = mark.take_end()
    # A number that is used again is another job's, which begins: its script is read.
    mark.write_end(3)
    with pytest.raises(FileNotFoundError, match="script"):
        program._main(
            ["run=vm,memory=96", "script"], {**again, "RESTARTED": "0", "OUTRIDER_IMAGE": "/image"},
            real_site("n1", "/usr/bin/qemu"),
        )  # fmt: skip

    assert (status, told_again) == (3, None)
    assert mark.take_end() is None


@pytest.mark.parametrize(
    ("state", "status", "attempt", "begins_anew"),
    [
        # The batch system has sent the job back, and its node went away before anything was removed.
        ("stopping", None, 1, True),
        ("stopping", 143, 1, True),
        ("running", None, 1, True),
        # Who had begun it was killed before anything of its guest has run.
        ("starting", None, 0, True),
        # In the same run nothing else begins anew; and a job that was over by itself is over.
        ("stopping", None, 0, False),
        ("running", 7, 1, False),
    ],
)
def test_machine_that_was_ended_from_outside_begins_anew_with_the_next_start(
    tmp_path: Path, state: str, status: int | None, attempt: int, *, begins_anew: bool
) -> None:
    disk, folder = RealDisk(), tmp_path / "job-17"
    folder.mkdir(mode=0o700)
    if status is not None:
        (folder / "control").write_text(f"began\nexit {status}\n")
    disks = (MachineDisk("root", path="/image"),)
    wish = MachineWish(
        name="job-17", memory_bytes=64 * MIB, disks=disks, job=MachineJob(script="#!/bin/sh\n")
    )
    write_record(disk, str(folder), MachineRecord(
        wish=wish, state=state, place=f"n1:{folder}", token="t",
        qemu=QemuFacts("7.2.0", "tcg", "there is no /dev/kvm", "Nehalem"),
    ))  # fmt: skip
    job = BatchJob("17", 1, attempt)

    found = continued(
        Machine(str(folder), real_site("n1", "/usr/bin/qemu")), job, JobImages(BaseImage("/image", "raw", ""))
    )

    assert (found is None) is begins_anew
    assert (found is None) or found.exit_status == status


def test_output_of_the_job_is_no_part_of_its_working_folder(tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "target"
    (folder / "sub").mkdir(parents=True)
    target.mkdir()
    for name in ("slurm-17.out", "sub/err", "given"):
        (folder / name).write_text("before\n")
    left_out = ("slurm-17.out", "sub/err")

    pack(RealDisk(), str(folder), str(tmp_path / "tar"), but=str(tmp_path / "machine"), left_out=left_out)
    unpack(str(tmp_path / "tar"), str(target))

    assert sorted(path.name for path in target.rglob("*")) == ["given", "sub"]
    # Nor is what a guest calls so.
    pack(RealDisk(), str(folder), str(tmp_path / "tar"), but=str(tmp_path / "machine"))
    (folder / "slurm-17.out").write_text("said meanwhile\n")
    unpack(str(tmp_path / "tar"), str(folder), left_out)
    assert (folder / "slurm-17.out").read_text() == "said meanwhile\n"


def test_what_a_guest_has_not_changed_is_not_put_over_what_others_have_made_of_it(tmp_path: Path) -> None:
    folder, guest = tmp_path / "folder", tmp_path / "guest"
    folder.mkdir()
    guest.mkdir()
    for name in ("theirs", "changed"):
        (folder / name).write_text("before\n")
    went_in, came_out = str(tmp_path / "in"), str(tmp_path / "out")
    pack(RealDisk(), str(folder), went_in, but=str(tmp_path / "machine"))

    unpack(went_in, str(guest))
    (guest / "changed").write_text("in the guest\n")
    pack(RealDisk(), str(guest), came_out, but=str(tmp_path / "machine"))
    (folder / "theirs").write_text("by another job\n")
    unpack(came_out, str(folder), given=went_in)

    assert (folder / "theirs").read_text() == "by another job\n"
    assert (folder / "changed").read_text() == "in the guest\n"


@pytest.mark.parametrize(
    ("state", "token", "is_left"),
    [
        ("running", "t", False),
        # It has not come, and says so by its token's digest alone.
        ("arriving", hashlib.sha256(b"t").hexdigest(), False),
        ("suspended", "t", True),
        ("moved", "t", True),
        # A later run of the job, on the same node before the holder's epilog.
        ("running", "another", True),
    ],
)
def test_epilog_of_a_holder_that_was_killed_ends_the_machine_that_came_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, token: str, *, is_left: bool
) -> None:
    site = real_site("n1", "/usr/bin/qemu")
    monkeypatch.setattr(program, "folder_of_user", lambda environment: str(tmp_path))
    held = tmp_path / "job-17"
    held.mkdir(mode=0o700)
    HeldNote(Machine(str(held), site), "18").write(hashlib.sha256(b"t").hexdigest())
    write_record(RealDisk(), str(held), MachineRecord(
        wish=MachineWish(
            name="job-17", memory_bytes=64 * MIB, disks=(MachineDisk("root", path="/image"),),
            job=MachineJob(script="#!/bin/sh\n"),
        ),
        state=state, place=f"n1:{held}", token=token, moving_to="n2:/m",
        qemu=QemuFacts("7.2.0", "tcg", "there is no /dev/kvm", "Nehalem"),
    ))  # fmt: skip

    assert program.tidy("18", site) == 0
    assert not (tmp_path / "job-18").exists()
    assert held.exists() is is_left


def test_holder_of_a_job_that_is_over_waits_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachemgr.machines.live.landing.check_user", lambda: None)
    machine = Machine(str(tmp_path / "job-17"), real_site("n1", "/usr/bin/qemu"))
    landing = MachineLanding(machine, b"k" * 32, lambda offer: {})
    of_another = BatchJob("18", 1, 0, listing=("printf", "18 19"))
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(SourceFailed, match="is over"):
        landing.wait(listener, 60, JobWatch(of_another, machine, 1.0).is_gone)

    assert not JobWatch(BatchJob("18", 1, 0, listing=("printf", "17 18")), machine, 1.0).is_gone()
    # Who is not told of itself was not told the truth.
    assert not JobWatch(BatchJob("18", 1, 0, listing=("printf", "19")), machine, 1.0).is_gone()
