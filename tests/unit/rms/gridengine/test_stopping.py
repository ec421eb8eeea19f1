"""Jobs of Grid Engine that make way: stopped first, and requeued when their end would be known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsJob, Sight, Unavailable
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import context
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.reserving import stopping
from outrider.rms.gridengine.snapshot import Snapshot

RUN_S = 1000


class AskedCommands:
    """Takes every command and keeps what it was."""

    def __init__(self) -> None:
        self.argvs: list[list[str]] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        self.argvs.append(list(argv))
        return Output(code=0, text=b"", complaint="")

    def last(self, count: int) -> list[list[str]]:
        """Without the folders of the programs."""
        return [[argv[0].rpartition("/")[2], *argv[1:]] for argv in self.argvs[-count:]]


@pytest.fixture
def asked() -> AskedCommands:
    return AskedCommands()


def commands(asked: AskedCommands) -> GridEngineCommands:
    return GridEngineCommands(asked, variables={"PATH": "/usr/bin"})


def job(state: JobState = JobState.RUNNING) -> RmsJob:
    return RmsJob(
        key="7", user="ada", uid=1, state=state, nodes_wanted=1, resources=Resources.of(cpus=1), limit_s=600,
        submitted_s=900, nodes=("n1",), start_s=RUN_S, can_requeue=True,
    )  # fmt: skip


def detail(stopped: str = "", checkpoint: str = "") -> Detail:
    return Detail(
        number="7", user="ada", uid=1, submitted_s=900, reservation=0, checkpoint=checkpoint,
        context={context.STOPPED: stopped} if stopped else {},
    )  # fmt: skip


def requeue(asked: AskedCommands, found: Detail, now_s: int, state: JobState = JobState.RUNNING) -> None:
    stopping.requeue(commands(asked), job(state), found, "it makes way", now_s)


@pytest.mark.parametrize("mark", ["", f"{RUN_S - 500}:1195", "x"], ids=["none", "of-another-run", "a-users"])
def test_job_that_runs_is_held_and_stopped_before_it_is_requeued(asked: AskedCommands, mark: str) -> None:
    with pytest.raises(Unavailable):
        requeue(asked, detail(mark), 1200)

    noted = ["-h", "s", "-ac", "OUTRIDER_NOTE=it makes way", "-ac", f"OUTRIDER_STOPPED={RUN_S}:1200"]
    assert asked.last(9) == [["qalter", *noted, "7"], ["qmod", "-sj", "7"]]


def test_job_that_was_stopped_is_requeued_when_its_end_would_be_known(asked: AskedCommands) -> None:
    stopped = detail(f"{RUN_S}:1200")
    with pytest.raises(Unavailable):
        requeue(asked, stopped, 1200 + stopping.REPORTED_S - 1)
    before = list(asked.argvs)
    requeue(asked, stopped, 1200 + stopping.REPORTED_S)

    assert before == []
    assert asked.last(9)[-1] == ["qmod", "-rj", "7"]


@pytest.mark.parametrize(
    ("found", "state"),
    [(detail(checkpoint="theirs"), JobState.RUNNING), (detail(), JobState.STARTING)],
    ids=["with-a-checkpoint", "before-its-first-process"],
)
def test_job_that_cannot_be_stopped_is_requeued_at_once(
    asked: AskedCommands, found: Detail, state: JobState
) -> None:
    requeue(asked, found, 1200, state)

    assert [argv[:2] for argv in asked.last(9)] == [["qalter", "-h"], ["qmod", "-rj"]]


@pytest.mark.parametrize(("after_s", "count"), [(stopping.FORGOTTEN_S - 1, 0), (stopping.FORGOTTEN_S, 2)])
def test_job_that_nobody_requeues_after_all_goes_on(asked: AskedCommands, after_s: int, count: int) -> None:
    snapshot = Snapshot(
        sight=Sight(at_s=1200 + after_s, nodes=(), jobs=(job(),), reservations=()),
        details={"7": detail(f"{RUN_S}:1200")},
        instances=(),
        advances=(),
        guards=(),
    )

    stopping.let_go_on(commands(asked), snapshot)

    wanted = [["qmod", "-usj", "7"], ["qalter", "-h", "S", "-dc", "OUTRIDER_STOPPED", "7"]]
    assert asked.last(9) == wanted[:count]
