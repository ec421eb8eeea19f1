"""A job's script runs in a Linux guest as on its node: environment, folder, output, status, signals."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cachemgr.machines.guest.runner import RUNNER
from testbed.linux_guest import LinuxGuest, append
from tests.daemons.machines.engine import MIB, UID, WAIT_S, Engine, wait_until

COUNTING = "i=0; while [ $i -lt $LAST ]; do i=$((i+1)); echo $i; echo $i > at; sync; sleep 0.05; done\n"


# A shell that has just been forked for a command still has its parent's traps: this one forks no more.
READY = "sleep 600 &\necho ready; wait\n"


class GuestJobs:
    """Runs jobs in guests whose working folder is one of the user's."""

    def __init__(self, engine: Engine, linux: LinuxGuest) -> None:
        self.engine = engine
        self.linux = linux
        self.work = engine.folder / "work"
        self.work.mkdir()
        os.chown(self.work, UID, -1)

    def wish(self, script: str, *arguments: str, machine: str = "q35", **environment: str) -> str:
        job = {
            "script": f"#!/bin/sh\n{script}",
            "arguments": arguments,
            "environment": environment,
            "folder": str(self.work),
        }
        return self.engine.wish(
            name="job", memory_bytes=128 * MIB, machine=machine, kernel=str(self.linux.kernel),
            initrd=str(self.linux.initrd), append=append(), job=job,
        )  # fmt: skip

    def begin(self, wish: str, *more: str, name: str = "j") -> subprocess.Popen[str]:
        folder = str(self.engine.machines / name)
        return self.engine.popen(self.engine.command("run", folder, "--wish", wish, *more))

    def run(self, wish: str, *more: str) -> tuple[int, str, str]:
        process = self.begin(wish, *more)
        output, errors = process.communicate(timeout=WAIT_S)
        return process.returncode, output, errors

    def said(self, name: str = "j") -> str:
        path = self.engine.machines / name / "out"
        return path.read_text() if path.exists() else ""

    def wait_until_said(self, word: str) -> None:
        def trouble() -> str:
            return f"no {word} in {self.said()!r}; {self.trouble()}"

        wait_until(lambda: word in self.said().split(), trouble)

    def trouble(self) -> str:
        return self.engine.console("j")[-500:]


@pytest.fixture
def jobs(engine: Engine, linux: LinuxGuest) -> GuestJobs:
    return GuestJobs(engine, linux)


@pytest.mark.parametrize("machine", ["q35", "microvm"])
def test_script_runs_as_on_its_node(jobs: GuestJobs, machine: str) -> None:
    (jobs.work / "sub").mkdir()
    os.chown(jobs.work / "sub", UID, -1)
    (jobs.work / "sub" / "in").write_text("from the node\n")
    (jobs.work / "kept").write_text("as it was\n")
    script = (
        'echo "$PWD|$1|$2|$VALUE"; cat sub/in; echo trouble >&2; mkdir made\n'
        "echo 'from the guest' > made/out; rm kept; ln -s out made/link; uname -r; exit 7\n"
    )
    status, output, errors = jobs.run(
        jobs.wish(script, "a b", "it's $HOME", machine=machine, VALUE='"quoted" $(no)\nline')
    )
    lines = output.splitlines()

    assert status == 7, errors + jobs.trouble()
    assert lines[:3] == [f'{jobs.work}|a b|it\'s $HOME|"quoted" $(no)', "line", "from the node"]
    assert lines[3] != os.uname().release
    assert errors == "trouble\n"
    assert (jobs.work / "made" / "out").read_text() == "from the guest\n"
    assert os.readlink(jobs.work / "made" / "link") == "out"
    # Nothing on the node is deleted because a guest deleted its copy.
    assert (jobs.work / "kept").read_text() == "as it was\n"
    assert {path.stat().st_uid for path in (jobs.work / "made").iterdir()} == {UID}
    assert jobs.engine.qemus("j") == []


@pytest.mark.long
def test_job_that_is_suspended_twice_says_each_thing_once(jobs: GuestJobs) -> None:
    wish = jobs.wish(COUNTING, LAST="60")
    outputs = []
    for word in ("10", "30"):
        process = jobs.begin(wish)
        jobs.wait_until_said(word)
        process.send_signal(signal.SIGUSR1)
        output, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 98, errors
        assert jobs.engine("status", "j")["state"] == "suspended"
        outputs.append(output)
    status, output, errors = jobs.run(wish)

    assert status == 0, errors
    assert "".join([*outputs, output]).split() == [str(number) for number in range(1, 61)]
    assert (jobs.work / "at").read_text() == "60\n"


def test_engine_that_was_killed_finds_its_job_again(jobs: GuestJobs) -> None:
    wish = jobs.wish(COUNTING, LAST="40")
    process = jobs.begin(wish)
    jobs.wait_until_said("5")
    process.kill()
    process.communicate(timeout=WAIT_S)
    status, _, errors = jobs.run(wish)

    assert status == 0, errors
    assert jobs.said().split() == [str(number) for number in range(1, 41)]


def test_time_limit_reaches_the_script_first(jobs: GuestJobs) -> None:
    process = jobs.begin(jobs.wish(f"trap 'echo told; exit 9' TERM\n{READY}"))
    jobs.wait_until_said("ready")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=WAIT_S)

    assert (process.returncode, output.split()) == (9, ["ready", "told"]), errors


def test_guest_that_heeds_nothing_is_ended_all_the_same(jobs: GuestJobs) -> None:
    process = jobs.begin(jobs.wish("trap '' TERM\necho ready; while :; do sleep 0.1; done\n"), "--grace", "2")
    jobs.wait_until_said("ready")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    found = jobs.engine("status", "j")

    assert process.returncode == 125
    assert "it was stopped" in errors
    assert (found["state"], found["reason"]) == ("ended", "it was stopped")
    assert jobs.engine.qemus("j") == []


def test_other_signals_are_the_scripts(jobs: GuestJobs) -> None:
    process = jobs.begin(jobs.wish(f"trap 'echo two; exit 4' USR2\n{READY}"))
    jobs.wait_until_said("ready")
    process.send_signal(signal.SIGUSR2)
    output, errors = process.communicate(timeout=WAIT_S)

    assert (process.returncode, output.split()) == (4, ["ready", "two"]), errors


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_signal_is_sent_once_whatever_shell_the_guest_has(
    linux: LinuxGuest, tmp_path: Path, shell: str
) -> None:
    (line,) = [each for each in RUNNER.splitlines() if '"-$job"' in each]
    script = (
        'kill() { command kill "$@"; status=$?; echo $status; return $status; }\n'
        "setsid sleep 60 & job=$!\n"
        # It is a group's first process once it is setsid no more.
        'until grep -q sleep "/proc/$job/comm"; do :; done\n'
        f"name=TERM\n{line}\nwait $job\n"
    )
    with linux.initrd.open("rb") as initrd:
        subprocess.run(["cpio", "-id", "--quiet", "bin/busybox"], stdin=initrd, cwd=tmp_path, check=True)
    argv = [str(tmp_path / "bin" / "busybox"), "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*argv, "-c", script], capture_output=True, text=True, timeout=WAIT_S)

    assert done.stdout.split() == ["0"]
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.long
def test_job_migrates_while_it_runs(jobs: GuestJobs) -> None:
    jobs.engine("start", "j", "--wish", jobs.wish(COUNTING, LAST="100"))
    jobs.wait_until_said("10")
    jobs.engine("migrate", "j", "--to-folder", str(jobs.engine.machines / "k"))

    def has_ended() -> bool:
        return bool(jobs.engine("status", "k")["exit_status"] == 0)

    wait_until(has_ended, lambda: jobs.engine("status", "k"))
    assert jobs.said("k").split() == [str(number) for number in range(1, 101)]
    assert jobs.engine("collect", "k")["files"] == 2
    assert (jobs.work / "at").read_text() == "100\n"


def test_working_folder_with_what_no_archive_holds_is_refused(jobs: GuestJobs) -> None:
    os.mkfifo(jobs.work / "pipe")
    status, _, errors = jobs.run(jobs.wish("echo\n"))

    assert status == 10
    assert "./pipe in the working folder is neither a file nor a folder nor a link" in errors
    assert [path for path in Path(jobs.engine.machines / "j").iterdir() if path.name not in ("busy",)] == []
