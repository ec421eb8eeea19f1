"""Where Grid Engine's own commands are: Debian's in /usr/bin are scripts that look for the architecture each
time and then start them, which takes ten times as long."""

from __future__ import annotations

import glob
import os
import shutil

from outrider.cli.installing.common.running import ProgramRunner

USUAL = "/usr/bin"
DEBIAN = "/usr/lib/gridengine"
NEEDED = (
    "qstat", "qhost", "qselect", "qrstat", "qsub", "qalter", "qrls", "qmod", "qdel", "qrsub", "qrdel",
    "qconf",
)  # fmt: skip
"""What outriderd asks."""


def folder_of_commands(root: str, cell: str, runner: ProgramRunner) -> str:
    """The folder for the service's configuration: of programs, if they do without what a script sets."""
    found = shutil.which("qconf")
    usual = os.path.dirname(found) if found else USUAL
    if found is None or not _is_script(found):
        return usual
    for place in dict.fromkeys(
        os.path.realpath(each) for each in (*sorted(glob.glob(f"{root}/bin/*")), DEBIAN)
    ):
        paths = [f"{place}/{name}" for name in NEEDED]
        if all(os.access(path, os.X_OK) and not _is_script(path) for path in paths):
            # With no more in its environment than outriderd gives.
            bare = ["env", "-i", f"PATH={place}:/usr/bin:/bin", f"SGE_ROOT={root}", f"SGE_CELL={cell}"]
            if runner.run([*bare, f"{place}/qconf", "-sh"]).is_good:
                return place
    return usual


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
