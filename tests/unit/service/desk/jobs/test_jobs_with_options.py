"""Jobs that name several sizes: one is taken before their start, and another if it gets better."""

from __future__ import annotations

import pytest

from outrider.core.model import Resources
from outrider.metadata.joblines import parse_job_lines
from outrider.metadata.notation.job_options import write_finish_by
from outrider.rms.base import JobState, RmsJob, Submission
from outrider.service.answers.jobs import JobDetails
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.ordering.worth import in_order
from outrider.service.requests import ShowJob
from tests.unit.service.desk.sandbox import ALICE, RATE, Sandbox

HOUR_S = 3600
WIDE, NARROW = "option: nodes=4 time=15\n", "option: nodes=1 time=60\n"


def fill(sandbox: Sandbox, *lasting_s: int) -> list[str]:
    """Jobs of others on so many nodes, each with its limit."""
    submissions = [
        Submission(
            user="eve",
            uid=1009,
            argv=("sleep", str(limit_s)),
            nodes_wanted=1,
            resources=Resources.of(cpus=8),
            limit_s=limit_s,
        )
        for limit_s in lasting_s
    ]
    keys = [sandbox.rms.outside.submit(each) for each in submissions]
    sandbox.sleep(40)
    return keys


def put(sandbox: Sandbox, more: str, nodes: int = 1, limit_s: int = HOUR_S) -> str:
    return sandbox.submit(nodes=nodes, limit_s=limit_s, more=more, argv=("sleep", "600"))


def sizes(sandbox: Sandbox, key: str) -> list[str]:
    """The sizes that a job was given."""
    return [each.why for each in sandbox.rms.log if each.subject == key and each.what == "resized"]


def size(sandbox: Sandbox, key: str) -> tuple[int, int | None]:
    job = sandbox.job(key)
    assert job is not None
    return job.nodes_wanted, job.limit_s


def note(sandbox: Sandbox, key: str) -> str:
    answer = sandbox.ask(ShowJob(job=key))
    assert isinstance(answer, JobDetails), answer
    return str(answer)


def test_of_free_nodes_that_option_is_taken_that_ends_first(sandbox: Sandbox) -> None:
    key = put(sandbox, NARROW + WIDE)
    sandbox.sleep(90)

    assert sizes(sandbox, key) == ["4 nodes for 900 s"]
    job = sandbox.job(key)
    assert job is not None
    assert (job.state, len(job.nodes)) == (JobState.RUNNING, 4)


def test_with_a_deadline_the_least_of_the_nodes_is_taken_that_is_in_time(sandbox: Sandbox) -> None:
    slow = f"finish-by: {write_finish_by(sandbox.now_s + 2 * HOUR_S)}\n"
    soon = f"finish-by: {write_finish_by(sandbox.now_s + HOUR_S // 2)}\n"
    steep = "option: nodes=1 time=40\noption: nodes=4 time=15\n"
    patient = put(sandbox, steep + slow, limit_s=2400)
    sandbox.sleep(90)
    sandbox.rms.outside.cancel(patient)
    sandbox.sleep(60)
    hasty = put(sandbox, steep + soon, limit_s=2400)
    sandbox.sleep(90)

    assert sizes(sandbox, patient) == []
    assert sizes(sandbox, hasty) == ["4 nodes for 900 s"]


def test_waiting_job_is_switched_when_nodes_become_free(sandbox: Sandbox) -> None:
    others = fill(sandbox, 8 * HOUR_S, 8 * HOUR_S, 8 * HOUR_S, HOUR_S)
    key = put(sandbox, NARROW + "option: nodes=3 time=15\n")
    sandbox.sleep(120)
    before = size(sandbox, key)
    # The node that it waits for stays busy: there it would start at once.
    for each in others[:3]:
        sandbox.rms.outside.cancel(each)
    sandbox.sleep(180)

    assert before == (1, HOUR_S)
    assert sizes(sandbox, key) == ["3 nodes for 900 s"]
    job = sandbox.job(key)
    assert job is not None
    assert (job.state, len(job.nodes)) == (JobState.RUNNING, 3)


def test_running_job_keeps_its_size(sandbox: Sandbox) -> None:
    others = fill(sandbox, 8 * HOUR_S, 8 * HOUR_S, 8 * HOUR_S)
    key = put(sandbox, NARROW + WIDE)
    sandbox.sleep(90)
    for each in others:
        sandbox.rms.outside.cancel(each)
    sandbox.sleep(200)

    job = sandbox.job(key)
    assert job is not None
    assert (job.state, job.nodes_wanted) == (JobState.RUNNING, 1)
    assert sizes(sandbox, key) == []


def test_job_whose_owner_has_changed_it_is_left_alone(sandbox: Sandbox) -> None:
    others = fill(sandbox, 8 * HOUR_S, 8 * HOUR_S, 8 * HOUR_S, HOUR_S)
    key = put(sandbox, NARROW + WIDE)
    sandbox.sleep(90)
    sandbox.rms.resize(key, 2, HOUR_S)
    sandbox.sleep(60)
    words = note(sandbox, key)
    for each in others:
        sandbox.rms.outside.cancel(each)
    sandbox.sleep(120)

    assert "its size was changed meanwhile" in words
    assert sizes(sandbox, key) == ["2 nodes for 3600 s"]
    job = sandbox.job(key)
    assert job is not None
    assert (job.state, len(job.nodes)) == (JobState.RUNNING, 2)


def test_option_whose_image_is_there_is_taken_before_a_shorter_one(sandbox: Sandbox) -> None:
    there = "https://images.example.org/ubuntu"
    sandbox.sizes["https://images.example.org/large"] = 1200 * RATE
    sandbox.submit(nodes=1, argv=("sleep", "60"))
    sandbox.sleep(200)
    ways = f"option: nodes=1 time=60\noption: nodes=1 time=62 image={there}\n"
    key = sandbox.submit("large", more=ways, argv=("sleep", "600"))
    sandbox.sleep(120)

    job = sandbox.job(key)
    assert job is not None
    assert (job.state, job.option, job.limit_s) == (JobState.RUNNING, 2, 62 * 60)
    assert "option 2 of 2" in note(sandbox, key)


def test_option_whose_image_cannot_be_had_is_left_out(sandbox: Sandbox) -> None:
    ways = "option: nodes=1 time=60\noption: nodes=2 time=5 image=https://images.example.org/none\n"
    key = sandbox.submit(more=ways, limit_s=HOUR_S, argv=("sleep", "600"))
    sandbox.sleep(120)

    job = sandbox.job(key)
    assert job is not None
    assert (job.state, len(job.nodes)) == (JobState.RUNNING, 1)


def test_option_that_takes_a_part_of_a_node_is_taken_where_whole_ones_are_not_free(sandbox: Sandbox) -> None:
    for _ in range(4):
        sandbox.rms.outside.submit(
            Submission(
                user="eve",
                uid=1009,
                argv=("sleep", "9999"),
                nodes_wanted=1,
                resources=Resources.of(cpus=5),
                limit_s=8 * HOUR_S,
            )
        )
    sandbox.sleep(40)
    key = put(sandbox, "option: nodes=1 time=30 cpus=8\noption: nodes=1 time=90 cpus=3\n")
    sandbox.sleep(120)

    job = sandbox.job(key)
    assert job is not None
    assert (job.state, job.resources["cpus"], job.limit_s) == (JobState.RUNNING, 3, 90 * 60)


def test_job_that_was_changed_while_the_service_was_away_is_left_alone(sandbox: Sandbox) -> None:
    fill(sandbox, 8 * HOUR_S, 8 * HOUR_S, 8 * HOUR_S, HOUR_S)
    key = put(sandbox, WIDE + "option: nodes=1 time=50\n")
    sandbox.sleep(90)
    before = sandbox.job(key)
    sandbox.restart()
    sandbox.rms.resize(key, 1, HOUR_S // 2)
    sandbox.sleep(120)

    assert before is not None
    assert before.option == 2
    assert "its size was changed meanwhile" in note(sandbox, key)
    assert size(sandbox, key) == (1, HOUR_S // 2)


def entry(key: str, uid: int, value: str, more: str = "") -> JobEntry:
    lines = parse_job_lines(f"image: a\n{more}" + (f"value: {value}\n" if value else ""))
    job = RmsJob(
        key=key,
        user="u",
        uid=uid,
        state=JobState.HELD,
        resources=Resources.of(cpus=1),
        limit_s=HOUR_S,
        submitted_s=0,
    )
    return JobEntry(job=job, since_s=0, lines=lines)


def test_worthiest_of_a_users_jobs_comes_first_and_before_nobody_elses() -> None:
    soon = f"finish-by: {write_finish_by(2 * HOUR_S)}\n"
    entries = [
        entry("1", 1, "1"),
        entry("2", 2, "0.001"),
        entry("3", 1, ""),
        entry("4", 1, "3", "option: nodes=6 time=60\n"),
        entry("5", 1, "2"),
        entry("6", 2, "1000"),
        entry("7", 1, "1", soon),
    ]

    found = in_order({each.key: each for each in entries}, 0)

    # 7 has two hours left; 4 is worth a half for each node.
    assert found == ["7", "6", "3", "5", "1", "2", "4"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("option: nodes=0 time=5\n", "option 1"),
        ("option: nodes=-2 time=5\n", "option 1"),
        (f"option: nodes={'9' * 30} time=5\n", "option 1"),
        (NARROW + "option: nodes=\u0662 time=5\n", "option 2"),
        (NARROW + "option: nodes=2 time=5 cpus=4\n", "option 2: cpus is in some options only"),
        (NARROW + "option: nodes=2 time=5 gpus=4\n", "option 2: gpus is not a key"),
        (NARROW + "option: nodes=2 time=5 digest=sha256:0\n", "option 2: digest has no effect without"),
        (NARROW + "option: nodes=1 time=5\n", "option 2: it has the size of option 1"),
        ("".join(f"option: nodes={n} time=5\n" for n in range(1, 101)), "100 options"),
        (NARROW + "finish-by: tomorrow\n", "finish-by is"),
        (NARROW + "value: -5\n", "value is"),
        (NARROW + "value: \u0665\n", "value is"),
    ],
)
def test_hostile_lines_are_refused_with_the_reason(sandbox: Sandbox, more: str, words: str) -> None:
    key = sandbox.submit(more=more, caller=ALICE)
    sandbox.sleep(60)

    assert words in note(sandbox, key)
    job = sandbox.job(key)
    assert job is not None
    assert job.state is JobState.HELD
