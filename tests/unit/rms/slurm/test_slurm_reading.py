"""What real daemons of three versions have printed is read as what they were asked to be.

The outputs in `recorded` were taken from private clusters of 22.05.8, 24.11.5 and 26.05.5 in which the
same was done: job 1 runs on two nodes, 2 has a name and a comment that imitate Slurm's own output, 3 is
an array held by its user, 4 wants a gpu and features, 5 waits for four nodes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, NodeState, RmsReservation
from outrider.rms.slurm.asking import standings
from outrider.rms.slurm.commands import json_option, version_in
from outrider.rms.slurm.fields import BadField
from outrider.rms.slurm.jobs import SlurmJob
from outrider.rms.slurm.nodes import state_of
from outrider.rms.slurm.placing import Places
from outrider.rms.slurm.reservations import reservations_in
from tests.unit.rms.slurm.printed import jobs_in, nodes_in

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11", "26.05")
MAIN = ("n1", "n2", "n3", "n4")
every_version = pytest.mark.parametrize("version", VERSIONS)


def recorded(version: str, name: str) -> bytes:
    return (RECORDED / version / name).read_bytes()


def jobs_of(version: str) -> dict[str, SlurmJob]:
    jobs, findings = jobs_in(recorded(version, "jobs.json"), int(recorded(version, "at.txt")))
    assert findings == ()
    return {job.key: job for job in jobs}


def altered(version: str, key: int, **fields: object) -> bytes:
    """The recorded jobs, of which one has other fields."""
    plain = json.loads(recorded(version, "jobs.json"))
    for row in plain["jobs"]:
        if row["job_id"] == key:
            row.update(fields)
    return json.dumps(plain).encode()


@every_version
def test_jobs_that_have_not_ended_are_read(version: str) -> None:
    jobs = jobs_of(version)

    assert sorted(jobs) == ["1", "2", "3", "4", "5"]
    assert {key: (job.state, job.user, job.uid) for key, job in jobs.items()} == {
        "1": (JobState.RUNNING, "games", 5),
        "2": (JobState.PENDING, "games", 5),
        "3": (JobState.HELD, "games", 5),
        "4": (JobState.HELD, "daemon", 1),
        "5": (JobState.PENDING, "daemon", 1),
    }


@every_version
def test_running_job_has_its_nodes_and_what_it_takes_of_each(version: str) -> None:
    job = jobs_of(version)["1"]

    assert (job.nodes, job.nodes_wanted, job.limit_s) == (("n1", "n2"), 2, 300)
    assert job.resources == Resources.of(cpus=4, memory_mib=1000)
    assert job.start_s is not None
    assert job.submitted_s <= job.start_s
    assert job.record.metadata == "http://h/a.qcow2 é"


@every_version
def test_name_and_comment_that_imitate_slurm_change_nothing(version: str) -> None:
    job = jobs_of(version)["2"]

    assert (job.record.metadata, job.is_managed, job.is_held_by_us) == (None, False, False)
    assert (job.reservation, job.wish.required, job.nodes_wanted, job.most_nodes) == ("render-1", "n3", 2, 3)
    assert job.limit_s is None


@every_version
def test_array_that_waits_is_one_job_with_its_tasks(version: str) -> None:
    job = jobs_of(version)["3"]

    assert (job.tasks, job.wish.excluded, job.limit_s) == (3, "n4", 120)


@every_version
def test_gpus_are_seen_where_the_site_does_not_account_for_them(version: str) -> None:
    assert jobs_of(version)["4"].resources["gpus"] == 1


@every_version
def test_eligible_nodes_follow_partition_features_and_wishes(version: str) -> None:
    places = Places(nodes_in(recorded(version, "nodes.txt"))[0])
    jobs = jobs_of(version)

    assert {key: places.eligible(job) for key, job in jobs.items()} == {
        "1": MAIN,
        "2": MAIN,
        "3": ("n1", "n2", "n3"),
        "4": ("c01", "c02", "c03"),
        "5": MAIN,
    }


@every_version
def test_nodes_are_read_with_what_they_have(version: str) -> None:
    nodes, findings = nodes_in(recorded(version, "nodes.txt"))
    found = {each.node.name: each.node for each in nodes}

    assert findings == ()
    assert list(found) == ["c01", "c02", "c03", *MAIN]
    assert found["c01"].capacity == Resources.of(cpus=16, memory_mib=64000, gpus=2)
    assert found["n1"].capacity == Resources.of(cpus=4, memory_mib=2000)
    # n4 is drained with a reason that reads like a state.
    assert {name: node.state for name, node in found.items() if node.state is not NodeState.UP} == {
        "c02": NodeState.DOWN,
        "n4": NodeState.DRAINED,
    }


@every_version
def test_reservations_are_told_from_others_by_their_mark(version: str) -> None:
    found, findings = reservations_in(recorded(version, "reservations.txt"))
    begin_s, end_s = 1_900_000_000, 1_900_000_317

    assert findings == ()
    assert found == (
        RmsReservation(
            name="maint 1", nodes=("n3", "n4"), users=("root",), start_s=begin_s, end_s=end_s, is_ours=False
        ),
        RmsReservation(
            name="render-1", nodes=("n1", "n2"), users=("games", "daemon"), start_s=begin_s, end_s=end_s
        ),
    )


@every_version
def test_single_jobs_are_addressed_so_that_no_whole_array_is_meant(version: str) -> None:
    found = {each.key: each for each in standings(recorded(version, "standing.txt"))}

    assert {key: found[key].address for key in ("1", "3", "6", "7")} == {
        "1": "1",
        "3": "3",
        "6": "6_2",
        "7": "7",
    }
    assert (found["6"].is_over, found["3"].is_held_by_people, found["2"].reservation) == (
        True,
        True,
        "render-1",
    )


@every_version
def test_version_decides_how_json_is_asked_for(version: str) -> None:
    found = json_option(version_in(recorded(version, "version.txt")))

    assert found == ("--json" if version == "22.05" else "--json=v0.0.42")


@every_version
@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"job_state": ["PENDULOUS"]}, "job_state"),
        ({"job_state": None}, "job_state"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": -5}, "time_limit"),
        ({"submit_time": 1 << 80}, "submit_time"),
        ({"user_id": None}, "user_id"),
        ({"comment": ["a list"]}, "comment"),
        ({"nodes": "n[1-"}, "bracket"),
        ({"nodes": ""}, "nodes"),
    ],
)
def test_job_that_is_odd_is_left_out_and_hides_no_other(
    version: str, fields: dict[str, object], culprit: str
) -> None:
    jobs, findings = jobs_in(altered(version, 1, **fields), int(recorded(version, "at.txt")))

    assert [job.key for job in jobs] == ["2", "3", "4", "5"]
    assert len(findings) == 1
    assert culprit in findings[0]


@pytest.mark.parametrize(
    "data", [b"", b"slurm_load_jobs error: no", b"[]", b'{"jobs":{}}', b"{}", b"[" * 100_000]
)
def test_what_is_no_list_of_jobs_is_an_error_that_names_squeue(data: bytes) -> None:
    with pytest.raises(BadField, match="squeue"):
        jobs_in(data, 0)


def test_every_output_cut_short_is_an_error_or_fewer_lines() -> None:
    data = recorded("22.05", "jobs.json").rstrip()
    for length in range(0, len(data), 97):
        with pytest.raises(BadField):
            jobs_in(data[:length], 0)
    lines = recorded("22.05", "nodes.txt")
    for length in range(0, len(lines), 97):
        nodes, findings = nodes_in(lines[:length])
        assert len(nodes) + len(findings) <= 7


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("IDLE", NodeState.UP),
        ("MIXED+PLANNED", NodeState.UP),
        ("ALLOCATED+MAINTENANCE+RESERVED", NodeState.UP),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.UP),
        ("IDLE~", NodeState.UP),
        ("IDLE+CLOUD+POWERING_UP", NodeState.UP),
        ("UNKNOWN", NodeState.UP),
        ("UNKNOWN+DRAIN", NodeState.DRAINED),
        ("UNKNOWN*", NodeState.DOWN),
        ("ALLOCATED+DRAIN", NodeState.DRAINED),
        ("IDLE+DRAIN", NodeState.DRAINED),
        ("MIXED+FAIL", NodeState.DRAINED),
        ("IDLE*", NodeState.DOWN),
        ("MIXED*+DRAIN", NodeState.DOWN),
        ("IDLE+NOT_RESPONDING", NodeState.DOWN),
        ("IDLE+REBOOT_REQUESTED", NodeState.DRAINED),
        ("IDLE+INVALID_REG", NodeState.DRAINED),
        ("DOWN", NodeState.DOWN),
        ("DOWN*", NodeState.DOWN),
        ("DOWN*+DRAIN", NodeState.DOWN),
        ("DOWN+CLOUD+POWERED_DOWN", NodeState.DOWN),
        ("FUTURE", NodeState.DOWN),
        ("ERROR*", NodeState.DOWN),
    ],
)
def test_state_of_a_node_says_whether_it_can_be_promised(words: str, state: NodeState) -> None:
    assert state_of(words) is state


def test_node_or_reservation_that_is_odd_is_left_out_with_a_finding() -> None:
    nodes, odd_nodes = nodes_in(
        b"NodeName=n1 CPUTot=many State=IDLE\nNodeName=n2 CPUTot=2 State=IDLE\nNodeName=n3\n"
    )
    reservations, odd = reservations_in(
        b"ReservationName=a StartTime=soon EndTime=5 Duration=1 Nodes=n1\n"
        b"ReservationName=b StartTime=9 EndTime=5 Duration=1 Nodes=n1\n"
        b"ReservationName=c StartTime=1 EndTime=5 Duration=1 Nodes=(null) Users=x\n"
        b"ReservationName=d StartTime=1 EndTime=5 Duration=1 Nodes=n[1 Users=x\n"
        b"No reservations in the system\n"
    )

    assert [each.node.name for each in nodes] == ["n2"]
    assert ["CPUTot" in odd_nodes[0], "State" in odd_nodes[1]] == [True, True]
    assert reservations == ()
    assert [words.split()[1] for words in odd] == ["'a", "b", "d"]


def test_hold_of_the_submit_filter_is_ours_though_it_says_nothing_but_its_mark() -> None:
    at_s = int(recorded("22.05", "at.txt"))
    data = altered(
        "22.05",
        5,
        admin_comment='outrider: waits {"outrider":1,"metadata":"image: a"}',
        eligible_time=at_s + 360 * 86_400,
    )
    job = next(each for each in jobs_in(data, at_s)[0] if each.key == "5")

    assert (job.state, job.is_held_by_us, job.record.metadata) == (JobState.HELD, True, "image: a")


def test_users_own_begin_is_no_hold() -> None:
    at_s = int(recorded("22.05", "at.txt"))
    data = altered("22.05", 5, eligible_time=at_s + 360 * 86_400)
    job = next(each for each in jobs_in(data, at_s)[0] if each.key == "5")

    assert (job.state, job.is_held_by_us) == (JobState.PENDING, False)


@every_version
def test_waiting_tasks_that_slurm_has_parted_from_their_array_still_count_as_it(version: str) -> None:
    plain = json.loads(recorded(version, "jobs.json"))
    whole = next(row for row in plain["jobs"] if row["job_id"] == 3)
    plain["jobs"] += [{**whole, "job_id": number, "array_task_string": ""} for number in (31, 32)]

    jobs, findings = jobs_in(json.dumps(plain).encode(), int(recorded(version, "at.txt")))

    assert findings == ()
    assert sorted(job.key for job in jobs) == ["1", "2", "3", "4", "5"]
    tasks = {job.key: job.tasks for job in jobs}
    assert tasks["3"] == jobs_of(version)["3"].tasks + 2


def test_jobs_that_have_to_end_before_are_known_though_the_reason_is_another() -> None:
    dependency = (
        "afterok:1(unfulfilled),afterany:2_4(unfulfilled),after:3+5(unfulfilled),singleton(unfulfilled)"
    )
    data = altered("22.05", 5, dependency=dependency, state_reason="JobHeldAdmin")
    job = next(each for each in jobs_in(data, int(recorded("22.05", "at.txt")))[0] if each.key == "5")

    # Job 3 has only to begin, and what else has this job's name is not told.
    assert (job.waits_for, job.is_blocked) == (frozenset({"1", "2"}), False)
