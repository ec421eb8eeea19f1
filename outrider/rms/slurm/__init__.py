"""Slurm: a thin layer over its own commands, parsers of what they print, and a record with each job."""

from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.holders import SlurmHolders
from outrider.rms.slurm.system import SlurmSystem

__all__ = ["SlurmCommands", "SlurmHolders", "SlurmSystem"]
