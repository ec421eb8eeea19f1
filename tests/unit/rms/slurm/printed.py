"""What Slurm's commands have printed, read as a whole."""

from __future__ import annotations

from outrider.rms.slurm.fields import document, entries
from outrider.rms.slurm.jobs import SlurmJob, jobs_of_rows
from outrider.rms.slurm.nodes import SlurmNode, nodes_in_lines


def jobs_in(data: bytes, now_s: int) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
    return jobs_of_rows(entries(document(data, "squeue"), "jobs", "squeue"), now_s)


def nodes_in(data: bytes) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
    return nodes_in_lines(data.decode("utf-8", "replace").splitlines())
