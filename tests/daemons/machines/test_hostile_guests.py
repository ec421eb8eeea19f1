"""A guest that takes all memory and processes that it can takes no more of its node than it was given."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.linux_guest import LinuxGuest
from tests.daemons.machines.engine import MIB, WAIT_S, Engine, wait_until
from tests.daemons.machines.test_jobs_in_guests import GuestJobs

MEMORY_MIB, QEMU_MIB = 96, 256
# First all memory that one process can have and more, then all processes that the guest can have.
SCRIPT = """trap '' TERM
awk 'BEGIN { s = "x"; while (1) s = s s }'
echo memory $?
set -- /proc/[0-9]*
first=$#
(breed() { breed & breed & wait; }; breed) &
while :; do
    set -- /proc/[0-9]*
    echo $(($# - first))
    sleep 0.1
done
"""
MANY = 40
"""More processes than before in the guest; from some hundred on its kernel ends some of them, or gives up."""


@pytest.fixture
def jobs(engine: Engine, linux: LinuxGuest) -> GuestJobs:
    return GuestJobs(engine, linux)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_guest_without_bounds_stays_within_what_its_machine_was_given(jobs: GuestJobs) -> None:
    process = jobs.begin(jobs.wish(SCRIPT), "--grace", "2")

    def most() -> int:
        return max((int(word) for word in jobs.said().split() if word.isdigit()), default=0)

    jobs.wait_until_said("memory")
    (pid,) = set(jobs.engine.qemus("j")) - {process.pid}
    wait_until(lambda: most() > MANY, lambda: jobs.said() + jobs.trouble())
    found, threads = status_of(pid), len(os.listdir(f"/proc/{pid}/task"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)

    # The guest's own kernel has ended the one that wanted all memory.
    assert "memory 0" not in jobs.said()
    assert int(found["VmHWM"].split()[0]) << 10 < (MEMORY_MIB + QEMU_MIB) * MIB
    # What is a process there is none here.
    assert children == []
    assert threads < 32
    # Unless its own kernel gave up before.
    assert process.returncode == 125, errors
    assert jobs.engine.qemus("j") == []
