"""A process that keeps a job's machine is begun again when it is killed, and not where that would do harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cachemgr.machines.running import LOST_STATUS, MOST_KEEPERS
from tests.repository import ROOT

# Says how often it was begun and what it was told before, and does what the test wants.
PROGRAM = """
import os, signal, sys, time
from cachemgr.machines.running import kept
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def told(number):
    # As the batch system does: the process that it has begun hears of it, which passes it on.
    os.kill(os.getppid(), number)
    while given.caught.next() != number:
        time.sleep(0.01)
def keep(found):
    global given
    given = found
    print(f"first={given.is_first} save={given.caught.was_to_save}", flush=True)
    WORK
sys.exit(kept(keep))
"""


def kept(work: str) -> tuple[int, list[str]]:
    """The status, and what each keeper has said."""
    argv = [sys.executable, "-c", PROGRAM.replace("WORK", work)]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("work", "status", "said"),
    [
        ("return 7", 7, ["first=True save=False"]),
        ("given.is_first and die(); return 7", 7, ["first=True save=False", "first=False save=False"]),
        # It was to be saved, and whether it was the next one has to find out.
        (
            "given.is_first and (told(signal.SIGUSR1), die()); return 98",
            98,
            ["first=True save=False", "first=False save=True"],
        ),
        # The job was over: it does not begin anew.
        ("given.is_over(5); die()", 5, ["first=True save=False"]),
        # It was to end: the machine goes with the job.
        ("told(signal.SIGTERM); die()", LOST_STATUS, ["first=True save=False"]),
        # A signal of the job's own says nothing.
        (
            "given.is_first and (told(signal.SIGUSR2), die()); return 0",
            0,
            ["first=True save=False", "first=False save=False"],
        ),
    ],
)
def test_killed_keeper_is_begun_again_unless_the_job_is_over(work: str, status: int, said: list[str]) -> None:
    assert kept(work) == (status, said)


def test_open_files_that_a_keeper_has_left_are_there_for_all_that_are_begun_after_it() -> None:
    leave = "ends = os.pipe(); os.write(ends[1], b'abc'); given.leave([ends[0]])"
    status, said = kept(
        f"if given.is_first:\n        {leave}; die()\n"
        "    found = os.read(given.left[0], 1); print(found)\n    found == b'b' or die(); return 3"
    )

    # The second one took the first letter, and was killed, too.
    assert (status, said) == (3, ["first=True save=False", *["first=False save=False"] * 2, "b'b'"])


def test_keeper_that_is_killed_again_and_again_is_given_up() -> None:
    status, said = kept("die()")

    assert (status, len(said)) == (LOST_STATUS, MOST_KEEPERS)


def test_keeper_ends_with_the_process_above_it() -> None:
    reader, writer = os.pipe()
    argv = [sys.executable, "-c", PROGRAM.replace("WORK", f"os.write({writer}, b'x'); time.sleep(60)")]
    process = subprocess.Popen(argv, cwd=ROOT, pass_fds=(writer,), stdout=subprocess.DEVNULL)
    os.close(writer)
    begun = os.read(reader, 1)
    process.send_signal(signal.SIGKILL)
    process.wait(60)

    # The pipe's other end is closed as soon as the keeper is gone.
    assert (begun, os.read(reader, 1)) == (b"x", b"")
    os.close(reader)
