"""The installed units under a real systemd: what users may do through them, and what the doctor says."""

from __future__ import annotations

import json
import os
import pwd
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.cli.installing.common import headfiles, nodefiles
from testbed.booted import BootedMachine
from testbed.records import TestbedError
from testbed.suites import SUITES, tree_of
from tests.repository import ROOT
from tests.security.siege import python_of

TREES = ["own", *(["24.11"] if os.environ.get("OUTRIDER_TEST_VERSIONS") else [])]
PATIENCE_S = 60.0
USER = "games"
SOCKET = "/run/outrider/outriderd.sock"
CONFIGURATION = """version: 1
link: {rate: 50MB, reserve: at-once, spread: 1s}
timings: {look: 1s, progress: 1s, reconcile: 30s, sight: 60s}
backend: {kind: embedded, nodes: 'n[1-2]', cpus: 4, memory: 4GiB, pool: 50MB}
"""
WORKSPACE = """version: 1
metadata: {name: render, image: {uri: "file:///srv/render.img", private: true}}
deployment: {nodes: 1, duration: 1h}
"""


class Installed:
    """A machine with both units as the installer writes them, and the programs of these sources."""

    def __init__(self, machine: BootedMachine, python: str, sources: str) -> None:
        self.machine = machine
        self._python = python
        self._sources = sources

    def python(self, *words: str, user: str | None = None) -> str:
        """What a program of these sources prints."""
        argv = ["env", f"PYTHONPATH={self._sources}", "PYTHONDONTWRITEBYTECODE=1", self._python, *words]
        return self.machine.run(argv, user=user).stdout

    def outrider(self, *words: str, user: str | None = None) -> str:
        return self.python("-m", "outrider.cli.main", *words, user=user)

    def restart(self, *units: str) -> None:
        self.machine.run(["systemctl", "daemon-reload"])
        self.machine.run(["systemctl", "restart", *units])

    def install(self) -> None:
        self.machine.write("/etc/outrider/outriderd.yaml", CONFIGURATION)
        self.machine.write("/etc/outrider/cachemgr.conf", "[cachemgr]\nnode = n9\n")
        for name, unit, command in (
            ("outriderd", headfiles.unit("root"), "outrider.service"),
            ("cachemgr", nodefiles.unit(), "cachemgr serve"),
        ):
            self.machine.write(f"/etc/systemd/system/{name}.service", unit.decode())
            start = f"ExecStart=\nExecStart={self._python} -m {command}\n"
            drop_in = f"[Service]\nEnvironment=PYTHONPATH={self._sources}\n{start}"
            self.machine.write(f"/etc/systemd/system/{name}.service.d/sources.conf", drop_in)
        self.machine.write("/srv/render.img", "an image" * 100_000, mode=0o600)
        self.machine.run(["chown", USER, "/srv/render.img"])
        self.python("-m", "outrider.service", "--init")
        self.python("-m", "cachemgr", "--pool", "/var/cache/outrider", "init", "--limit", "50MB")
        self.restart("outriderd", "cachemgr")
        eventually(lambda: '"is_promising": true' in self.outrider("status", "--json"), self)


def eventually(claim: Callable[[], bool], installed: Installed) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + PATIENCE_S
    while not claim():
        assert clock.monotonic_s() < until_s, installed.machine.journal("outriderd")
        clock.sleep(0.1)


@pytest.fixture(scope="module", params=TREES)
def installed(request: pytest.FixtureRequest) -> Iterator[Installed]:
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("a machine of its own needs root")
        pytest.skip("a machine of its own needs root")
    is_own = request.param == "own"
    try:
        booted = BootedMachine(Path("/") if is_own else tree_of(request.param), [ROOT])
        with booted as machine:
            python, sources = _own() if is_own else ("/usr/bin/python3", str(ROOT))
            found = Installed(machine, python, sources)
            found.install()
            yield found
    except TestbedError as error:
        pytest.fail(f"{SUITES.get(request.param, 'this machine')}: {error}")


def _own() -> tuple[str, str]:
    """An interpreter of this machine that users may run, and where it finds the libraries."""
    return python_of(pwd.getpwnam(USER).pw_uid)[0], os.pathsep.join(
        [str(ROOT), sysconfig.get_path("purelib")]
    )


@pytest.mark.parametrize("unit", ["outriderd", "cachemgr"])
def test_daemon_of_a_unit_has_all_rights_of_root_that_it_needs(installed: Installed, unit: str) -> None:
    argv = ["systemctl", "show", "--property=MainPID", "--property=ActiveState", unit]
    shown = dict(line.split("=", 1) for line in installed.machine.run(argv).stdout.splitlines())
    program = (
        "import sys; from outrider.service.daemon.capabilities import lacking; print(*lacking(sys.argv[1]))"
    )

    lacking = installed.python("-c", program, shown["MainPID"])

    assert shown["ActiveState"] == "active", installed.machine.journal(unit)
    assert lacking.strip() == ""


def test_user_reserves_with_a_file_of_their_own(installed: Installed) -> None:
    installed.machine.write("/srv/render.yaml", WORKSPACE)

    said = installed.outrider("reserve", "/srv/render.yaml", "--start", "now+60s", "--json", user=USER)

    assert json.loads(said)["result"] == "accepted"


def test_job_that_is_submitted_runs_as_its_user(installed: Installed) -> None:
    installed.machine.write("/srv/who.sh", "#!/bin/sh\nid -un >/tmp/who\n", mode=0o755)
    written = installed.machine.root / "tmp/who"

    installed.outrider("submit", "--", "/srv/who.sh", user=USER)

    eventually(lambda: written.exists() and written.read_text() != "", installed)
    assert written.read_text() == f"{USER}\n"


def test_right_that_a_site_takes_away_is_a_fault_for_the_doctor(installed: Installed) -> None:
    program = (
        "from outrider.cli.installing.common.headchecks import service_findings; "
        f"[print(each.level.name, each.words) for each in service_findings({SOCKET!r})]"
    )
    before = installed.python("-c", program)
    drop_in = "[Service]\nCapabilityBoundingSet=~CAP_SETUID\n"
    installed.machine.write("/etc/systemd/system/outriderd.service.d/site.conf", drop_in)
    installed.restart("outriderd")

    said = installed.python("-c", program)

    assert before.startswith("OK ")
    assert said.startswith("FAULT runs as root without CAP_SETUID, so")
    assert "lacking=CAP_SETUID" in installed.machine.journal("outriderd")
