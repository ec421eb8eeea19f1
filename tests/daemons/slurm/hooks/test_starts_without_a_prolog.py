"""A job whose node ran no prolog for its second start does not begin without its image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.node.daemons import needs_root
from tests.daemons.slurm.hooks.node import Node, node

PATHS = "PATH=/usr/sbin:"
# As Slurm's own: notes what it was asked, and answers as the test wants.
PROGRAM = "#!/bin/sh\necho {name} $* >>{told}\n{answer}\n"
OURS, OTHERS = "echo 'words outrider-ticket=1.17.x'", "echo 'words'"


@pytest.fixture
def bare() -> Iterator[Node]:
    needs_root()
    with node() as found:
        yield found


def with_slurm(bare: Node, comment: str, requeue: str = "exit 0") -> Path:
    """Where its programs note what they were asked."""
    programs, told = bare.folder / "programs", bare.folder / "told"
    programs.mkdir()
    told.touch()
    told.chmod(0o666)
    for name, answer in (("squeue", comment), ("scontrol", requeue)):
        (programs / name).write_text(PROGRAM.format(name=name, told=told, answer=answer))
        (programs / name).chmod(0o755)
    bare.patch("TaskProlog", PATHS, f"PATH={programs}:/usr/sbin:")
    return told


def test_job_of_ours_goes_back_to_the_queue(bare: Node) -> None:
    told = with_slurm(bare, OURS)

    done = bare.task(SLURM_RESTART_COUNT="1")

    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert told.read_text().splitlines() == [
        "squeue --noheader --jobs=17 --format=%k", "scontrol requeue 17",
    ]  # fmt: skip


def test_one_task_of_an_array_goes_back_and_not_all(bare: Node) -> None:
    told = with_slurm(bare, OURS)

    bare.task(SLURM_RESTART_COUNT="2", SLURM_ARRAY_JOB_ID="16", SLURM_ARRAY_TASK_ID="3")

    assert told.read_text().splitlines()[1] == "scontrol requeue 16_3"


def test_job_that_cannot_go_back_fails_and_says_why(bare: Node) -> None:
    with_slurm(bare, OURS, "exit 1")

    done = bare.task(SLURM_RESTART_COUNT="1")

    assert done.returncode == 3
    assert done.stdout.startswith("print outrider: the node ran no prolog")


@pytest.mark.parametrize(
    ("comment", "variables", "asks"),
    [
        (OTHERS, {"SLURM_RESTART_COUNT": "1"}, 1),
        ("exit 1", {"SLURM_RESTART_COUNT": "1"}, 1),
        # At a first start, and for the tasks of steps, Slurm is not asked.
        (OURS, {}, 0),
        (OURS, {"SLURM_RESTART_COUNT": "0"}, 0),
        (OURS, {"SLURM_RESTART_COUNT": "1", "SLURM_STEP_ID": "0"}, 0),
    ],
)
def test_jobs_of_others_begin(bare: Node, comment: str, variables: dict[str, str], asks: int) -> None:
    told = with_slurm(bare, comment)

    done = bare.task(**variables)

    assert (done.returncode, done.stdout) == (0, "")
    assert len(told.read_text().splitlines()) == asks
