"""Jobs by pyslurm instead of squeue, where a site has built it for exactly the Slurm that it runs.

Nothing depends on it. It is asked for with `jobs_reader`, which gives None unless the versions are the
same: pyslurm reads Slurm's memory by the layout of the version that it was compiled against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from outrider.rms.base import Unavailable
from outrider.rms.slurm.jobs import SlurmJob, jobs_of_rows
from outrider.rms.slurm.version import Version

Jobs = tuple[tuple[SlurmJob, ...], tuple[str, ...]]
SAME = (
    "job_id", "job_state", "state_reason", "user_id", "account", "partition", "features", "comment",
    "admin_comment", "resv_name", "priority", "submit_time", "start_time", "eligible_time", "time_limit",
    "max_nodes", "tres_req_str", "tres_alloc_str", "tres_per_node",
)  # fmt: skip
RENAMED = {"num_nodes": "node_count", "num_cpus": "cpus", "array_task_str": "array_task_string"}
LISTS = {"req_nodes": "required_nodes", "exc_nodes": "excluded_nodes", "nodes": "nodes"}


class JobTable(Protocol):
    def get(self) -> Mapping[int, Mapping[str, object]]: ...


class PySlurm(Protocol):
    """What is used of the module `pyslurm`."""

    __version__: str

    def job(self) -> JobTable: ...


def jobs_reader(
    module: PySlurm, installed: Version, user_of: Callable[[int], str]
) -> Callable[[int], Jobs] | None:
    """Reads all jobs; None if the module is of another version than the installed Slurm."""
    if not matches(module.__version__, installed):
        return None

    def read(now_s: int) -> Jobs:
        try:
            table = module.job().get()
        except (ValueError, OSError) as error:
            raise Unavailable(f"pyslurm says: {error}") from error
        return jobs_of_rows([_row(each, user_of) for each in table.values()], now_s)

    return read


def matches(version: str, installed: Version) -> bool:
    """`22.5.1` is for Slurm 22.05 of any patch: its own patches are its own."""
    parts = version.split(".")
    return [part.lstrip("0") for part in parts[:2]] == [str(installed[0]), str(installed[1])]


def _row(plain: Mapping[str, object], user_of: Callable[[int], str]) -> dict[str, object]:
    """The same job as `squeue --json` of 22.05 would print it."""
    row = {name: plain.get(name) for name in SAME}
    row |= {new: plain.get(old) for old, new in RENAMED.items()}
    row |= {new: _joined(plain.get(old)) for old, new in LISTS.items()}
    for name in ("time_limit", "max_nodes"):
        if not isinstance(row[name], int):
            row[name] = None
    uid = plain.get("user_id")
    row["user_name"] = user_of(uid) if isinstance(uid, int) else ""
    return row


def _joined(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
