"""A batch system in memory, with a world that goes on by itself and faults to plan."""

from outrider.rms.twin.faults import EpilogFault, Fault, Faults, Slow
from outrider.rms.twin.outside import Outside
from outrider.rms.twin.rules import GRID_ENGINE, SLURM, Hooks, NotReady, TwinRules
from outrider.rms.twin.system import Twin
from outrider.rms.twin.world import Happening

__all__ = [
    "GRID_ENGINE",
    "SLURM",
    "EpilogFault",
    "Fault",
    "Faults",
    "Happening",
    "Hooks",
    "NotReady",
    "Outside",
    "Slow",
    "Twin",
    "TwinRules",
]
