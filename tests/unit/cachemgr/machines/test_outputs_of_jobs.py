"""What a guest's job says comes into its output whole, whoever else writes there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from cachemgr.machines.guest import channel
from cachemgr.machines.running import JobOutput


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
