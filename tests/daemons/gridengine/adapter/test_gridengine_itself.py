"""What is Grid Engine's own: what its commands print, what its errors mean, and what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, NodeState, Refused, RmsReservation, Unavailable, Unknown
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngineCommands, GridEngineSettings, context, parsing, seeing
from tests.contract.gridengine_harness import (
    GridEngineHarness,
    gridengine,
    gridengine_of,
    the_cluster,
)
from tests.contract.harness import Scene

ALICE = Account(user="alice", uid=61001, gid=61001)
SETTINGS = GridEngineSettings(account="outrider", reservation_queue="ar.q", environments=((2, "two"),))
JOBS = """<?xml version='1.0'?><detailed_job_info><djob_info><element>
<JB_job_number>25</JB_job_number><JB_ar>6</JB_ar><JB_submission_time>1795321972</JB_submission_time>
<JB_owner>alice</JB_owner><JB_uid>61001</JB_uid><JB_account>sge</JB_account>
<JB_hard_resource_list><qstat_l_requests>
<CE_name>h_rt</CE_name><CE_stringval>3600</CE_stringval></qstat_l_requests>
</JB_hard_resource_list><JB_hard_queue_list><element><QR_name>all.q@n3</QR_name></element></JB_hard_queue_list>
<JB_context><context_list>
<VA_variable>OUTRIDER</VA_variable><VA_value>http://h/a?b&c</VA_value></context_list>
</JB_context><JB_pe>two</JB_pe><JB_pe_range><ranges><RN_min>4</RN_min><RN_max>4</RN_max></ranges></JB_pe_range>
</element></djob_info></detailed_job_info>"""
ROWS = """<?xml version='1.0'?><job_info><queue_info>
<job_list state="running"><JB_job_number>25</JB_job_number><state>r</state>
<JAT_start_time>2026-11-22T04:38:23</JAT_start_time>
<queue_name>all.q@n2</queue_name><master>MASTER</master></job_list>
<job_list state="running"><JB_job_number>25</JB_job_number><state>r</state>
<JAT_start_time>2026-11-22T04:38:23</JAT_start_time>
<queue_name>all.q@n1</queue_name><master>SLAVE</master></job_list></queue_info>
<job_info><job_list state="pending"><JB_job_number>26</JB_job_number><state>hqw</state>
<queue_name></queue_name>
<tasks>1-5:2,9</tasks></job_list></job_info></job_info>"""


class Answering:
    """A runner whose command always ends alike."""

    def __init__(self, done: Output | Exception) -> None:
        self._done = done

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        if isinstance(self._done, Exception):
            raise self._done
        return self._done


def commands(done: Output | Exception) -> GridEngineCommands:
    return GridEngineCommands(Answering(done), variables={}, timeout_s=1)


def test_recorded_job_is_read_with_what_was_asked_for_and_where_it_runs() -> None:
    found = parsing.details(JOBS)
    rows = parsing.tasks(ROWS)
    (job,) = seeing.jobs(found, rows, set(), {6: "vw-1"}, {}, SETTINGS)

    assert (job.user, job.uid, job.limit_s, job.metadata) == ("alice", 61001, 3600, "http://h/a?b&c")
    assert (job.nodes, job.nodes_wanted, job.resources) == (("n1", "n2"), 2, Resources.of(cpus=2))
    assert (job.start_s, job.reservation) == (1795322303, "vw-1")


def test_waiting_tasks_of_an_array_are_counted() -> None:
    assert [row.task for row in parsing.tasks(ROWS)] == ["", "1-5:2,9"]
    assert [seeing.count(text) for text in ("1-5:2,9", "7", "", "1-10")] == [4, 1, 1, 10]


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("", NodeState.UP),
        ("S", NodeState.UP),
        ("d", NodeState.DRAINED),
        ("E", NodeState.DRAINED),
        ("adu", NodeState.DOWN),
    ],
)
def test_states_of_queues_tell_the_nodes_state(letters: str, state: NodeState) -> None:
    queues = [parsing.QueueInstance(queue="all.q", host="n1", slots=2, state=letters)]

    assert [node.state for node in seeing.nodes(queues, SETTINGS)] == [state]


@pytest.mark.parametrize(
    ("done", "kind"),
    [
        (Output(1, b"", "error: commlib error: got select error (Connection refused)"), Unavailable),
        (Output(1, b"", "error: unable to contact qmaster using port 6444 on host"), Unavailable),
        (TimeoutError("30 s"), Unavailable),
        (Output(1, b'denied: job "4444" does not exist', ""), Unknown),
        (Output(1, b'denied: advance_reservation "77" does not exist', ""), Unknown),
        (Output(1, b"", 'Job was rejected because job requests unknown queue "ar.q@nX"'), Unknown),
        (Output(1, b"advance_reservation: no suitable queues", ""), Refused),
    ],
)
def test_failures_mean_what_they_say(done: Output | Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as found:
        commands(done).ask("qalter")

    assert type(found.value) is kind


def test_qsub_cannot_be_told_to_read_a_file_of_options() -> None:
    from outrider.rms.base import Submission
    from outrider.rms.gridengine import submitting

    wanted = Submission(
        user="alice",
        uid=1,
        argv=("@/etc/shadow",),
        nodes_wanted=1,
        resources=Resources.of(cpus=1),
        limit_s=None,
    )

    with pytest.raises(Refused):
        submitting.arguments(wanted, SETTINGS, None, [])


@pytest.mark.parametrize("text", ["", " ", "a,b", "Grüße", "x\ny", "base64:x", "http://h/a?b=c", "a b "])
def test_text_survives_a_context(text: str) -> None:
    word = context.encoded(text)

    assert context.decoded(word) == text
    assert not set(word) & set(",\n\"'")


@pytest.fixture
def harness() -> Iterator[GridEngineHarness]:
    with gridengine() as made:
        yield made


def test_prolonging_a_reservation_in_use_is_refused_and_changes_nothing(harness: GridEngineHarness) -> None:
    scene = Scene(harness)
    wanted = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s(), 600)
    harness.system.reserve(wanted)
    job = harness.system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation="vw-1"))
    scene.watch(wanted.start_s)
    scene.wait_for(
        "the job runs", lambda sight: any(each.key == job and each.nodes for each in sight.jobs), 60
    )

    with pytest.raises(Refused, match="while job"):
        harness.system.reserve(replace(wanted, end_s=wanted.end_s + 120))
    assert scene.reservations() == {"vw-1": wanted}


def test_suspension_that_was_not_heard_is_asked_for_again(harness: GridEngineHarness) -> None:
    """As of a job that has only just begun: Grid Engine forgets to save it, and calls it suspended."""
    scene, cluster = Scene(harness), the_cluster()
    saves = cluster.disk / "bin/save"
    before = saves.read_text()
    saves.write_text("#!/bin/sh\nexit 0\n")
    try:
        job = scene.running_job()
        scene.system.suspend(job)
        scene.settle()
        forgotten, letters = scene.state(job), cluster.run(["qstat", "-u", "alice"]).split()
    finally:
        saves.write_text(before)
    # Not heard once more by one that is just being asked: until it is.
    suspended = scene.suspend(job)

    assert suspended is not None
    assert suspended.state is JobState.SUSPENDED
    assert (forgotten, "hs" in letters) == (JobState.RUNNING, True)


def test_job_of_an_environment_that_no_reservation_has_is_told_the_one_to_use(
    harness: GridEngineHarness,
) -> None:
    scene = Scene(harness)
    harness.system.reserve(scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s() + 600, 600))
    argv = ["qsub", "-terse", "-h", "-b", "y", "-pe", "make", "2", "-l", "h_rt=60", "sleep", "1"]
    job = harness.runner(argv, environment={}, timeout_s=20, account=ALICE).text.decode().strip()

    with pytest.raises(
        Refused, match=f"job {job} asks for parallel environment make.*: submit it with -pe two 2"
    ):
        harness.system.bind(job, "vw-1")
    found = scene.job(job)
    assert found is not None
    assert found.reservation is None


def test_change_of_one_job_lists_neither_all_jobs_nor_nodes(harness: GridEngineHarness) -> None:
    said: list[tuple[str, ...]] = []

    def listening(argv: Sequence[str], **given: Any) -> Output:
        said.append(tuple(argv))
        return harness.runner(argv, **given)

    scene = Scene(harness)
    job = scene.waiting_job()
    system = gridengine_of(the_cluster(), listening)
    system.look()
    said.clear()
    system.note(job, "on its way")
    system.ticket(job, "1.x")
    system.hold(job, "waits")
    system.release(job, scene.nodes[:1])

    assert ("qstat", "-xml", "-j", job) in said
    assert not [argv for argv in said if "*" in argv or argv[0] in ("qhost", "qrstat")]


def test_nodes_are_not_taken_for_lost_when_the_qmaster_is_restarted(harness: GridEngineHarness) -> None:
    before, are_unknown = harness.system.look().nodes, False
    for _ in range(5):
        the_cluster().restart_qmaster()
        letters = the_cluster().run(["qstat", "-f"])
        after = harness.system.look().nodes
        assert before == after
        assert {node.state for node in after} == {NodeState.UP}
        are_unknown = "au" in letters or "-NA-" in letters
        if are_unknown:
            break

    # Where processors are busy the hosts may have reported by then: once is enough.
    assert are_unknown, "the test shows something"


def test_guards_follow_their_reservation_and_end_with_it(harness: GridEngineHarness) -> None:
    scene = Scene(harness)
    wanted = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s() + 600, 600)
    harness.system.reserve(wanted)
    harness.system.reserve(replace(wanted, nodes=scene.nodes[2:], end_s=wanted.end_s + 60))
    during = guards(harness)
    harness.delete_as_administrator("vw-1")
    scene.look()

    assert during == [(wanted.start_s, wanted.end_s + 60, scene.nodes[2:])]
    assert guards(harness) == []


def guards(harness: GridEngineHarness) -> list[tuple[int, int, tuple[str, ...]]]:
    """The reservations of the work queue, as Grid Engine has them."""
    from outrider.rms.gridengine import snapshot

    found = snapshot.advances(GridEngineCommands(harness.runner, variables={}))
    reserved = [each for each in found if each.slots[0][0].startswith("all.q@")]
    return [
        (each.start_s, each.end_s, tuple(name.partition("@")[2] for name, _ in each.slots))
        for each in reserved
    ]


def test_reservation_says_which_names_it_cannot_have(harness: GridEngineHarness) -> None:
    now_s = harness.now_s()
    wanted = RmsReservation(
        name="9x", nodes=("n1",), start_s=now_s + 600, end_s=now_s + 900, users=("alice",)
    )

    with pytest.raises(Refused, match="begin with a letter"):
        harness.system.reserve(wanted)
    assert harness.system.look().reservations == ()
