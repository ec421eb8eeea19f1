"""One look after the other: what Slurm prints as before is the very same value, and nothing is missed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import cast

import pytest

from outrider.rms.slurm.booking import Booking
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.fields import BadField, each_entry
from outrider.rms.slurm.jobs import HELD_BEGIN_S
from outrider.rms.slurm.placing import sharing_in
from outrider.rms.slurm.reading import JobReader, NodeReader
from outrider.rms.slurm.snapshot import SlurmSnapshot
from tests.unit.rms.slurm.printed import jobs_in, nodes_in

RECORDED = Path(__file__).parent / "recorded"
every_version = pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])


def recorded(version: str, name: str) -> bytes:
    return (RECORDED / version / name).read_bytes()


def changed(data: bytes, key: int, **fields: object) -> bytes:
    found = json.loads(data)
    for row in found["jobs"]:
        if row["job_id"] == key:
            row |= fields
    return json.dumps(found).encode()


@every_version
def test_jobs_read_one_by_one_are_those_of_the_whole(version: str) -> None:
    data, at_s = recorded(version, "jobs.json"), int(recorded(version, "at.txt"))

    assert JobReader().read(data, at_s) == jobs_in(data, at_s)
    assert list(each_entry(data, "jobs", "squeue")) == json.loads(data)["jobs"]


@every_version
def test_jobs_that_are_printed_as_before_are_the_very_same(version: str) -> None:
    data, at_s = recorded(version, "jobs.json"), int(recorded(version, "at.txt"))
    reader = JobReader()
    before = {job.key: job for job in reader.read(data, at_s)[0]}
    after = {job.key: job for job in reader.read(changed(data, 5, resv_name="other"), at_s + 30)[0]}

    same = [key for key in before if after[key] is before[key]]
    # Job 3 is an array, whose tasks are put together at each look.
    assert sorted(before.keys() - set(same)) in (["5"], ["3", "5"])
    assert after["5"].reservation == "other"


def test_job_of_which_only_something_unused_has_changed_is_the_very_same() -> None:
    data, at_s = recorded("22.05", "jobs.json"), int(recorded("22.05", "at.txt"))
    reader = JobReader()
    before = {job.key: job for job in reader.read(data, at_s)[0]}
    after = {job.key: job for job in reader.read(changed(data, 5, priority=77, last_sched_eval=5), at_s)[0]}

    assert after["5"] is before["5"]


def test_job_that_was_held_by_its_begin_is_not_once_that_is_near() -> None:
    at_s = int(recorded("22.05", "at.txt"))
    admin_comment = 'waits {"outrider":1,"metadata":"image: x"}'
    far_s = at_s + HELD_BEGIN_S + 10
    data = changed(
        recorded("22.05", "jobs.json"), 5, admin_comment=admin_comment, eligible_time=far_s, priority=1
    )
    reader = JobReader()
    held = [job.is_held_by_us for job in reader.read(data, at_s)[0] if job.key == "5"]
    near = [job.is_held_by_us for job in reader.read(data, at_s + 20)[0] if job.key == "5"]

    assert (held, near) == ([True], [False])


def test_job_that_has_ended_and_comes_again_is_read_anew() -> None:
    data, at_s = recorded("22.05", "jobs.json"), int(recorded("22.05", "at.txt"))
    without = json.loads(data)
    without["jobs"] = [row for row in without["jobs"] if row["job_id"] != 5]
    reader = JobReader()
    counts = [
        len([job for job in reader.read(each, at_s)[0] if job.key == "5"])
        for each in (data, json.dumps(without).encode(), data)
    ]

    assert counts == [1, 0, 1]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"jobs": [', '{"jobs": [{}', '{"jobs": [{},]}', '{"meta": 1}', '{"jobs": 5}', "{}"],
)
def test_what_is_no_list_of_jobs_is_refused(text: str) -> None:
    with pytest.raises(BadField):
        JobReader().read(text.encode(), 0)


def test_list_that_imitates_jobs_in_another_text_is_not_taken_for_them() -> None:
    text = json.dumps({"meta": {"jobs": [1], "x": '"jobs": [2]'}, "errors": [], "jobs": [3]})

    assert list(each_entry(text.encode(), "jobs", "squeue")) == [3]


@every_version
def test_nodes_that_are_printed_as_before_are_the_very_same(version: str) -> None:
    data, reader = recorded(version, "nodes.txt"), NodeReader()
    first = reader.read(data)
    again = reader.read(data.replace(b"CPULoad=", b"CPULoad=1"))
    drained = reader.read(data.replace(b"State=", b"State=DOWN+", 1))

    assert first == nodes_in(data)
    assert again[0] is first[0]
    assert drained[0] is not first[0]
    assert [one is other for one, other in zip(first[0], drained[0], strict=True)].count(False) == 1


def test_partitions_count_as_shared_whose_jobs_cannot_help_it() -> None:
    lines = [f"PartitionName={name} AllowGroups=ALL OverSubscribe={value} State=UP" for name, value in (
        ("twice", "FORCE:2"), ("once", "FORCE:1"), ("asked", "YES:4"), ("no", "NO"), ("whole", "EXCLUSIVE"),
    )]  # fmt: skip

    assert sharing_in("\n".join(lines).encode()) == (("twice", 2),)
    assert sharing_in(b"No partitions in the system\n") == ()


def test_nodes_of_a_job_are_told_as_slurm_numbers_them() -> None:
    """Of its machines the first is on the first of them: n2 is before n10 there, and not by its name."""
    at_s, names = int(recorded("22.05", "at.txt")), ("n1", "n2", "n10")
    line = next(each for each in recorded("22.05", "nodes.txt").splitlines() if b"NodeName=n1 " in each)
    nodes = b"\n".join(line.replace(b"NodeName=n1 ", f"NodeName={name} ".encode()) for name in names)
    jobs = jobs_in(changed(recorded("22.05", "jobs.json"), 1, nodes="n[2,10]"), at_s)

    class Commands:
        def ask(self, *argv: str) -> bytes:
            return nodes if argv[-1] == "node" else b""

    class NoReservations:
        def all(self) -> tuple[tuple[()], tuple[()]]:
            return (), ()

    snapshot = SlurmSnapshot(
        cast(SlurmCommands, Commands()),
        cast(Booking, NoReservations()),
        now_s=lambda: at_s,
        log=logging.getLogger("test"),  # type: ignore[arg-type]
        read_jobs=lambda _: jobs,
    )
    sight = snapshot.look()

    assert sight.numbered == names
    assert [node.name for node in sight.nodes] == ["n1", "n10", "n2"]
    assert next(job.nodes for job in sight.jobs if job.key == "1") == ("n2", "n10")
