"""What a guest's job says comes into its output whole, whoever else writes there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachemgr.machines.batch import main
from cachemgr.machines.batch.steps.marks import SavedMark
from cachemgr.machines.guest import channel
from cachemgr.machines.keeper import real_site
from cachemgr.machines.running import JobOutput
from tests.repository import ROOT

HOLDS = """
import sys
from types import SimpleNamespace
from cachemgr.base.errors import CacheError
from cachemgr.machines.batch.steps import holding
from cachemgr.machines.batch.steps.marks import SavedMark
from cachemgr.machines.keeper import real_site
from cachemgr.machines.machine import Machine
class Landing:
    def __init__(self, *given):
        pass
    def wait(self, *given):
        print("it came", flush=True)
        raise CacheError("that is enough")
holding.MachineLanding = Landing
holding._called = lambda *given: True
machine = Machine(sys.argv[2], real_site("n1", "/usr/bin/qemu"))
own = SimpleNamespace(key="18", attempt=0, is_gone=lambda key: False)
try:
    holding.hold(machine, own, SavedMark(sys.argv[1], "17"), None, "9")
except CacheError:
    pass
"""


def test_last_words_of_a_batch_system_overwrite_nothing_that_came_from_where_the_machine_is_now(
    tmp_path: Path,
) -> None:
    """Slurm opens a job's output where it emptied it, and not at its end."""
    folder, path = tmp_path / "job-1", tmp_path / "output"
    folder.mkdir()
    (folder / channel.OUT_FILE).write_text("1\n")
    of_batch_system = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    output = JobOutput(SimpleNamespace(folder=str(folder)), (of_batch_system, os.dup(of_batch_system)))  # type: ignore[arg-type]
    output.pass_on()
    with path.open("a") as holder:
        holder.write("2\n")
    os.write(of_batch_system, b"cancelled\n")
    os.close(of_batch_system)

    assert path.read_text() == "1\n2\ncancelled\n"


def test_holder_job_writes_where_its_jobs_output_is_also_when_that_went_alive_before(tmp_path: Path) -> None:
    """The job has no file any more that Slurm could empty, so its next holder is given none either."""
    path, marks = tmp_path / "output", tmp_path / ".outrider" / "machines"
    path.write_text("it was here\n")
    marks.mkdir(parents=True)
    (marks / "17.outputs").write_text(json.dumps([str(path), str(path)]))
    argv = [sys.executable, "-c", HOLDS, str(tmp_path), str(tmp_path / "job-17")]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, path.read_text()) == (0, "it was here\nit came\n"), done.stderr


@pytest.mark.parametrize(
    ("state", "left"), [("runs", []), ("saved", ["17.outputs"]), ("elsewhere", ["17", "17.outputs"])]
)
def test_names_of_outputs_go_with_the_machine_of_a_job_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, left: list[str]
) -> None:
    """A machine that is saved, or somewhere else, needs them for its next run."""
    home, folder = tmp_path / "home", tmp_path / "nodes" / "job-17"
    folder.mkdir(parents=True)
    (home / ".outrider" / "machines").mkdir(parents=True)
    (home / ".outrider" / "machines" / "17.outputs").write_text("[]")
    if state == "elsewhere":
        SavedMark(str(home), "17").write("n2:/m")
    monkeypatch.setattr(main, "folder_of_user", lambda environment: str(folder.parent))
    monkeypatch.setattr(main, "home_of_marks", lambda environment: environment["HOME"])
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    monkeypatch.setattr(
        main, "end_machine", lambda machine, but: None if state == "saved" else os.rmdir(machine.folder)
    )

    assert main.tidy("17", real_site("n1", "/usr/bin/qemu")) == 0
    assert sorted(os.listdir(home / ".outrider" / "machines")) == left
