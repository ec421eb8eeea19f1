"""On how many nodes a job runs in a parallel environment that the configuration does not name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from outrider.core.model import Resources
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngine, GridEngineCommands, GridEngineSettings
from outrider.rms.gridengine.context import METADATA
from outrider.rms.gridengine.environments import KEPT_S, MOST_ASKED, Environments
from outrider.rms.gridengine.parsing import Detail
from tests.contract.gridengine_harness import GridEngineHarness, account_of, gridengine, the_cluster

ALICE = Account(user="alice", uid=61001, gid=61001)
SETTINGS = GridEngineSettings(account="outrider", environments=((2, "two"),))


class Answering:
    """`qconf -sp`, as each environment's rule has it."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.rules = rules
        self.asked: list[str] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        assert list(argv[:2]) == ["qconf", "-sp"]
        self.asked.append(argv[2])
        if argv[2] not in self.rules:
            return Output(code=1, text=b"", complaint=f'"{argv[2]}" does not exist')
        told = f"pe_name            {argv[2]}\nslots   99\nallocation_rule    {self.rules[argv[2]]}\n"
        return Output(code=0, text=told.encode(), complaint="")


OURS = Detail(
    number="1", user="ada", uid=2001, submitted_s=0, reservation=0, slots=4, context={METADATA: "http://h/a"}
)


def settings_of(
    known: Environments, runner: Answering, details: list[Detail], now_s: int = 0
) -> GridEngineSettings:
    return known.settings(GridEngineCommands(runner, variables={}, timeout_s=1), SETTINGS, details, now_s)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("4", ((2, "two"), (4, "mpi"))), ("$fill_up", ((2, "two"),)), ("0", ((2, "two"),)), ("", ((2, "two"),))],
)
def test_rule_that_is_a_number_says_how_many_slots_a_node_gives(
    rule: str, expected: tuple[tuple[int, str], ...]
) -> None:
    found = settings_of(Environments(), Answering({"mpi": rule}), [replace(OURS, environment="mpi")])

    assert found.environments == expected


def test_environment_is_asked_for_once_in_a_while_and_only_for_jobs_with_an_image() -> None:
    known, runner = Environments(), Answering({"mpi": "4", "other": "2"})
    ours = replace(OURS, environment="mpi")
    others = replace(OURS, environment="other", context={})
    configured = replace(OURS, environment="two")
    for now_s in (0, 10, KEPT_S - 1, KEPT_S):
        settings_of(known, runner, [ours, others, configured], now_s)

    assert runner.asked == ["mpi", "mpi"]


def test_environments_that_users_make_up_are_asked_for_a_few_at_a_time() -> None:
    known, runner = Environments(), Answering({})
    made_up = [replace(OURS, environment=f"none{number:03}") for number in range(100)]
    found = settings_of(known, runner, made_up)

    assert len(runner.asked) == MOST_ASKED
    assert found.environments == SETTINGS.environments


@pytest.fixture
def harness() -> Iterator[GridEngineHarness]:
    with gridengine() as made:
        yield made


def test_real_job_of_an_unnamed_environment_runs_on_as_many_nodes_as_its_slots_fill(
    harness: GridEngineHarness,
) -> None:
    (slots, name), *_ = SETTINGS.environments
    system = GridEngine(
        replace(SETTINGS, environments=()),
        GridEngineCommands(harness.runner, variables={}),
        clock=the_cluster(),
        account_of=account_of,
    )
    argv = ["qsub", "-terse", "-h", "-b", "y", "-ac", "OUTRIDER=http://h/a", "-pe", name, "4", "sleep", "1"]
    job = harness.runner(argv, environment={}, timeout_s=20, account=ALICE).text.decode().strip()
    found = {each.key: each for each in system.look().jobs}

    assert (found[job].nodes_wanted, slots) == (2, 2)
    assert found[job].resources == Resources.of(cpus=2)
