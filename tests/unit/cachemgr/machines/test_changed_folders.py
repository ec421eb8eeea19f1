"""Machines of virtual nodes that change their folder: in which they are, and what is asked and answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.machines.batch.steps.changing import (
    ChangingMachine,
    ask_for_change,
    folder_of_machine,
    folders_of_machine,
    remove_orders,
)
from cachemgr.machines.keeper import real_site
from cachemgr.machines.machine import Machine
from cachemgr.machines.record import MachineRecord, QemuFacts, write_record
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish


def machine_in(folder: str, state: str) -> Machine:
    """A machine without a process."""
    Path(folder).mkdir(mode=0o700, parents=True)
    record = MachineRecord(
        wish=MachineWish(
            name="job-7", memory_bytes=64 << 20, disks=(MachineDisk("root", path="/image"),),
            job=MachineJob(script="#!/bin/sh\n"),
        ),
        state=state, place=f"n:{folder}", token="t", moving_to="n:/m",
        qemu=QemuFacts("7.2.0", "tcg", "there is no /dev/kvm", "Nehalem"),
    )  # fmt: skip
    write_record(RealDisk(), folder, record)
    return Machine(folder, real_site("n", "/usr/bin/qemu"))


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [
        ("", "", 0),
        ("running", "arriving", 0),
        ("leaving", "arriving", 0),
        ("moved", "running", 1),
        ("", "suspended", 1),
        ("arriving", "leaving", 1),
        ("running", "moved", 0),
    ],
)
def test_machine_is_in_the_folder_where_it_may_run(
    tmp_path: Path, first: str, second: str, number: int
) -> None:
    folders = folders_of_machine(str(tmp_path), "7")
    for folder, state in zip(folders, (first, second), strict=True):
        if state:
            machine_in(folder, state)

    assert folder_of_machine(str(tmp_path), "7") == folders[number]


def test_order_is_answered_once_and_not_carried_out_from_another_folder(tmp_path: Path) -> None:
    first, second = folders_of_machine(str(tmp_path), "7")
    machine_in(first, "suspended")
    asked = [ask_for_change(str(tmp_path), "7", "1-n2", "/n2/image") for _ in range(2)]
    # The keeper that had carried it out was killed before it said so.
    Path(first, "machine.json").unlink()
    there = machine_in(second, "suspended")
    ChangingMachine(str(tmp_path), "7").look(there)
    answered = ask_for_change(str(tmp_path), "7", "1-n2", "/n2/image")
    again = ask_for_change(str(tmp_path), "7", "9-n1", "/n1/image")
    remove_orders(str(tmp_path), "7")

    assert asked == ["goes", "goes"]
    assert (answered, again) == ("changed", "goes")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == []


def test_machine_that_cannot_go_stays_and_says_why(tmp_path: Path) -> None:
    first, _ = folders_of_machine(str(tmp_path), "7")
    machine = machine_in(first, "suspended")
    ask_for_change(str(tmp_path), "7", "1-n2", "/n2/image")
    ChangingMachine(str(tmp_path), "7").look(machine)

    assert ask_for_change(str(tmp_path), "7", "1-n2", "/n2/image").startswith("stays ")
