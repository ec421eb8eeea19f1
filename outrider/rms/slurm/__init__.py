"""Slurm: a thin layer over its own commands, parsers of what they print, and a record with each job."""

from outrider.rms.slurm.accounts import account_of
from outrider.rms.slurm.commands import Account, Commands, Runner, run_process
from outrider.rms.slurm.system import SlurmSystem

__all__ = ["Account", "Commands", "Runner", "SlurmSystem", "account_of", "run_process"]
