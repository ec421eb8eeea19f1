"""What a walk through the queue does not look at would have changed nothing: beside one that looks at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.queue import BestEffortQueue
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.besteffort.waiting import StartChances, WaitingLine, WaitingWorkspace
from outrider.sim.setup import HONEST, Setup, ranked_by
from outrider.sim.workload.synthetic import synthetic_leases
from outrider.sim.world import Simulation, SimulationResult
from tests.amount import examples

POOL_BYTES = 20 * 10**9
BASE = replace(HONEST, pool_bytes=POOL_BYTES, keep_bytes=POOL_BYTES, rank=ranked_by("lru"))
SUSPENSIONS = {
    "written to disks": HONEST.suspension,
    "for all": SuspensionRules(makes_way_for_all=True),
    "never": SuspensionRules(is_allowed=False),
}
SETUPS = {
    f"{words}, {rule.value}": replace(BASE, suspension=suspension, backfilling=rule)
    for words, suspension in SUSPENSIONS.items()
    for rule in (Backfilling.GREEDY, Backfilling.RESERVING)
}


def outcome(setup: Setup, seed: int) -> SimulationResult:
    trace = synthetic_leases(40, 8, 5, 1.2, seed)
    world = Simulation(setup, trace.nodes, trace)
    return world.run()


def whole(result: SimulationResult) -> tuple[object, ...]:
    return result.done, result.kept, result.refused, result.stays, result.moved_bytes, result.end_s


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("seed", range(examples(6)))
def test_who_is_passed_over_could_not_have_started(
    setup: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = outcome(SETUPS[setup], seed)

    def everybody(line: WaitingLine, order: int, chances: StartChances) -> WaitingWorkspace | None:
        return line.after(order)

    monkeypatch.setattr(WaitingLine, "possible_after", everybody)
    thorough = outcome(SETUPS[setup], seed)

    assert whole(usual) == whole(thorough)
    assert usual.done


@pytest.mark.parametrize("seed", range(examples(12)))
def test_run_on_nodes_of_which_nothing_was_released_could_not_have_gone_on_earlier(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = {"usual": 0, "thorough": 0}
    plain, kind = BestEffortQueue._go_on_earlier, "usual"

    def counted(queue: BestEffortQueue, run: BestEffortRun, now_s: int) -> bool:
        looked[kind] += 1
        return plain(queue, run, now_s)

    monkeypatch.setattr(BestEffortQueue, "_go_on_earlier", counted)
    usual = outcome(BASE, seed)
    reconsider, kind = BestEffortQueue._reconsider, "thorough"

    def thoroughly(queue: BestEffortQueue, now_s: int) -> list[BestEffortRun]:
        queue.board.everything.freed = queue.board.everything.everyone
        return reconsider(queue, now_s)

    monkeypatch.setattr(BestEffortQueue, "_reconsider", thoroughly)
    thorough = outcome(BASE, seed)

    assert whole(usual) == whole(thorough)
    assert looked["usual"] <= looked["thorough"]
