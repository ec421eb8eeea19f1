"""Submissions by their keys: what the desk remembers of them, and what a handover does with that."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from outrider.rms.base import BatchSystem, Submission, Unavailable
from outrider.service.answers.jobs import Handover
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.daemon.threads.job_handover import JobHandover
from outrider.service.daemon.threads.loop import Loop
from outrider.service.daemon.threads.workers import OnBatchSystem
from outrider.service.front import Busy, NotDone, Submit
from outrider.service.requests import BeginSubmission, Caller, EndSubmission, Recall, Request
from tests.unit.service.daemon.fakes import text_log
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox

BEGIN = BeginSubmission(key="k1", request_hash="a")
T = TypeVar("T")
Spoil = Callable[[Request], None]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


class Asking:
    """What a handover sees of the loop: the sandbox's desk. `spoil` may fail before it is asked."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.spoil: Spoil = lambda request: None

    def ask(self, caller: Caller, request: Request) -> Future[Answer]:
        self.spoil(request)
        future: Future[Answer] = Future()
        future.set_result(self.sandbox.ask(request, caller))
        return future


class Faulty:
    """The sandbox's batch system, whose `submit` fails before or after it was done."""

    def __init__(self, sandbox: Sandbox, when: str) -> None:
        self._sandbox = sandbox
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox.rms, name)

    def submit(self, submission: Submission) -> str:
        if self._when == "after":
            self._sandbox.rms.submit(submission)
        raise Unavailable("it does not answer")


def handover(asking: Asking, *, key: str = "k1", nodes: int = 1, caller: Caller = ALICE) -> JobHandover:
    wanted = Submit(argv=("/bin/true",), nodes=nodes, duration_s=600, key=key, request_hash=f"{nodes} nodes")
    return JobHandover(cast(Loop[Any], asking), text_log(io.StringIO()), caller, wanted)


def asked_of(rms: BatchSystem) -> OnBatchSystem:
    """What is asked of the batch system is asked here."""

    def on_rms(function: Callable[[BatchSystem], T]) -> T:
        return function(rms)

    return on_rms


def jobs(sandbox: Sandbox) -> list[str]:
    return [job.key for job in sandbox.rms.look().jobs]


def refusal(of: JobHandover, rms: BatchSystem) -> str:
    with pytest.raises(NotDone) as caught:
        of.hand_over(asked_of(rms))
    return caught.value.trouble.code


def test_job_is_charged_to_the_account_that_was_named(sandbox: Sandbox) -> None:
    wanted = Submit(argv=("/bin/true",), nodes=1, duration_s=600, account="astro")
    loop = cast(Loop[Any], Asking(sandbox))

    JobHandover(loop, text_log(io.StringIO()), ALICE, wanted).hand_over(asked_of(sandbox.rms))

    assert [job.account for job in sandbox.rms.look().jobs] == ["astro"]


def test_what_was_begun_is_known_to_have_been_begun_by_the_next_service(sandbox: Sandbox) -> None:
    first = sandbox.ask(BEGIN)
    sandbox.restart()
    second = sandbox.ask(BEGIN)
    ended = sandbox.ask(EndSubmission(key="k1", request_hash="a", job="42"))
    sandbox.restart()

    assert first == Handover(is_new=True)
    assert second == Handover()
    assert ended == sandbox.ask(BEGIN) == Handover(job="42")


def test_what_was_refused_may_be_begun_again(sandbox: Sandbox) -> None:
    sandbox.ask(BEGIN)
    sandbox.ask(EndSubmission(key="k1", request_hash="a"))
    sandbox.restart()

    assert [sandbox.ask(BEGIN), sandbox.ask(BEGIN)] == [Handover(is_new=True), Handover()]


def test_key_is_one_users_and_one_requests(sandbox: Sandbox) -> None:
    sandbox.ask(BEGIN)
    others = sandbox.ask(BEGIN, BOB)
    clashing = [
        sandbox.ask(BeginSubmission(key="k1", request_hash="b")),
        sandbox.ask(EndSubmission(key="k1", request_hash="b", job="7")),
        sandbox.ask(Recall(key="k1", request_hash="b")),
    ]
    unknown = sandbox.ask(EndSubmission(key="k2", request_hash="a", job="7"))

    assert others == Handover(is_new=True)
    assert [each.code for each in clashing if isinstance(each, Trouble)] == ["conflict"] * 3
    assert isinstance(unknown, Trouble)
    assert unknown.code == "not-found"


def test_job_is_handed_over_once(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    first = handover(asking).hand_over(asked_of(sandbox.rms))
    sandbox.restart()
    again = handover(asking).hand_over(asked_of(sandbox.rms))
    other = handover(asking, key="k2").hand_over(asked_of(sandbox.rms))
    bobs = handover(asking, caller=BOB).hand_over(asked_of(sandbox.rms))

    assert again == first
    assert jobs(sandbox) == [first, other, bobs]


def test_job_that_has_ended_is_not_handed_over_again(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    first = handover(asking).hand_over(asked_of(sandbox.rms))
    sandbox.rms.cancel(first, "its user has enough")
    sandbox.restart()
    again = handover(asking).hand_over(asked_of(sandbox.rms))

    assert again == first
    assert jobs(sandbox) == []


def test_job_without_a_key_is_a_new_one_each_time(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    keys = [handover(asking, key="").hand_over(asked_of(sandbox.rms)) for _ in range(2)]

    assert jobs(sandbox) == keys
    assert len(set(keys)) == 2


def test_batch_system_that_did_it_but_did_not_answer_is_asked_for_its_job(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    code = refusal(handover(asking), cast(BatchSystem, Faulty(sandbox, "after")))
    sandbox.restart()
    found = handover(asking).hand_over(asked_of(sandbox.rms))

    assert code == "unavailable"
    assert jobs(sandbox) == [found]


def test_job_of_which_nothing_is_to_be_seen_is_not_handed_over_again(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    refusal(handover(asking), cast(BatchSystem, Faulty(sandbox, "before")))

    assert refusal(handover(asking), sandbox.rms) == "conflict"
    assert jobs(sandbox) == []


def test_job_that_was_refused_may_be_asked_for_again(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)
    codes = [refusal(handover(asking, nodes=99), sandbox.rms) for _ in range(2)]

    assert codes == ["invalid", "invalid"]


def test_nothing_is_handed_over_that_could_not_be_noted_before(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)

    def spoil(request: Request) -> None:
        raise Busy("the desk has too much to do")

    asking.spoil = spoil
    code = refusal(handover(asking), sandbox.rms)
    before = jobs(sandbox)
    asking.spoil = lambda request: None
    made = handover(asking).hand_over(asked_of(sandbox.rms))

    assert (code, before) == ("busy", [])
    assert jobs(sandbox) == [made]


def test_job_that_could_not_be_noted_after_is_answered_and_found_again(sandbox: Sandbox) -> None:
    asking = Asking(sandbox)

    def spoil(request: Request) -> None:
        if isinstance(request, EndSubmission):
            raise Busy("the desk has too much to do")

    asking.spoil = spoil
    first = handover(asking).hand_over(asked_of(sandbox.rms))
    again = handover(asking).hand_over(asked_of(sandbox.rms))

    assert jobs(sandbox) == [first]
    assert again == first
