"""Grid Engine as a batch system: its own commands, argument lists, and what they answer as XML."""

from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.reserving.holders import GridEngineHolders
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.system import EXECD_PORT, GridEngine

__all__ = ["EXECD_PORT", "GridEngine", "GridEngineCommands", "GridEngineHolders", "GridEngineSettings"]
