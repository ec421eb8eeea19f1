"""Machines that are saved on one node and go on at another: what their jobs carry, and how they come first.

Where a plan has made room for a machine, its job has Grid Engine's highest priority until it runs again. Its
own is kept in its context meanwhile, where its user may write: what is written there gives a job no more than
the priority of jobs for which nothing was said.
"""

from __future__ import annotations

import re
from dataclasses import replace

from outrider.rms.gridengine import context
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.reserving.stopping import ON_NODES
from outrider.rms.gridengine.snapshot import Snapshot
from outrider.rms.saved import SavedMachine

FIRST = 1024
_LOWER = re.compile(r"-[0-9]{1,4}")


def led_elsewhere(machine: SavedMachine, detail: Detail, node: str, *, goes_first: bool) -> list[str]:
    """The arguments of qalter for a job whose machine is on that node now."""
    found = ["-ac", context.machine_word(replace(machine, node=node))]
    # Whom an administrator has put first is left there.
    if goes_first and detail.priority <= 0:
        found += ["-ac", f"{context.PRIORITY}={detail.priority}", "-p", str(FIRST)]
    return found


def give_back_priority(commands: GridEngineCommands, snapshot: Snapshot) -> None:
    """Jobs that have come first, and run: each is as before when it waits the next time."""
    for job in snapshot.sight.jobs:
        detail = snapshot.details[job.key.partition(".")[0]]
        kept = detail.context.get(context.PRIORITY)
        if kept is None or job.state not in ON_NODES:
            continue
        own = kept if _LOWER.fullmatch(kept) and int(kept) > -FIRST else "0"
        given = ["-p", own] if detail.priority == FIRST else []
        commands.attempt("qalter", *given, "-dc", context.PRIORITY, detail.number)
