"""A switch is planned in a process of its own: in a thread of the service's it would hold up all others.

For thousands of machines that takes seconds, in which nobody else would be answered. The process gets the
situation on its standard input, and its standard output is the plan.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from outrider.core.switch.planner import NoSwitch, Switch, plan_switch

if TYPE_CHECKING:
    from outrider.service.ports import PlanMoves

PLAN_S = 90.0
"""Longer than the heuristic takes for ten times as many machines as are planned for."""
NICENESS = 5


def planned(call: PlanMoves) -> Switch | NoSwitch:
    """The plan, made here and now."""
    try:
        return plan_switch(call.situation, call.queue, call.rules)
    except NoSwitch as error:
        return error


def planned_apart(call: PlanMoves) -> Switch | NoSwitch:
    """The same, made by another process."""
    argv = [sys.executable, "-P", "-m", "outrider.service.daemon.threads.planning"]
    given = pickle.dumps((call.situation, call.queue, call.rules))
    # It finds what this process has found, however that was begun.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            argv, input=given, capture_output=True, timeout=PLAN_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoSwitch(f"the planner's process gives no answer: {error}")
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return NoSwitch(f"the planner's process has ended with {done.returncode}: {last}")
    found = pickle.loads(done.stdout)
    assert isinstance(found, Switch | NoSwitch)
    return found


def main() -> None:
    """The other process."""
    os.nice(NICENESS)
    situation, queue, rules = pickle.load(sys.stdin.buffer)
    found: Switch | NoSwitch
    try:
        found = plan_switch(situation, queue, rules)
    except NoSwitch as error:
        found = error
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
