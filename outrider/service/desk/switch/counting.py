"""As how much of a node jobs count: as what they have asked for, or as what their machines use of processors.

Use counts only where the site's policies allow overbooking, for machines of queues in which the batch system
lets jobs share processors, and as long as it was measured lately. Memory always counts as asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.core.switch.model import Amount
from outrider.core.switch.use import PROCESSOR, MeasuredUse, PackingByUse
from outrider.rms.base import JobState, RmsJob, RmsNode, Sight
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.nodes.preemptible_jobs import machine_memory_bytes
from outrider.service.desk.nodes.state import NodeStatus

NO_SHARING = (
    "policies allow overbooking, but the batch system gives each processor to one job alone: machines count "
    "as what they have asked for (in Slurm set OverSubscribe=FORCE:2 for a partition)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedUse:
    """Of a job's machine: processors that it has asked for, hundredths that it uses and that it counts as.
    Each of several machines of a job counts as the one that uses the most. `node`: of all, with commas."""

    job: str
    node: str
    asked: int
    measured: MeasuredUse | None
    counted: int
    words: str
    """Why it counts as what it has asked for; empty if it does not."""


class ProcessorCount:
    """All jobs of one look. Without overbooking amounts are memory in MiB and processors; with it memory,
    hundredths of processors in use, and of those asked for, of which a node has several times as many."""

    def __init__(
        self,
        sight: Sight,
        entries: Mapping[str, JobEntry],
        statuses: Mapping[str, NodeStatus],
        overbooking: PackingByUse | None,
    ) -> None:
        self._now_s = sight.at_s
        self._entries = entries
        self._statuses = statuses
        self._sharing = dict(sight.sharing)
        self.words = NO_SHARING if overbooking is not None and not self._sharing else ""
        self.rules = overbooking if self._sharing else None
        self.uses: dict[str, CountedUse] = {}

    def capacity(self, node: RmsNode) -> Amount:
        memory, cpus = _amounts(node)
        if self.rules is None:
            return memory, cpus
        return memory, cpus * PROCESSOR, cpus * PROCESSOR * self.rules.most

    def demand(self, job: RmsJob) -> Amount:
        memory, cpus = machine_memory_bytes(job) >> 20, job.resources["cpus"]
        if self.rules is None:
            return memory, cpus
        at_once = min(self.rules.most, self._sharing.get(job.queue, 1))
        asked = cpus * PROCESSOR * self.rules.most // at_once
        return memory, self._counted(job, cpus, self.rules), asked

    def is_known(self, job: RmsJob) -> bool:
        """Whether what it uses was measured lately."""
        use = self.uses.get(job.key)
        return use is not None and not use.words

    def _counted(self, job: RmsJob, cpus: int, rules: PackingByUse) -> int:
        entry = self._entries.get(job.key)
        if entry is None or entry.lines is None or not entry.lines.is_machine or job.state is not RUNNING:
            return cpus * PROCESSOR
        known = self.uses.get(job.key)
        if known is None:
            known = self.uses[job.key] = self._use(job, entry, cpus, rules)
        return known.counted

    def _use(self, job: RmsJob, entry: JobEntry, cpus: int, rules: PackingByUse) -> CountedUse:
        measured, words = self._measured(job, entry), ""
        counted = rules.counted(cpus, measured, self._now_s)
        if self._sharing.get(job.queue, 1) < 2:
            words = f"in {job.queue or 'its queue'} jobs do not share processors"
        elif measured is None:
            words = "its use is not known yet"
        elif counted is None:
            words = f"its use was measured {self._now_s - measured.at_s} s ago, which is too old"
        if words or counted is None:
            counted = cpus * PROCESSOR
        node = ",".join(job.nodes)
        return CountedUse(job=job.key, node=node, asked=cpus, measured=measured, counted=counted, words=words)

    def _measured(self, job: RmsJob, entry: JobEntry) -> MeasuredUse | None:
        """Of several machines the largest use, as old as the oldest; None if that of one is not known."""
        used = [
            None if status is None else status.use.used.get((entry.owner, job.uid))
            for status in map(self._statuses.get, job.nodes)
        ]
        known = [each for each in used if each is not None]
        if len(known) < len(used) or not known:
            return None
        return MeasuredUse(
            hundredths=max(each.hundredths for each in known), at_s=min(each.at_s for each in known)
        )


RUNNING = JobState.RUNNING


def _amounts(node: RmsNode) -> tuple[int, int]:
    return node.capacity["memory_mib"] or node.memory_bytes >> 20, node.capacity["cpus"]
