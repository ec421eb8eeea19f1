"""Section 5.2 of the context switch's paper: jobs in lanes, and jobs that are moved together."""

from __future__ import annotations

import pytest

from outrider.core.switch import planner as planning_module
from outrider.core.switch import timing as timing_module
from outrider.core.switch.planner import NoSwitch
from outrider.sim.switch import consolidation
from outrider.sim.switch.check import faults
from outrider.sim.switch.consolidation import compared, run_consolidated, run_static
from outrider.sim.switch.grid_jobs import MACHINES, GridJob, grid_job, paper_jobs

SMALL = (512,) * MACHINES
BOOT_S, SHUTDOWN_S = 6, 25
"""The paper's, section 2.3."""


def job(name: str, alone_s: int, memory_mb: int = 512) -> GridJob:
    return grid_job(name, alone_s, (memory_mb,) * MACHINES)


@pytest.mark.parametrize(("name", "most"), [("ED.A", 9), ("HC.A", 1), ("VP.A", 3), ("MB.A", 3)])
def test_job_alone_takes_as_long_as_it_is_said_to_and_computes_as_its_shape_has_it(
    name: str, most: int
) -> None:
    # 90 s divide into nine, five and three tasks one after the other.
    run = run_static([job(name, 90)])

    assert run.spans == ((name, BOOT_S, BOOT_S + 90),)
    assert max(run.computing) == most


def test_lanes_have_a_processor_for_each_machine_and_nobody_overtakes() -> None:
    # Of 22 processors two jobs have 18; the third begins when the first has left its nodes, and so does the
    # last when the second has.
    run = run_static([job("HC.A", 180), job("HC.B", 360), job("HC.C", 180), job("HC.D", 180)])

    assert run.spans == (
        ("HC.A", 6, 186),
        ("HC.B", 6, 366),
        ("HC.C", 186 + SHUTDOWN_S + BOOT_S, 186 + SHUTDOWN_S + BOOT_S + 180),
        ("HC.D", 366 + SHUTDOWN_S + BOOT_S, 366 + SHUTDOWN_S + BOOT_S + 180),
    )


def test_jobs_of_which_one_machine_computes_run_all_at_once_where_they_are_consolidated() -> None:
    # Eight chains of small machines: 72 x 512 MB are on eleven nodes of 3,584 MB, seven on each, and eight
    # processors compute. In lanes four pairs follow one another.
    names = [f"HC.{each}" for each in "ABCDEFGH"]

    lanes = run_static([job(name, 180) for name in names])
    moved = run_consolidated([job(name, 180) for name in names])

    assert [begin_s for _, begin_s, _ in moved.spans] == [BOOT_S] * 8
    assert max(moved.computing) == 8
    # All are over at 186 s; the look after that is at 210 s, and the second after the last is looked at.
    assert moved.total_s == 210 + SHUTDOWN_S + 1
    assert lanes.spans[-1][1] == 3 * (180 + SHUTDOWN_S) + 4 * BOOT_S


def test_one_processor_is_shared_by_whoever_computes_on_it() -> None:
    # Nine of 512 MB are on two nodes. The first layer of three is spread over both; of later layers three are
    # on one node of two processors, and nobody looks meanwhile: they take half as long again.
    run = run_consolidated([job("MB.A", 90)], nodes=2, every_s=1000)

    assert set(run.wanted) == {0, 3}
    assert {(wanted, computing) for wanted, computing in zip(run.wanted, run.computing, strict=True)} == {
        (0, 0),
        (3, 3),
        (3, 2),
    }
    assert run.computing.count(2) % 45 == 0


def test_job_that_fits_nowhere_is_named() -> None:
    with pytest.raises(NoSwitch, match=r"ED\.A has no room on 2 empty nodes"):
        run_static([job("ED.A", 90)], nodes=2)


@pytest.mark.parametrize("seed", [1, 4, 9])
def test_every_switch_passes_the_independent_check_and_no_work_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    planner = planning_module.plan_switch
    timing = timing_module.in_stages
    planned = []

    def planning(*words, **more):  # type: ignore[no-untyped-def]
        switch = planner(*words, **more)
        planned.append((words[0], switch.target.hosts))
        return switch

    def timed(*words):  # type: ignore[no-untyped-def]
        actions = timing(*words)
        found.extend(faults(planned[-1][0], actions, planned[-1][1]))
        return actions

    monkeypatch.setattr(consolidation, "plan_switch", planning)
    monkeypatch.setattr(consolidation, "in_stages", timed)

    runs = compared(seed)

    assert found == []
    assert len(planned) > len(runs.consolidated.switches) > 0
    # What was computed is the work of all tasks, and the seconds that slowed nodes took longer.
    work_s = sum(task.left_s for each in paper_jobs(seed) for task in each.tasks)
    assert sum(runs.static.computing) == pytest.approx(work_s, abs=len(runs.static.spans) * MACHINES)
    assert work_s - 1 <= sum(runs.consolidated.computing) <= 1.1 * work_s
    assert runs.consolidated.actions["run"] == runs.consolidated.actions["stop"] == 8 * MACHINES
