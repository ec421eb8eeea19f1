"""Machines in turns on two nodes, second by second: where they start they stay, or they are moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.sim.switch.turns import TurnsJob, TurnsPace, TurnsRun, run_turns

NODES = [(10, 2), (10, 2)]
PACE = TurnsPace(start_s=2, end_s=1, leave_s=3, move_s=6, every_s=5)
# One machine of each of the first two stays for long, and leaves no node whole for the third.
JOBS = [
    TurnsJob(name="one", demand=(1, 1), works_s=(10, 100)),
    TurnsJob(name="other", demand=(1, 1), works_s=(10, 100)),
    TurnsJob(name="whole", demand=(1, 2), works_s=(20,)),
]


def test_whoever_needs_a_whole_node_waits_until_one_is_left() -> None:
    # A machine takes 2 s more to begin and 1 s to leave: 103 s until a node is free, and then 23 s.
    assert run_turns(NODES, JOBS, PACE, consolidates=False) == TurnsRun(
        total_s=103 + 23, busy_s=103 + 103 + 23, moves=0
    )


def test_machines_that_are_moved_together_leave_a_whole_node() -> None:
    # The short ones have gone by 13 s; the looks at 15 and 20 s agree; the node is left 3 s later. What moves
    # loses 6 s. The other node has a machine until then, and the one that was left for 23 s more.
    assert run_turns(NODES, JOBS, PACE, consolidates=True) == TurnsRun(
        total_s=103 + 6, busy_s=103 + 6 + 20 + 3 + 23, moves=1
    )


def test_machines_that_start_together_hold_up_one_another() -> None:
    crowded = replace(PACE, crowd_s=4)

    # Four start together, and each waits for three others; the last one starts alone.
    assert run_turns(NODES, JOBS, crowded, consolidates=False).total_s == 103 + 3 * 4 + 23


def test_nobody_overtakes() -> None:
    jobs = [*JOBS, TurnsJob(name="late", demand=(1, 1), works_s=(60,))]

    assert run_turns(NODES, jobs, PACE, consolidates=False).total_s == 103 + 63


def test_machine_that_no_node_can_take_is_found() -> None:
    with pytest.raises(ValueError, match="more than any node has"):
        run_turns(NODES, [TurnsJob(name="huge", demand=(1, 3), works_s=(1,))], PACE, consolidates=False)
