"""The batch systems beside which Outrider can be installed: one line for each."""

from __future__ import annotations

SYSTEMS = {
    "slurm": "outrider.cli.installing.slurm",
    "gridengine": "outrider.cli.installing.gridengine",
}
"""A name on the command line, and the package with its modules `options` (OPTIONS, which is light) and
`installation` (INSTALLATION, a class that implements `common.port.BatchSystemInstallation`).

The first one is meant where nobody has said which it is.
"""
