"""What is installed beside the daemon: that systemd's own tools understand it."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess

import pytest

from tests.repository import ROOT

UNITS = ROOT / "cachemgr" / "daemon" / "units"


def test_unit_starts_the_daemon_and_is_told_of_its_life() -> None:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNITS / "cachemgr.service")
    service = unit["Service"]

    assert service["ExecStart"].endswith("-m cachemgr.daemon")
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    # Mounts in a name space of the daemon's own would be seen by no job.
    assert [name for name in service if name.startswith(("Private", "Protect"))] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("systemd-analyze", ["verify", "--man=no", str(UNITS / "cachemgr.service")], ""),
        ("systemd-sysusers", ["--dry-run", "--root=/", str(UNITS / "outrider.sysusers")], "outrider"),
    ],
)
def test_tools_of_systemd_accept_the_files(tool: str, arguments: list[str], says: str) -> None:
    path = shutil.which(tool)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"{tool} is missing in CI: install the package systemd")
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=240)

    assert done.returncode == 0
    assert says in done.stderr if says else done.stderr == ""
