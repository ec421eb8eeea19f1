"""A batch system for one machine that has none: the twin's rules, real processes, a journal.

For trying the service out and for demonstrations. It keeps reservations and jobs over a restart,
but it is no replacement for a batch system: see docs/howto/testbed.md.
"""

from outrider.rms.embedded.launching import Command, Handle, Launcher
from outrider.rms.embedded.machines import JobMachines
from outrider.rms.embedded.processes import ProcessLauncher
from outrider.rms.embedded.system import EmbeddedHooks, EmbeddedSystem

__all__ = [
    "Command",
    "EmbeddedHooks",
    "EmbeddedSystem",
    "Handle",
    "JobMachines",
    "Launcher",
    "ProcessLauncher",
]
