"""However a demo ends, it takes everything away again."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from testbed import records
from tests.amount import LONG
from tests.daemons.demo.conftest import left_behind, processes_with, read_until, shown, start, start_on_slurm
from tests.daemons.node.daemons import eventually
from tests.daemons.testbed.clusters import needs_slurm, processes

AT_ONCE = 2 if os.environ.get(LONG) else 1
"""How many signals are tried."""


@pytest.mark.long
def test_demo_on_slurm_that_is_interrupted_or_killed_leaves_nothing(installed: Path, temporary: Path) -> None:
    needs_slurm()
    demos = {
        each: start_on_slurm(installed, temporary, "--brief") for each in (signal.SIGINT, signal.SIGKILL)
    }
    names = []
    for number, process in demos.items():
        read_until(process, "outrider nodes")
        names += [
            path.parent.name for path in records.FOLDER.glob("*/record") if owner_of(path) == process.pid
        ]
        process.send_signal(number)
    ended = {number: shown(process) for number, process in demos.items()}
    eventually("all hosts have ended", lambda: not any(map(processes, names)))
    eventually("all files are gone", lambda: not any((records.FOLDER / name).exists() for name in names))
    eventually("nothing is left", lambda: not left_behind(temporary))

    assert len(names) == 2
    assert ended[signal.SIGINT] == (130, "demo: interrupted\n")


def owner_of(record: Path) -> int:
    return records.read(record.parent.name).owner.pid


@pytest.mark.repeats(
    "tests/daemons/demo/test_demo_endings.py::test_killed_demo_leaves_its_folder_but_no_process"
)
def test_interrupted_demos_leave_nothing(installed: Path, temporary: Path) -> None:
    demos = {
        number: start(installed, temporary, "--brief") for number in (signal.SIGINT, signal.SIGTERM)[:AT_ONCE]
    }
    for number, process in demos.items():
        read_until(process, "outrider reserve")
        process.send_signal(number)
    ended = [shown(process) for process in demos.values()]

    for code, err in ended:
        assert code == 130, err
        assert err.endswith("outrider: interrupted\n")
    assert left_behind(temporary) == []


@pytest.mark.repeats(
    "tests/daemons/demo/test_demo_endings.py::test_killed_demo_leaves_its_folder_but_no_process"
)
def test_service_that_dies_shows_its_log_and_leaves_nothing(installed: Path, temporary: Path) -> None:
    process = start(installed, temporary, "--brief")
    read_until(process, "outrider reserve")
    os.kill(service_of(temporary), signal.SIGKILL)
    code, err = shown(process)

    assert code in (5, 10), err
    assert "The end of the service's log:" in err
    assert "service serves" in err
    assert left_behind(temporary) == []


def test_killed_demo_leaves_its_folder_but_no_process(installed: Path, temporary: Path) -> None:
    process = start(installed, temporary, "--brief")
    read_until(process, "outrider reserve")
    process.kill()
    shown(process)
    eventually("all processes have ended", lambda: not processes_with(temporary))
    for folder in temporary.iterdir():
        shutil.rmtree(folder)

    assert left_behind(temporary) == []


def service_of(temporary: Path) -> int:
    """The process of the service whose configuration is in that folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"outrider.cli.demo.ends_with_input" in words and any(
            os.fsencode(temporary) in word for word in words
        ):
            return int(path.parent.name)
    raise AssertionError("the demo has no service")
