"""What machines have had of processors, read from a /proc of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

from cachemgr.machines.qemu.processor_time import ProcessorTime, processor_times

ABOVE = "/var/tmp"
UID = os.getuid()
WAITED_US = 6_000
"""Of both threads of each process."""
TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


def process(
    proc: Path,
    pid: int,
    ticks: tuple[int, int],
    *,
    argv: str = "",
    group: str = "/user.slice/session-1.scope",
) -> None:
    """A process called so that its name looks like the end of a name."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    words = argv or f"/usr/bin/qemu-system-x86_64 -qmp unix:{ABOVE}/outrider-{UID}/job-17/monitor"
    (folder / "cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    (folder / "cgroup").write_text(f"0::{group}\n")
    for thread, waited_ns in ((pid, 4_000_500), (pid + 1000, 2_000_000)):
        (folder / f"task/{thread}").mkdir(parents=True)
        (folder / f"task/{thread}/schedstat").write_text(f"77000000 {waited_ns} 12\n")
    fields = ["S", *["0"] * 10, *map(str, ticks), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (qemu) 1 (x) {' '.join(fields)}\n")


def test_machine_has_had_what_its_qemu_has(tmp_path: Path) -> None:
    process(tmp_path / "proc", 41, (200, 50))
    process(
        tmp_path / "proc", 42, (3, 4), argv=f"/usr/bin/qemu-system-x86_64 {ABOVE}/outrider-{UID}/job-18-2/a"
    )
    (tmp_path / "proc/uptime").write_text("1 1\n")

    found = processor_times(ABOVE, str(tmp_path / "proc"), str(tmp_path / "cgroup"))

    assert found == {
        (UID, "job-17"): ProcessorTime(250 * TICK_US, WAITED_US),
        (UID, "job-18-2"): ProcessorTime(7 * TICK_US, WAITED_US),
    }


def test_in_a_group_of_its_job_all_that_runs_there_counts(tmp_path: Path) -> None:
    group = "/system.slice/slurmstepd.scope/job_90"
    process(tmp_path / "proc", 41, (200, 50), group=f"{group}/step_batch/user/task_0")
    folder = tmp_path / f"cgroup{group}"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 7000001\nuser_usec 6000000\nsystem_usec 1000001\n")

    assert processor_times(ABOVE, str(tmp_path / "proc"), str(tmp_path / "cgroup")) == {
        (UID, "job-17"): ProcessorTime(7_000_001, WAITED_US)
    }


def test_other_programs_and_folders_of_others_do_not_count(tmp_path: Path) -> None:
    proc, above = tmp_path / "proc", f"{ABOVE}/outrider-{UID + 1}/job-17/monitor"
    process(proc, 41, (200, 50), argv=f"/usr/bin/qemu-system-x86_64 -qmp unix:{above}")
    process(proc, 42, (200, 50), argv=f"/usr/bin/cat {ABOVE}/outrider-{UID}/job-17/log")
    process(proc, 43, (200, 50), argv="/usr/bin/qemu-system-x86_64 -m 96")

    assert processor_times(ABOVE, str(proc), str(tmp_path / "cgroup")) == {}
