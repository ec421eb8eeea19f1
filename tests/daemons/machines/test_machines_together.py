"""Several machines of one job are suspended together or not at all, and what runs over them goes on right."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from time import sleep

import pytest

from testbed.linux_guest import LinuxGuest
from tests.amount import LONG, examples, few
from tests.daemons.machines.engine import MIB, WAIT_S, Engine, wait_until
from tests.daemons.machines.several import SeveralMachines

LONGEST_STEP_S = 3.0
"""Within that all machines of a small job are saved, or read again."""
MOST_STARTS = 6
MOST_APART_S = 60
COUNT = 3 if os.environ.get(LONG) else 2
"""Of machines, where one beside the first is enough to be the one with which something is wrong."""


def several(engine: Engine, linux: LinuxGuest, count: int, last: int) -> SeveralMachines:
    engine.machines.chmod(0o1777)
    return SeveralMachines(engine, linux, count, last)


def rounds(job: SeveralMachines) -> list[int]:
    """What the first machine says: each round adds what there are of machines."""
    return list(range(job.count, job.last + job.count, job.count))


@pytest.mark.long
def test_program_over_four_machines_goes_on_after_all_were_suspended_twice(
    engine: Engine, linux: LinuxGuest
) -> None:
    job = several(engine, linux, 4, 400)
    statuses, kept, stopped_s, went_on_s = [], [], [], []
    for beyond in (40, 160):
        process = job.start()
        job.wait_until_beyond(beyond)
        went_on_s.append(job.apart_s("machine.json"))
        statuses.append(job.suspended(process))
        kept.append([json.loads((job.at(node) / "machine.json").read_text()) for node in job.nodes])
        stopped_s.append(job.apart_s("state.?"))
        assert job.qemus() == [[]] * 4
    last = job.over(job.start())

    print(f"stopped within {stopped_s} s of each other, went on within {went_on_s[1:]} s")  # noqa: T201
    assert statuses == [0, 0], job.output.read_text()
    # Linux lets a connection go after 924 s without an answer.
    assert max(*stopped_s, went_on_s[1]) < MOST_APART_S
    for records in kept:
        assert {each["state"] for each in records} == {"suspended"}
        assert len({each["together"] for each in records}) == 1
    assert kept[0][0]["together"] != kept[1][0]["together"]
    assert last == 0, job.output.read_text()
    assert job.numbers() == rounds(job), job.output.read_text()[-1000:]
    assert job.left() == []


def test_if_one_cannot_be_saved_all_go_on(engine: Engine, linux: LinuxGuest) -> None:
    job = several(engine, linux, COUNT, 80 * COUNT)
    process = job.start()
    job.wait_until_beyond(30)
    # They can make no file of that size, as on a disk that is full.
    keepers = [pid for pid in job.keepers() if str(job.nodes[-1]) in Path(f"/proc/{pid}/cmdline").read_text()]
    for pid in keepers:
        limit = ["prlimit", f"--pid={pid}", f"--fsize={4 * MIB}:"]
        assert engine.popen(limit).wait(WAIT_S) == 0
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: "outrider:" in job.said(), job.said)
    status = job.over(process)

    assert keepers
    assert status == 0, job.output.read_text()
    assert job.asked.read_text() == ""
    assert job.numbers() == rounds(job)
    assert job.left() == []


@pytest.mark.repeats(
    "tests/daemons/machines/test_machines_together.py::test_if_one_cannot_be_saved_all_go_on"
)
def test_machine_of_another_suspension_does_not_go_on_with_the_others(
    engine: Engine, linux: LinuxGuest
) -> None:
    job = several(engine, linux, COUNT, 80 * COUNT)
    process = job.start()
    job.wait_until_beyond(30)
    first = job.suspended(process)
    path = job.at(job.nodes[1]) / "machine.json"
    record = json.loads(path.read_text())
    before = path.read_text()
    path.write_text(json.dumps({**record, "together": "0" * 32}))
    refused = job.over(job.start())
    states = [json.loads((job.at(node) / "machine.json").read_text())["state"] for node in job.nodes]
    path.write_text(before)
    last = job.over(job.start())

    assert first == 0, job.output.read_text()
    assert refused not in (0, 98)
    assert "no machine here that was suspended with" in job.output.read_text()
    assert states == ["suspended"] * COUNT
    assert last == 0, job.output.read_text()
    assert job.numbers() == rounds(job)
    assert job.left() == []


def test_machines_go_on_wherever_the_batch_system_puts_their_numbers(
    engine: Engine, linux: LinuxGuest
) -> None:
    """As after one of them has moved: nodes have another order then than the machines on them."""
    job = several(engine, linux, 3, 210)
    process = job.start()
    job.wait_until_beyond(30)
    first = job.suspended(process)
    job.nodes[1:] = job.nodes[:0:-1]
    process = job.start()
    job.wait_until_beyond(90)
    killed = job.begun_again(process.pid)[-1]
    os.kill(killed, signal.SIGKILL)
    again = job.suspended(process)
    last = job.over(job.start())

    assert (first, again, last) == (0, 0, 0), job.output.read_text()
    assert job.numbers() == rounds(job), job.output.read_text()[-1000:]
    assert job.left() == []


def victims(job: SeveralMachines, first: int) -> dict[str, list[int]]:
    """Those that nobody begins again: what the batch system has begun, and QEMU."""
    return {
        "first": [first],
        "other": job.keepers()[:1],
        "switch": job.switches(keeper)[:1] if (keeper := next(iter(job.begun_again(first)), 0)) else [],
        "qemu": [pid for found in job.qemus() for pid in found if pid not in (first, *job.keepers())][-1:],
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(12)))
def test_whoever_is_killed_meanwhile_all_go_on_or_all_begin_anew(
    engine: Engine, linux: LinuxGuest, seed: int
) -> None:
    chance = Random(seed)
    job = several(engine, linux, 3, 150)
    process = job.start()
    job.wait_until_beyond(15)
    kind = ("first", "other", "qemu", "switch")[seed % 4]
    if seed // 4 % 2:
        # While they are read again.
        assert job.suspended(process) == 0, job.output.read_text()
        process = job.start()
    else:
        process.send_signal(signal.SIGUSR1)
    sleep(chance.uniform(0, LONGEST_STEP_S))
    for pid in victims(job, process.pid)[kind]:
        # It may have ended by itself since it was looked for.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(MOST_STARTS):
        if job.over(process) == 0 and not job.left():
            break
        process = job.start()

    runs = runs_of(job.numbers(), job.count)
    told = f"{kind}: {job.output.read_text()[-2000:]}"
    assert "over" in job.said(), told
    # What was passed on and not yet noted comes twice; nothing is missing, and nothing is counted twice.
    assert all(run == list(range(job.count, run[-1] + 1, job.count)) for run in runs), told
    assert runs[-1] == rounds(job), told
    assert len(runs) <= 2, told
    assert job.left() == []
    assert job.qemus() == [[]] * job.count


def strike(job: SeveralMachines, process: int, chance: Random) -> int:
    """One or two of the keepers that are begun again, at any time; how many were killed."""
    sleep(chance.uniform(0, LONGEST_STEP_S))
    found, count = job.begun_again(process), 0
    for pid in chance.sample(found, min(len(found), chance.choice((1, 2)))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


@pytest.mark.parametrize("seed", range(few(8)))
@pytest.mark.repeats(
    "tests/daemons/machines/test_batch_jobs.py"
    "::test_keeper_that_is_killed_is_begun_again_and_finds_its_machine"
)
def test_keepers_that_are_killed_are_begun_again_and_all_machines_go_on(
    engine: Engine, linux: LinuxGuest, seed: int
) -> None:
    chance = Random(seed)
    job = several(engine, linux, 3, 240)
    process = job.start()
    killed = sum(strike(job, process.pid, chance) for _ in range(2))
    job.wait_until_beyond(15)
    process.send_signal(signal.SIGUSR1)
    killed += sum(strike(job, process.pid, chance) for _ in range(2))
    first = job.over(process)
    states = {json.loads((job.at(node) / "machine.json").read_text())["state"] for node in job.nodes}
    process = job.start()
    killed += sum(strike(job, process.pid, chance) for _ in range(2))
    last = job.over(process)

    told = job.output.read_text()[-2000:]
    assert killed >= 3, told
    assert (first, states, last) == (0, {"suspended"}, 0), told
    assert len(runs_of(job.numbers(), job.count)) == 1, told
    assert runs_of(job.numbers(), job.count)[0] == rounds(job), told
    assert job.left() == []
    assert job.qemus() == [[]] * job.count


def runs_of(numbers: list[int], first: int) -> list[list[int]]:
    """What was said, parted where it begins anew."""
    found: list[list[int]] = []
    for number in numbers:
        if number == first and (not found or found[-1] != [first]):
            found.append([])
        if number not in found[-1][-MOST_TWICE:]:
            found[-1].append(number)
    return found


MOST_TWICE = 60


@pytest.mark.long
def test_others_that_are_told_nothing_more_leave_nothing(engine: Engine, linux: LinuxGuest) -> None:
    job = several(engine, linux, 3, 9000)
    process = job.start()
    job.wait_until_beyond(15)
    process.kill()
    status = job.over(process)

    assert status == -signal.SIGKILL
    assert job.left() == []
    assert not list(Path(engine.machines).glob("n*/outrider-*/job-*/state.*"))
    assert process.wait(WAIT_S) == -signal.SIGKILL
