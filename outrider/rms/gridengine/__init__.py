"""Grid Engine as a batch system: its own commands, argument lists, and what they answer as XML."""

from outrider.rms.gridengine.commands import Commands
from outrider.rms.gridengine.settings import Settings
from outrider.rms.gridengine.system import EXECD_PORT, GridEngine

__all__ = ["EXECD_PORT", "Commands", "GridEngine", "Settings"]
