"""The states of a machine, as one table: what each means, what may follow, and what a crash in it leaves.

A state is written before what it names is done. So whoever finds a machine after a crash
reads what may have happened, looks whether QEMU is alive, and the last two columns say what
is true now. Nothing else decides that.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachemgr.base.errors import InUse, NotInPool

STARTING, RUNNING, SAVING, SUSPENDED, LOADING = "starting", "running", "saving", "suspended", "loading"
LEAVING, ARRIVING, MOVED = "leaving", "arriving", "moved"
STOPPING, ENDED, LOST = "stopping", "ended", "lost"

NOTHING, FORGET, UNDO, UNLOAD, END, FINISH, CONTINUE = (
    "nothing", "forget", "undo", "unload", "end", "finish", "continue"
)  # fmt: skip


@dataclass(frozen=True)
class MachineState:
    """One row: `alive` and `dead` name what is to be done about it when nobody is doing it any more."""

    meaning: str
    follows: tuple[str, ...]
    alive: str
    dead: str


# forget    nothing of the guest has run: remove its overlays, as if it had never been begun
# undo      the guest was stopped for a step that is given up: remove what the step wrote, let the guest go on
# unload    the guest was loaded and has not run: end QEMU, remove the new overlays, the state stays as it was
# end       the guest must not run here any more: end QEMU
# finish    QEMU is gone: read how the job ended, or call the machine lost
# continue  the guest is to run, and does not yet if the one who wrote the state died before saying so
STATES = {
    STARTING: MachineState(
        "QEMU is being started; the guest has not run", (RUNNING, ENDED, LOST), alive=FORGET, dead=FORGET
    ),
    RUNNING: MachineState(
        "the guest runs, or is about to",
        (SAVING, LEAVING, STOPPING, ENDED, LOST),
        alive=CONTINUE,
        dead=FINISH,
    ),
    SAVING: MachineState(
        "the guest is stopped and its memory is being written",
        (SUSPENDED, RUNNING, LOST),
        alive=UNDO,
        dead=FINISH,
    ),
    SUSPENDED: MachineState(
        "memory and disks are files that belong together; nothing runs",
        (LOADING, MOVED, ENDED),
        alive=END,
        dead=NOTHING,
    ),
    LOADING: MachineState(
        "memory is being read into a new QEMU; the guest has not run since it was saved",
        (RUNNING, SUSPENDED),
        alive=UNLOAD,
        dead=UNLOAD,
    ),
    LEAVING: MachineState(
        "the guest runs here while its disks and memory are copied to another place",
        (MOVED, RUNNING, ENDED, LOST),
        alive=UNDO,
        dead=FINISH,
    ),
    ARRIVING: MachineState(
        "disks and memory come from another place; the guest runs there, not here",
        (RUNNING, LOST),
        alive=NOTHING,
        dead=FORGET,
    ),
    MOVED: MachineState(
        "the machine is somewhere else and never runs here again", (), alive=END, dead=NOTHING
    ),
    STOPPING: MachineState("the guest is being told to shut down", (ENDED,), alive=END, dead=FINISH),
    ENDED: MachineState("the job has ended, or somebody has ended it", (), alive=END, dead=NOTHING),
    LOST: MachineState(
        "QEMU died and took the guest's memory along; the reason says how", (), alive=END, dead=NOTHING
    ),
}  # fmt: skip
RUNS = (RUNNING, LEAVING, STOPPING)
"""In these the guest may be running."""
OVER = (MOVED, ENDED, LOST)


def checked_step(before: str, after: str) -> str:
    """The state after a step, which the table must have."""
    if after not in STATES[before].follows:
        raise ValueError(f"no machine goes from {before} to {after}")
    return after


def refused(name: str, state: str, verb: str, reason: str = "") -> InUse | NotInPool:
    """Why a verb does nothing in this state."""
    why = f" ({reason})" if reason else ""
    said = f"machine {name} is {state}{why}: {STATES[state].meaning}; it cannot {verb}"
    return NotInPool(said) if state in OVER else InUse(said)
