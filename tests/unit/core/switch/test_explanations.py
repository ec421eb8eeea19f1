"""Why a machine is moved, or is not: each constraint says its word."""

from __future__ import annotations

import pytest

from outrider.core.switch.explanation import explain
from outrider.core.switch.model import NOWHERE, MachineStanding, Situation, SwitchNode, VirtualMachine
from outrider.core.switch.planner import NoSwitch, plan_selected, plan_switch
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.selection import Selection

RUNNING, SLEEPING, WAITING = MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING


def situation(*machines: tuple[int, MachineStanding, int]) -> Situation:
    """Two nodes with 8 of memory; machines by memory, standing and node, each a job of its own."""
    return Situation(
        nodes=tuple(SwitchNode(name=name, capacity=(8,)) for name in ("n0", "n1")),
        machines=tuple(
            VirtualMachine(name=f"m{number}", job=number, demand=(memory,))
            for number, (memory, _, _) in enumerate(machines)
        ),
        standings=tuple(standing for _, standing, _ in machines),
        hosts=tuple(host for _, _, host in machines),
    )


BOTH = ((3, RUNNING, 0), (2, RUNNING, 0))


@pytest.mark.parametrize(
    ("machines", "rules", "number", "words"),
    [
        (BOTH, PlacementRules(), 0,
         ["m0 stays on n0", "room: n0 has (6,) for it beside 1 others, it needs (3,)"]),
        (BOTH, PlacementRules(closed=frozenset({0})), 1,
         ["m1 leaves n0 for n1", "maintenance: n0 is to be empty"]),
        (BOTH, PlacementRules(ban={1: frozenset({0})}), 1, ["ban: it may not be on n0"]),
        (BOTH, PlacementRules(fence={1: frozenset({1})}), 1,
         ["fence: it may be on n1 alone", "fence: n1 is among n1"]),
        (BOTH, PlacementRules(spread=(frozenset({0, 1}),)), 1,
         ["spread: m0 is on n0", "spread: none of m0 is on n1"]),
        (BOTH, PlacementRules(keep=frozenset({1})), 1,
         ["m1 stays on n0", "keep: it is never moved while it runs"]),
        (((3, RUNNING, 0), (2, RUNNING, 1)), PlacementRules(gather=(frozenset({0, 1}),)), 1,
         ["gather: m0, m1 are to be on one node", "gather: m0 are on n0, too, if they run"]),
        (((6, RUNNING, 0), (4, RUNNING, 0)), PlacementRules(), 1,
         ["n0 has (8,), and the 2 machines there that are to run on need (10,): m1 with 4 of memory leave"]),
        (((8, RUNNING, 0), (8, RUNNING, 1), (4, WAITING, NOWHERE)), PlacementRules(), 2,
         ["m2 does not run: its job does not run now",
          "the 1 machines of its job need (4,); the 2 chosen jobs before it in the queue leave (0,) of all "
          "nodes"]),
        (((9, WAITING, NOWHERE), (1, RUNNING, 0)), PlacementRules(), 0,
         ["m0 of its job needs (9,): no node on which it may run is so large"]),
        (((5, RUNNING, 0), (5, RUNNING, 1), (4, WAITING, NOWHERE)), PlacementRules(), 2,
         ["beside the 2 chosen jobs before it in the queue, First Fit Decreasing finds no nodes for all 1 "
          "machines of its job, although (6,) are left in all"]),
        (((3, SLEEPING, 1),), PlacementRules(), 0, ["m0 is resumed on n1, where its state lies"]),
        (((3, SLEEPING, 1),), PlacementRules(closed=frozenset({1})), 0,
         ["m0 is resumed on n0; its state comes from n1", "maintenance: n1 is to be empty"]),
        (((3, WAITING, NOWHERE),), PlacementRules(), 0,
         ["m0 is started on n0", "stage 1 of 1: run on n0"]),
    ],
)  # fmt: skip
def test_constraint_says_its_word(
    machines: tuple[tuple[int, MachineStanding, int], ...],
    rules: PlacementRules,
    number: int,
    words: list[str],
) -> None:
    before = situation(*machines)
    queue = range(len(machines))

    found = explain(before, plan_switch(before, queue, rules), rules, number, queue)

    assert [each for each in words if each not in found] == [], found


def test_site_that_is_too_full_says_which_machine_finds_no_room() -> None:
    """Each node is full of what may not move, and nothing else may run instead."""
    before = situation((8, RUNNING, 0), (8, RUNNING, 1), (3, WAITING, NOWHERE))

    with pytest.raises(NoSwitch, match="no placement was found for all machines"):
        plan_selected(before, Selection(jobs=(0, 1, 2), hosts=()), PlacementRules(keep=frozenset({0, 1})))
    with pytest.raises(NoSwitch, match=r"machine m2 needs \(3,\) on node n0, where \(0,\) are left"):
        plan_selected(before, Selection(jobs=(0, 1, 2), hosts=(0, 1, 0)))
