"""The table of a machine's states: complete, and no way leads back from what is over."""

from __future__ import annotations

import pytest

from cachemgr.base.errors import InUse, NotInPool
from cachemgr.machines import states
from cachemgr.machines.states import STATES, checked_step, refused


def reachable(start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        each = waiting.pop()
        for after in STATES[each].follows:
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found


def test_every_step_leads_to_a_state_of_the_table() -> None:
    assert {after for row in STATES.values() for after in row.follows} <= set(STATES)


def test_from_every_state_a_machine_can_come_to_an_end() -> None:
    assert [
        state for state in STATES if state not in states.OVER and not reachable(state) & set(states.OVER)
    ] == []


def test_nothing_follows_what_is_over() -> None:
    assert [STATES[state].follows for state in states.OVER] == [(), (), ()]


def test_guest_that_may_not_run_is_never_let_go_on() -> None:
    # Only where the guest was running before, it may be let go on after a crash.
    going_on = {state for state, row in STATES.items() if row.alive in (states.UNDO, states.CONTINUE)}

    assert going_on == {states.RUNNING, states.SAVING, states.LEAVING}
    assert STATES[states.SUSPENDED].alive == states.END
    assert STATES[states.MOVED].alive == states.END


@pytest.mark.parametrize(
    ("before", "after"),
    [("suspended", "running"), ("moved", "running"), ("ended", "starting"), ("lost", "loading")],
)
def test_step_that_the_table_has_not_is_refused(before: str, after: str) -> None:
    with pytest.raises(ValueError, match=f"from {before} to {after}"):
        checked_step(before, after)


def test_refusal_says_what_the_state_means() -> None:
    over, busy = refused("m", "lost", "be resumed", "QEMU died"), refused("m", "saving", "be resumed")

    assert isinstance(over, NotInPool)
    assert isinstance(busy, InUse)
    assert str(over) == (
        "machine m is lost (QEMU died): QEMU died and took the guest's memory along; the reason says how; "
        "it cannot be resumed"
    )
