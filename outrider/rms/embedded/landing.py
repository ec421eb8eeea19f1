"""Running machines that go to other virtual nodes without being saved, and room for them there.

All nodes are on one machine. What is moved there is real all the same: another QEMU, with the other node's
instance of the image, receives the guest's disks and memory from the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from cachemgr.machines.batch.steps.changing import CHANGED, GOES
from outrider.rms.base import JobState, Landing, RmsJob, Unavailable
from outrider.rms.embedded.machines import JobMachines
from outrider.rms.twin.jobs import TwinJob
from outrider.rms.twin.world import TwinCluster

MOST_S = 900
"""A machine that is on its way for longer is not waited for: it is saved, if it is still where it was."""


class NodeHooks(Protocol):
    """Of these what a node needs for a machine that comes, and does for one that has gone."""

    def prepare(self, job: RmsJob, node: str) -> str | None:
        """Where the job's image is there, or nothing if it has none; None if it cannot be had now."""

    def clear(self, job: RmsJob, node: str) -> None: ...


class LandingMachines:
    """Those that are on their way, as the journal has them."""

    def __init__(
        self, world: TwinCluster, machines: JobMachines, hooks: NodeHooks, keep: Callable[[], None]
    ) -> None:
        """`keep` writes down that there is room for one, before it is told to go there."""
        self._world = world
        self._keep = keep
        self._machines = machines
        self._hooks = hooks
        self._on_way: dict[str, str] = {}

    def land(self, wanted: Landing) -> bool:
        """Whether it runs there now. Raises Unavailable as long as it is on its way."""
        job = self._world.jobs.get(wanted.job)
        if job is None or job.state is not JobState.RUNNING or job.leaving is not None:
            return False
        if job.nodes == (wanted.node,):
            return True
        if not job.lands_on and not (wanted.begins and self._begins(job, wanted)):
            return False
        return self._goes_on(job)

    def clear(self, job: RmsJob) -> None:
        """It does not come, whatever has become of it."""
        node = self._on_way.pop(job.key, None)
        if (known := self._world.jobs.get(job.key)) is not None:
            known.lands_on = ()
        if node is not None:
            self._hooks.clear(job, node)

    def _begins(self, job: TwinJob, wanted: Landing) -> bool:
        if job.start_s != wanted.start_s or job.reservation is not None or len(job.nodes) != 1:
            return False
        if wanted.node not in self._world.nodes or not self._world.has_room(job, wanted.node):
            return False
        # Whoever looks for it there later, after a restart, may not be told of it again.
        image = self._hooks.prepare(replace(job.seen(), nodes=(wanted.node,)), wanted.node)
        if image is None:
            return False
        job.lands_on, job.lands_image, job.lands_since_s = (wanted.node,), image, self._world.now_s
        self._keep()
        return True

    def _goes_on(self, job: TwinJob) -> bool:
        (node,) = job.lands_on
        self._on_way[job.key] = node
        if self._world.now_s > job.lands_since_s + MOST_S:
            self.clear(job.seen())
            return False
        stamp = f"{job.lands_since_s}-{node}"
        word = self._machines.change(job.key, job.submission.uid, stamp, job.lands_image)
        if word == GOES:
            raise Unavailable(f"the machine of job {job.key} is on its way to {node}")
        if word != CHANGED:
            self._world.log_change("stays", job.key, word)
            self.clear(job.seen())
            return False
        before = job.seen()
        job.nodes, job.lands_on = (node,), ()
        del self._on_way[job.key]
        self._world.log_change("landed", job.key, node)
        for left in before.nodes:
            self._hooks.clear(before, left)
        return True
