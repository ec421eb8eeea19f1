"""Let a fault strike at the first step of some kind, wherever that comes."""

from __future__ import annotations

from tests.simulation.crash.memorynodes import Fault
from tests.simulation.crash.world import World


def die_when(world: World, what: str, path_end: str) -> None:
    """The process is going to die at its first such step."""
    strike_when(world, "crash", what, path_end)


def refuse_when(world: World, what: str, path_end: str) -> None:
    """The disk is going to refuse the first such step, and nothing after it."""
    strike_when(world, "EIO", what, path_end)


def strike_when(world: World, kind: str, what: str, path_end: str) -> None:
    def before(step: str, path: str) -> None:
        if step == what and path.endswith(path_end):
            world.disk.before_step = None
            world.disk.arm(Fault(kind, 0))

    world.disk.before_step = before
