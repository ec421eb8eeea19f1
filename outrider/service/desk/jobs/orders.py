"""What the batch system is asked to do to jobs, and which instances of jobs are still wanted on nodes.

An order says what should be now: it takes the place of all that wait for the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from outrider.service.desk.batch.job_effects import is_of_job, machine_of, subject_of
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.owners import job_of_owner
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log
from outrider.service.ports import NodeReport
from outrider.store.records import Effect

MOST_UNDER_WAY = 128
"""So many orders are on their way to the batch system, or wait for that, at a time. More would be in front of
reservations and of other users' jobs, which come later."""
LOST_S = 60
"""What has not come back for so long is not waited for."""
MOST_MACHINES = 16
"""So many machines of jobs that are gone are removed from a node at a time: any user can make what looks like
many, and what reservations need of the node comes behind them."""
IsCarrying = Callable[[str], bool]
"""Whether an effect is on its way to the batch system, by its identity."""


class JobOrders:
    """Effects for jobs, and the ends of their instances."""

    def __init__(self, site: Site, node_orders: NodeOrders, is_carrying: IsCarrying, log: Log) -> None:
        self._site = site
        self._node_orders = node_orders
        self._is_carrying = is_carrying
        self._log = log
        self._seen: frozenset[str] | None = None
        self._seen_before: frozenset[str] | None = None
        self._under_way: dict[str, int] = {}
        """What was ordered and has not come back, and when it was ordered."""

    def take_up(self) -> None:
        """What an earlier service wanted of jobs is decided anew at the first look."""
        for subject in sorted(self._site.store.waiting_subjects()):
            if is_of_job(subject):
                self._drop(subject)

    def order(self, effect: Effect) -> None:
        self._drop(effect.subject)
        self._site.todo([effect])
        if effect.due_s <= self._site.now_s:
            self._under_way[effect.identity] = self._site.now_s

    def came_back(self, identity: str) -> None:
        """It has been carried out, or has failed and waits for another attempt."""
        self._under_way.pop(identity, None)

    @property
    def is_behind(self) -> bool:
        """Whether nothing more should be ordered, since others would wait behind it."""
        if len(self._under_way) < MOST_UNDER_WAY:
            return False
        since_s = self._site.now_s - LOST_S
        self._under_way = {each: at_s for each, at_s in self._under_way.items() if at_s > since_s}
        return len(self._under_way) >= MOST_UNDER_WAY

    def drop(self, job: str) -> None:
        """Nothing is wanted of a job any more."""
        self._drop(subject_of(job))

    def forget(self, job: str) -> None:
        """A job is gone, and with it what was to become of its machine."""
        self._drop(subject_of(job))
        self._drop(machine_of(job))

    def waits(self, job: str) -> bool:
        """Whether anything is still to be done to a job."""
        return bool(self._site.store.waiting_effects(subject_of(job), most=1))

    def saw(self, keys: Iterable[str]) -> None:
        """These are the batch system's jobs at a look."""
        self._seen_before, self._seen = self._seen, frozenset(keys)

    def compare(self, report: NodeReport) -> tuple[str, ...]:
        """Have instances and machines removed whose jobs are gone: missing at two looks in a row."""
        if self._seen is None or self._seen_before is None:
            return ()
        # Where there are none for jobs, folders that look like machines are somebody else's.
        machines = report.machines if self._site.settings.allows_machines else ()
        if (status := self._node_orders.statuses.get(report.node)) is not None:
            status.machines = frozenset(machines)
        of_machines = islice(filter(self._is_gone, machines), MOST_MACHINES)
        gone = list(dict.fromkeys((*filter(self._is_gone, report.jobs), *of_machines)))
        for owner in gone:
            self._node_orders.release(report.node, owner, self._site.now_s)
            self._log.info("instance or machine of a job that is gone", node=report.node, owner=owner)
        return tuple(
            f"node {report.node} has an instance or a machine of {owner}, which is gone" for owner in gone
        )

    def _is_gone(self, owner: str) -> bool:
        assert self._seen is not None
        assert self._seen_before is not None
        job = job_of_owner(owner)
        return job is not None and job not in self._seen and job not in self._seen_before

    def take_back(self, subject: str, kind: str) -> bool:
        """The last order about it is void, if it is of that kind; False if that one is on its way."""
        last = next(reversed(self._site.store.waiting_effects(subject)), None)
        if last is None or last.kind != kind:
            return True
        if self._is_carrying(last.identity):
            return False
        now_s = self._site.now_s
        self._site.write_lightly(lambda progress: progress.finish_effect(last.identity, now_s))
        return True

    def _drop(self, subject: str) -> None:
        """Earlier orders are void, but for one on its way: what comes next waits for that."""
        now_s = self._site.now_s
        for effect in self._site.store.waiting_effects(subject):
            if not self._is_carrying(effect.identity):
                identity = effect.identity
                self._under_way.pop(identity, None)
                self._site.write_lightly(
                    lambda progress, identity=identity: progress.finish_effect(identity, now_s)  # type: ignore[misc]
                )
