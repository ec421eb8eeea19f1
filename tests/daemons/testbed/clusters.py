"""Which clusters the tests of the testbed may make, and what of the machine must stay as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed import gridengine, slurm
from testbed.suites import SUITES

# The machine's own Slurm always; the others where the time for their trees is given.
VERSIONS = sorted(SUITES) if os.environ.get("OUTRIDER_TEST_VERSIONS") else [None]


def needs_slurm(version: str | None = None) -> None:
    _needs(slurm.missing(version))


def needs_gridengine() -> None:
    _needs(gridengine.missing())


def _needs(lack: str | None) -> None:
    if lack is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{lack}; in CI it must be there")
        pytest.skip(lack)


def machine() -> dict[str, object]:
    """What a cluster on this machine could have changed."""
    slurm = ("/etc/slurm", "/etc/munge", "/etc/outrider", "/run/munge", "/var/lib/slurm", "/var/log/slurm")
    gridengine = ("/var/lib/gridengine", "/var/lib/gridengine/default", "/var/spool/gridengine")
    return {
        "files": {path: _names(Path(path)) for path in (*slurm, *gridengine)},
        "texts": {path: Path(path).read_bytes() for path in ("/etc/passwd", "/etc/group", "/etc/hosts")},
        # Those for files come whenever anybody needs one more; a cluster's own are looked for by its name.
        "devices": {
            str(each): _about(each)
            for each in sorted(Path("/dev").iterdir())
            if not each.name.startswith("loop")
        },
        "name": Path("/proc/sys/kernel/hostname").read_text(),
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if "testbed" in line],
        "links": subprocess.run(
            ["ip", "-brief", "link"], capture_output=True, text=True, timeout=240, check=True
        ).stdout.split()[::3],
    }


def _about(path: Path) -> tuple[int, int, int]:
    """Mode, owner and group, of which a testbed changes none."""
    about = path.lstat()
    return about.st_mode, about.st_uid, about.st_gid


def loops(name: str) -> list[str]:
    """The files of a cluster that are devices of this machine."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.endswith(f"/{name}.xfs"):
            found.append(text)
    return found


def processes(name: str) -> list[str]:
    """The commands of this machine whose root is a host of a cluster of that name."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mounts = (path / "mounts").read_text()
            if f"/run/outrider-testbed/{name}/" in mounts:
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def _names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir()) if path.exists() else []
