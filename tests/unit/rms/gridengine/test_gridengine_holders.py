"""Jobs of Grid Engine whose machines run in holder jobs: how they are shown, asked for and accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, JobUse, Landing, Refused, RmsJob, RmsNode, Sight, Unavailable, Unknown
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngineCommands, GridEngineHolders, context, seeing
from outrider.rms.gridengine.parsing import Detail, GridTask
from outrider.rms.gridengine.reserving.using import WRITTEN_S, UseOfJobs
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot

SETTINGS = GridEngineSettings(account="outrider", environments=((2, "each2"),))
HOSTS = tuple(RmsNode(name=name, capacity=Resources.of(cpus=4)) for name in ("n1", "n2", "n3"))
WANTED = Landing(job="7", start_s=1000, node="n2", metadata="image=http://h/a", rate_bytes_per_s=1 << 20)
RECORDS = """==============================================================
qname        all.q
owner        ada
group        people
jobname      outrider-has-7
start_time   Sun Nov 29 03:13:51 2026
end_time     Sun Nov 29 03:15:52 2026
slots        2
==============================================================
group        people
start_time   -/-
end_time     -/-
slots        1
"""


class Answers:
    """Answers commands by their first words, and keeps what was asked."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.answers, self.argvs = answers, list[list[str]]()

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
        code, said = self.answers.get(argv[0], (0, ""))
        return Output(code=code, text=said.encode(), complaint="")

    def system(self) -> GridEngineHolders:
        commands = GridEngineCommands(self, variables={})
        account = Account(user="ada", uid=1, gid=1, home="/users/ada")
        return GridEngineHolders(
            SETTINGS, commands, clock=self, account_of=lambda user, uid: account, warn=self.warned.append
        )

    def now_s(self) -> int:
        return 1100

    @property
    def warned(self) -> list[str]:
        return self.__dict__.setdefault("_warned", [])  # type: ignore[no-any-return]


def own(*words: tuple[str, str], requests: tuple[tuple[str, str], ...] = (("h_rt", "600"),)) -> Detail:
    return Detail(
        number="7", user="ada", uid=1, submitted_s=900, reservation=0, checkpoint=context.CHECKPOINT,
        context={context.METADATA: "image=http://h/a;run=vm", **dict(words)}, requests=requests,
        folder="/users/ada/project", account_text="physics", account="physics", environment="each2", slots=2,
    )  # fmt: skip


def holder(name: str = "outrider-has-7", uid: int = 1, holds: str = "7:500:n2") -> Detail:
    return Detail(
        number="8", user="ada", uid=uid, submitted_s=1000, reservation=0, checkpoint=context.CHECKPOINT,
        context={context.METADATA: "image=http://h/a", context.HOLDS: holds}, requests=(("h_rt", "590"),),
        name=name, account="machines", environment="each2", slots=2,
    )  # fmt: skip


def shown(job: Detail, of_holder: Detail, *, is_placed: bool = False) -> dict[str, RmsJob]:
    rows = [
        GridTask(number="7", state="r", queues=("all.q@n1",), start_s=950)
        if is_placed
        else GridTask(number="7", state="hRq"),
        GridTask(number="8", state="r", queues=("all.q@n2",), start_s=1005),
    ]
    found = seeing.jobs({"7": job, "8": of_holder}, rows, {"7"}, {}, {}, SETTINGS, HOSTS)
    return {each.key: each for each in found}


@pytest.mark.parametrize("word", [context.HOLDER, context.NEXT_HOLDER])
def test_job_runs_where_its_holder_has_its_machine(word: str) -> None:
    found = shown(own((word, "8"), (context.SAVED, "1"), (context.MACHINE, "n1:600:950:990")), holder())
    job, has = found["7"], found["8"]

    assert (job.state, job.nodes, job.start_s, job.limit_s) == (JobState.RUNNING, ("n2",), 1005, 500)
    assert (job.elsewhere, job.eligible, job.saved_on) == (("n1", "n3"), (), ())
    assert (job.can_save, job.is_held_by_us, job.resources) == (True, False, Resources.of(cpus=2))
    assert (has.stands_for, has.payer, has.can_save, has.resources) == ("7", "physics", False, Resources(()))


@pytest.mark.parametrize(
    "other",
    [
        holder(name="outrider-ready-7"),
        holder(name="theirs"),
        holder(uid=2),
        holder(holds="9:500:n2"),
        replace(holder(), context={}),
    ],
)
def test_no_other_job_is_taken_for_one_that_has_its_machine(other: Detail) -> None:
    assert shown(own((context.HOLDER, "8")), other)["7"].state is JobState.HELD


def test_job_that_has_not_left_its_node_yet_runs_there() -> None:
    assert shown(own((context.NEXT_HOLDER, "8")), holder(), is_placed=True)["7"].nodes == ("n1",)


def running() -> RmsJob:
    return replace(shown(own(), holder(), is_placed=True)["7"], start_s=1000)


def test_holder_is_submitted_as_the_owner_and_like_the_job() -> None:
    answers = Answers(qsub=(0, "8\n"))
    requests = (("h_rt", "600"), ("mem_free", "352M"))

    assert answers.system()._submitted(running(), own(requests=requests), WANTED, 500) == "8"
    (argv,) = answers.argvs
    at = argv.index("/usr/lib/outrider/machine")
    pairs = dict(pairwise(argv))
    assert argv[at + 1 :] == ["hold", "7", str(1 << 20), "500"]
    # Grid Engine kills it later than it ends by itself.
    assert pairs["-l"] == "h_rt=590,mem_free=352M"
    assert (pairs["-q"], pairs["-pe"], pairs["-wd"]) == ("all.q@n2", "each2", "/users/ada/project")
    assert (pairs["-N"], pairs["-r"], pairs["-A"]) == ("outrider-waits-7", "n", "physics")
    assert f"{context.HOLDS}=7:500:n2" in argv


@pytest.mark.parametrize(
    ("project", "wanted", "code", "words"),
    [
        ("", "", 0, ["-A", "physics"]),
        ("lab", "", 0, ["-P", "lab", "-A", "physics"]),
        ("lab", "machines", 0, ["-P", "machines", "-A", "machines"]),
        ("lab", "machines", 1, ["-A", "machines"]),
    ],
)
def test_holder_is_charged_to_the_account_that_the_site_names(
    project: str, wanted: str, code: int, words: list[str]
) -> None:
    system = Answers(qconf=(code, "")).system()

    assert system._charged(replace(own(), project=project), wanted) == words


def test_why_there_is_no_holder_is_told() -> None:
    answers = Answers(qsub=(1, "Unable to run job: denied"), qstat=(0, "<x/>"))
    system = answers.system()
    snapshot = _empty()

    assert not system._begun(running(), own(), WANTED, snapshot)
    assert "denied" in answers.warned[0]


@pytest.mark.parametrize(("limit", "is_limited"), [("INFINITY", False), ("24:00:00", True)])
def test_job_without_a_limit_does_not_move_alive_in_a_queue_that_has_one(
    limit: str, is_limited: bool
) -> None:
    answers = Answers(qconf=(0, f"qname all.q\ns_rt   INFINITY\nh_rt   {limit}\n"), qsub=(0, "8\n"))
    system, job = answers.system(), replace(running(), limit_s=None)
    if is_limited:
        assert not system._begun(job, own(requests=()), WANTED, _empty())
    else:
        with pytest.raises(Unavailable, match="holder job 8 waits for room"):
            system._begun(job, own(requests=()), WANTED, _empty())


def test_another_run_of_the_job_is_not_moved() -> None:
    with pytest.raises(Refused, match="it has come back"):
        Answers().system()._begun(replace(running(), start_s=1001), own(), WANTED, _empty())


def test_what_a_holder_had_is_what_grid_engine_charges() -> None:
    use = UseOfJobs(GridEngineCommands(Answers(qacct=(0, RECORDS)), variables={})).use_of("8", 0)

    assert use == JobUse(start_s=1795922031, end_s=1795922152, cpus=2, group="people")


def test_accounting_that_has_not_been_written_yet_is_waited_for() -> None:
    uses = UseOfJobs(GridEngineCommands(Answers(qacct=(1, "error: job id 8 not found")), variables={}))
    with pytest.raises(Unavailable):
        uses.use_of("8", 100)
    with pytest.raises(Unavailable):
        uses.use_of("8", 99 + WRITTEN_S)
    with pytest.raises(Unknown):
        uses.use_of("8", 100 + WRITTEN_S)


def _empty() -> Snapshot:
    sight = Sight(at_s=1100, nodes=HOSTS, jobs=(), reservations=())
    return Snapshot(sight=sight, details={"7": own()}, instances=(), advances=(), guards=())
