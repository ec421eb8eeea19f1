"""Jobs and nodes from one look to the next: what Slurm prints as before is not worked out again.

Of thousands of jobs few change within seconds, while each look prints them all. Whatever has not
changed is the very same value as before, so that others see at once that nothing is new. It is read
piece by piece, since other threads wait while a text is taken apart in one go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from outrider.rms.slurm.fields import each_entry, number
from outrider.rms.slurm.jobs import HELD_BEGIN_S, SlurmJob, is_sent_back, job_in, jobs_of_rows
from outrider.rms.slurm.nodes import SlurmNode, nodes_in_lines

USED = (
    "job_id", "job_state", "state_reason", "comment", "admin_comment", "eligible_time", "priority", "nodes",
    "node_count", "max_nodes", "tasks", "cpus", "tres_req_str", "tres_alloc_str", "tres_per_job",
    "tres_per_node", "tres_per_task", "time_limit", "user_name", "user_id", "account", "submit_time",
    "start_time", "resv_name", "required_nodes", "excluded_nodes", "partition", "features", "array_job_id",
    "array_task_string", "batch_flag", "name", "restart_cnt",
)  # fmt: skip
"""The fields on which a job depends."""
Printed = tuple[object, ...]


class JobReader:
    """The jobs of one look after the other."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[Printed, SlurmJob | None]] = {}
        self._now: dict[str, tuple[Printed, SlurmJob | None]] = {}

    def read(self, data: bytes, now_s: int) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
        """The jobs that have not ended, and what could not be understood. Raises BadField."""
        self._now = {}
        found = jobs_of_rows(each_entry(data, "jobs", "squeue"), now_s, self._read)
        self._before = self._now
        return found

    def _read(self, row: Mapping[str, object], now_s: int) -> SlurmJob | None:
        # Beside what is printed it matters whether the job may begin soon: see `job_in`.
        is_far = (number(row, "eligible_time") or 0) >= now_s + HELD_BEGIN_S
        printed = (is_far, *map(row.get, USED))
        key = str(row.get("job_id"))
        before = self._before.get(key)
        if before is None or before[0] != printed:
            job, known = job_in(row, now_s), None if before is None else before[1]
            if job is not None and known is not None and known.start_s is not None and is_sent_back(row):
                job = replace(job, start_s=known.start_s)
            before = printed, known if known == job else job
        self._now[key] = before
        return before[1]


class NodeReader:
    """The nodes of one look after the other."""

    def __init__(self) -> None:
        self._lines: dict[bytes, SlurmNode] = {}
        self._nodes: tuple[SlurmNode, ...] = ()
        self.order: tuple[str, ...] = ()
        """Their names as Slurm numbers them, and so the nodes of each job."""

    def read(self, data: bytes) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
        """The nodes by name, and what could not be understood. The very same value if none has changed."""
        before = {each.node.name: each for each in self._nodes}
        found, findings, lines = dict[str, SlurmNode](), list[str](), dict[bytes, SlurmNode]()
        for line in data.splitlines():
            known = self._lines.get(line)
            if known is None:
                new, odd = nodes_in_lines([line.decode("utf-8", "replace")])
                findings += odd
                for each in new:
                    known = before[each.node.name] if before.get(each.node.name) == each else each
            if known is not None:
                found[known.node.name] = lines[line] = known
        self._lines, self.order = lines, tuple(found)
        nodes = tuple(found[name] for name in sorted(found))
        is_same = len(nodes) == len(self._nodes) and all(map(_is, nodes, self._nodes))
        if not is_same:
            self._nodes = nodes
        return self._nodes, tuple(findings)


def _is(one: SlurmNode, other: SlurmNode) -> bool:
    return one is other
