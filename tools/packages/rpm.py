"""The RPMs for RHEL 9, of the same files: its Python 3.11 is a package of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.packages import tree

SPEC = tree.ROOT / "packaging/outrider.spec"


def built(target: Path, wheels: Path, version: str, epoch_s: int) -> Path:
    """The folder of the RPMs."""
    root = target / "tree/rpm"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    tree.head(root, wheels, python="python3.11")
    tree.node(root)
    made = target / "rpm"
    shutil.rmtree(made, ignore_errors=True)
    command = ["rpmbuild", "-bb", "--target", "x86_64", "--quiet"]
    defines = {
        "_topdir": str(target / "rpmbuild"),
        "_rpmdir": str(made),
        "outrider_tree": str(root),
        "outrider_version": version,
        "_source_date_epoch": str(epoch_s),
    }
    for name, value in defines.items():
        command += ["--define", f"{name} {value}"]
    subprocess.run([*command, str(SPEC)], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)})
    return made
