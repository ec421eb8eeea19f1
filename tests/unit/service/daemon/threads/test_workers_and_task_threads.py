"""Threads that carry things out: limits, order, errors as results, and what hangs."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from cachemgr.base.clock import SystemClock
from outrider.core.model import Resources, Workspace
from outrider.metadata.decision import Allowed, PolicyRefusal, Requester
from outrider.metadata.policies import ExternalSection
from outrider.rms.base import BatchSystem, RmsNode, Sight, Unavailable
from outrider.rms.twin.system import Twin
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.threads.workers import OnBatchSystem, Workers
from outrider.service.daemon.world.world import World
from outrider.service.desk.batch.job_effects import migrate_effect
from outrider.service.front import Busy
from outrider.service.nodes.moving import MoveFields
from outrider.service.ports import (
    AskProgram,
    Call,
    Carry,
    ImageClaim,
    ImageTrouble,
    Look,
    NodeReport,
    NodeTrouble,
    Result,
    TellNode,
)
from outrider.service.settings import Settings
from outrider.service.task_threads import TaskThreads
from tests.unit.service.daemon.fakes import (
    PATIENCE_S,
    FakeNodes,
    allow,
    carry_nothing,
    eventually,
    no_images,
    text_log,
    twin,
)

MALLORY = 6666


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


class Landing(Twin):
    """Says of each machine that it has landed, and remembers which thread has asked."""

    def __init__(self) -> None:
        super().__init__([RmsNode(name="n1", capacity=Resources.of(cpus=4))], clock=SystemClock())
        self.threads: list[str] = []

    def land(self, wanted: object) -> bool:
        self.threads.append(threading.current_thread().name)
        return True


class Working:
    def __init__(
        self,
        most_calls: int = 2,
        ask_program: Callable[[AskProgram], Allowed | PolicyRefusal] = allow,
        rms: BatchSystem | None = None,
    ) -> None:
        self.nodes = FakeNodes()
        self.clock = Clock()
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.results: list[Result] = []
        self.workers = Workers(
            World(rms=rms or twin(), nodes=self.nodes, resolve=no_images),
            Settings(most_calls=most_calls),
            carry_effect=carry_nothing,
            ask_program=ask_program,
            clock=self.clock,
            log=text_log(self.log),
            meter=self.metrics,
            call_timeout_s=60,
        )

    def carry_out(self, *calls: Call) -> list[Result]:
        before = len(self.results)
        for call in calls:
            self.workers.carry_out(call, self.results.append)
        eventually(lambda: len(self.results) == before + len(calls), "the results", self.log)
        return self.results[before:]


@pytest.fixture
def working() -> Iterator[Working]:
    made = Working()
    yield made
    made.nodes.go.set()
    made.workers.close()


def test_calls_are_carried_out_where_they_belong(working: Working) -> None:
    found = working.carry_out(Look()) + working.carry_out(TellNode(node="n1"))

    assert isinstance(found[0], Sight)
    assert found[1] == NodeReport(node="n1", at_s=0, limit_bytes=10, used_bytes=0)
    assert working.metrics.value("outrider_calls_total", "node", "done") == 1


def test_last_full_report_of_a_node_says_who_takes_what(working: Working) -> None:
    working.carry_out(TellNode(node="n1", wants_images=True))
    working.carry_out(TellNode(node="n1"))
    [found] = working.workers.node_shares.rows(now_s=60)

    assert (found.node, found.share.user, found.ratio) == ("n1", "7", 0.75)


def test_expected_error_is_the_result(working: Working) -> None:
    [found] = working.carry_out(TellNode(node="away"))

    assert isinstance(found, NodeTrouble)
    assert found.is_away
    assert working.log.getvalue() == ""


def test_fault_of_the_program_is_a_result_too_and_its_traceback_is_logged(working: Working) -> None:
    [found] = working.carry_out(TellNode(node="faulty"))

    assert isinstance(found, NodeTrouble)
    assert "ZeroDivisionError: planted in a call" in working.log.getvalue()


@pytest.mark.parametrize(
    "answer",
    [
        Allowed(rule="external", remark="/bin/ask cannot be started"),
        PolicyRefusal(rule="external", sentence="no", remark="/bin/ask cannot be started"),
        Allowed(rule="external"),
    ],
)
def test_log_is_told_of_a_policy_program_that_gives_no_answer(answer: Allowed | PolicyRefusal) -> None:
    working = Working(ask_program=lambda call: answer)
    section = ExternalSection.model_validate({"command": ["/bin/ask"]})
    workspace = Workspace(name="w", instances=1, resources=Resources.of(cpus=1), duration_s=60)
    who = Requester(user="ada", groups=(), account="")
    [found] = working.carry_out(
        AskProgram(external=section, workspace=workspace, who=who, ticket=1, uid=1001)
    )
    working.workers.close()

    assert found == answer
    assert ("/bin/ask cannot be started" in working.log.getvalue()) is bool(answer.remark)


def test_call_that_hangs_is_given_up_once_and_its_late_result_is_not_told(working: Working) -> None:
    working.workers.carry_out(TellNode(node="hangs"), working.results.append)
    eventually(lambda: working.nodes.told == ["hangs"], "the call")
    working.workers.tend()
    assert working.results == []
    working.clock.at_s += 61
    working.workers.tend()
    working.workers.tend()
    working.nodes.go.set()
    eventually(lambda: running_after_tending(working) == 0, "the late end")

    assert [type(each) for each in working.results] == [NodeTrouble]
    assert "it took more than 60 s" in str(working.results[0])


def running_after_tending(working: Working) -> float | None:
    working.workers.tend()
    return working.metrics.value("outrider_calls_running", "node")


def test_what_waits_behind_nothing_but_hanging_calls_is_given_up_with_them(working: Working) -> None:
    for name in ("hangs", "hangs", "n1"):
        working.workers.carry_out(TellNode(node=name), working.results.append)
    eventually(lambda: working.nodes.told == ["hangs", "hangs"], "the calls")
    working.clock.at_s += 61
    working.workers.tend()

    assert [type(each) for each in working.results] == [NodeTrouble] * 3
    assert "n1" not in working.nodes.told


def test_node_calls_go_on_beside_the_batch_system(working: Working) -> None:
    working.workers.carry_out(TellNode(node="hangs"), working.results.append)
    [found] = working.carry_out(Look())

    assert isinstance(found, Sight)


def test_submissions_of_a_user_that_hang_hold_up_neither_the_service_nor_other_users(
    working: Working,
) -> None:
    go_on = threading.Event()

    def hang(on_rms: OnBatchSystem) -> str:
        name = on_rms(lambda rms: rms.name)
        go_on.wait(PATIENCE_S)
        return name

    hanging = [working.workers.submitting(hang, MALLORY) for _ in range(10)]
    [sight] = working.carry_out(Look())
    others = [
        working.workers.submitting(lambda on_rms: on_rms(lambda rms: rms.name), uid) for uid in range(5)
    ]
    names = {each.result(PATIENCE_S) for each in others}
    has_ended = [each.done() for each in hanging]
    go_on.set()

    assert isinstance(sight, Sight)
    assert names == {"twin"}
    assert has_ended == [False] * 10
    assert {each.result(PATIENCE_S) for each in hanging} == {"twin"}


def test_one_thread_asks_the_batch_system_about_machines_that_move_too() -> None:
    rms = Landing()
    working = Working(rms=rms)
    fields = MoveFields(job="17", uid=1, sources=["n1"], targets=["n2"], rate_bytes_per_s=1, is_live=True)
    results = working.carry_out(Carry(effect=migrate_effect("17", asdict(fields), 0)))
    working.workers.close()

    assert results == [None]
    assert rms.threads == ["the batch system-0"]


def test_stopping_answers_for_all_that_has_not_ended(working: Working) -> None:
    for name in ("hangs", "hangs", "n1"):
        working.workers.carry_out(TellNode(node=name), working.results.append)
    eventually(lambda: working.nodes.told == ["hangs", "hangs"], "the calls")
    working.workers.close()
    working.workers.carry_out(Look(), working.results.append)

    assert [type(each) for each in working.results] == [NodeTrouble] * 3 + [Unavailable]


def test_image_is_looked_up_and_its_trouble_is_told(working: Working) -> None:
    good = working.workers.resolve(ImageClaim(uri="good", uid=1000, gids=()))
    bad = working.workers.resolve(ImageClaim(uri="bad", uid=1000, gids=()))

    assert good.result(PATIENCE_S).size_bytes == 7
    with pytest.raises(ImageTrouble, match="there is none"):
        bad.result(PATIENCE_S)


class Waits:
    """A task that ends when it is told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.has_run = threading.Event()
        self.given_up = ""

    def run(self) -> None:
        self.go.wait(PATIENCE_S)
        self.has_run.set()

    def give_up(self, words: str) -> None:
        self.given_up = words


def test_one_user_cannot_take_all_places() -> None:
    threads = TaskThreads("the test", 1, clock=SystemClock(), most_waiting=10, most_of_one=2)
    tasks = [Waits() for _ in range(4)]
    threads.add(tasks[0], 1000)
    threads.add(tasks[1], 1000)
    with pytest.raises(Busy, match="2 of your requests wait"):
        threads.add(tasks[2], 1000)
    threads.add(tasks[3], 1001)
    for each in tasks:
        each.go.set()
    assert tasks[3].has_run.wait(PATIENCE_S)
    eventually(lambda: threads.running == 0, "the rest")
    threads.add(tasks[2], 1000)

    assert tasks[2].has_run.wait(PATIENCE_S)
    threads.close()


def test_queue_ends_somewhere() -> None:
    threads = TaskThreads("the test", 1, clock=SystemClock(), most_waiting=2)
    tasks = [Waits() for _ in range(4)]
    threads.add(tasks[0])
    eventually(lambda: threads.running == 1, "the first")
    threads.add(tasks[1])
    threads.add(tasks[2])
    with pytest.raises(Busy, match="2 tasks wait for the test already"):
        threads.add(tasks[3])
    tasks[0].go.set()
    threads.close()

    assert {tasks[1].given_up, tasks[2].given_up} == {"the service is stopping"}
