"""What can be looked at of a job's virtual machines: where each is, and how far."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.rms.base import JobState
from outrider.service.answers.jobs import MachineView
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.ports import MachineInstance

BEGINS = "begins"
"""The state of a machine of which no node has said anything yet."""


def machines_of(entry: JobEntry, statuses: Mapping[str, NodeStatus]) -> tuple[MachineView, ...]:
    """All machines of a job that runs, in their order; nothing of other jobs."""
    lines, job = entry.lines, entry.job
    if lines is None or not lines.is_machine or entry.stage is not Stage.RUNNING:
        return ()
    if job.state is not JobState.RUNNING and job.state is not JobState.SUSPENDED:
        return ()
    names = [host for role in lines.roles for host in role.hosts]
    names = names or [f"vm{number}" for number in range(1, max(1, len(job.nodes)) + 1)]
    told = _told(entry, statuses)
    found = []
    for number, name in enumerate(names, 1):
        node, instance = told.get((number, name), ("", None))
        found.append(
            MachineView(
                number=number,
                name=name,
                node=node,
                address="" if instance is None else instance.address,
                state=BEGINS if instance is None else instance.state,
            )
        )
    return tuple(found)


def _told(
    entry: JobEntry, statuses: Mapping[str, NodeStatus]
) -> dict[tuple[int, str], tuple[str, MachineInstance]]:
    """What nodes of the job say of machines in its user's folders."""
    found = {}
    for node in entry.job.nodes:
        for each in statuses[node].instances if node in statuses else ():
            if each.owner == entry.owner and each.uid == entry.job.uid:
                found[each.number, each.name] = node, each
    return found
