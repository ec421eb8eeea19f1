"""The machines of jobs as a situation to switch from: where they are, what they need, and which may move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from outrider.core.model import Image
from outrider.core.switch.model import (
    NOWHERE,
    Amount,
    MachineStanding,
    Situation,
    SwitchNode,
    VirtualMachine,
    fits,
    minus,
    plus,
)
from outrider.core.switch.planner import Switch
from outrider.core.switch.rules import PlacementRules
from outrider.rms.base import JobState, NodeState, RmsJob, RmsNode, Sight
from outrider.service.desk.batch.job_effects import machine_of
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.desk.state.site import Site
from outrider.service.desk.switch.counting import CountedUse, ProcessorCount

MOST_MACHINES = 2_000
"""Of more the plan would keep others waiting: the desk does one thing at a time."""
MOST_NAMED = 5
"""So many jobs are named if none can be moved."""
ON_NODES = (JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """A situation, and whose machine each is. Memory is in MiB."""

    situation: Situation
    rules: PlacementRules
    queue: tuple[int, ...]
    """What runs and what waits to go on, as submitted, and then what waits for its start."""
    keys: tuple[str, ...]
    """By job of the situation, what the batch system calls it."""
    kept: Mapping[str, str]
    """Jobs whose machines are not moved, and why."""
    uses: Mapping[str, CountedUse]
    """By job, as what it counts where use counts."""
    is_by_use: bool
    overloaded: tuple[str, ...]
    """Nodes of which more is used, as far as that is known, than they have."""
    crowded: frozenset[str]
    """Nodes that have too little for what is there, as it counts."""
    words: str
    """Why use does not count although it may."""

    def numbers(self, key: str) -> tuple[int, ...]:
        """A job's machines."""
        return self.situation.jobs[self.keys.index(key)] if key in self.keys else ()

    def stopped(self, switch: Switch | None) -> frozenset[str]:
        """Jobs that run and would not any more; all that run on crowded nodes if there is no plan. What is on
        a node that is to be empty does not count."""
        chosen = set() if switch is None else set(switch.selection.jobs)
        situation = self.situation
        return frozenset(
            self.keys[machine.job]
            for number, machine in enumerate(situation.machines)
            if situation.standings[number] is MachineStanding.RUNNING
            and machine.job not in chosen
            and situation.hosts[number] not in self.rules.closed
            and (switch is not None or situation.nodes[situation.hosts[number]].name in self.crowded)
        )


class NoFleet(Exception):
    """There is nothing to plan with; the message says why."""


def fleet_of(
    site: Site,
    sight: Sight,
    entries: Mapping[str, JobEntry],
    statuses: Mapping[str, NodeStatus],
    *,
    drained: Collection[str] = (),
    fences: Mapping[str, str] | None = None,
    asleep: Collection[str] = (),
    resting: Collection[str] = (),
    borne: Collection[str] = (),
) -> Fleet:
    """Raises NoFleet. `drained`: nodes that are to be empty. `fences`: by job, the nodes among which it is to
    be, with commas.
    `asleep`: jobs that an earlier switch suspended, which are to go on. `resting`: what moved lately.
    `borne`: jobs that stay where they are, whether there are processors for them or not."""
    count = ProcessorCount(sight, entries, statuses, site.overbooking)
    return _Fleet(site, sight, entries, count, drained, fences or {}, asleep, resting).made(frozenset(borne))


class _Fleet:
    def __init__(
        self,
        site: Site,
        sight: Sight,
        entries: Mapping[str, JobEntry],
        count: ProcessorCount,
        drained: Collection[str],
        fences: Mapping[str, str],
        asleep: Collection[str],
        resting: Collection[str],
    ) -> None:
        self._site = site
        self._sight = sight
        rank = {name: number for number, name in enumerate(sight.numbered)}
        self._nodes = sorted(sight.nodes, key=lambda node: rank.get(node.name, 0))
        """As the batch system numbers them: of a job's machines the first one is on the first node."""
        self._place = {node.name: number for number, node in enumerate(self._nodes)}
        self._count = count
        self._images = {key: entry.image for key, entry in entries.items() if entry.image is not None}
        machines = [
            entry.job for entry in entries.values() if entry.lines is not None and entry.lines.is_machine
        ]
        fixed = {job.key: self._fixed(job) for job in machines}
        self._jobs = [job for job in machines if not fixed[job.key]]
        self._jobs.sort(key=lambda job: (job.submitted_s, _order(job.key)))
        self._drained = frozenset(drained)
        self._fences = {key: tuple(nodes.split(",")) for key, nodes in fences.items()}
        self._asleep = frozenset(asleep)
        self._resting = frozenset(resting)
        self._on = self._images_on()
        self._asked = site.store.waiting_subjects()
        self._kept = {key: reason for key, reason in fixed.items() if reason}
        for job in self._jobs:
            if reason := self._reason(job):
                self._kept[job.key] = reason
        # What cannot leave a node that is to be empty is no part of the plan: it says so.
        self._jobs = [job for job in self._jobs if not (job.key in self._kept and self._leaves(job))]
        self._used: dict[str, Amount] = {}
        """By node, what these jobs have of it."""
        self._others: dict[str, Amount] = {}
        self._known: dict[str, Amount] = {}
        """By node, what all jobs but those have whose use is still to be measured."""
        self._none = (0,) * len(count.capacity(sight.nodes[0])) if sight.nodes else ()
        own = {job.key for job in self._jobs}
        for job in sight.jobs:
            demand, is_own = count.demand(job), job.key in own
            for name in job.nodes:
                _add(self._used if is_own else self._others, name, demand)
                if not is_own or count.is_known(job):
                    _add(self._known, name, demand)
        self._booked = {
            name
            for live in site.live.values()
            if live.reservation.start_s <= site.now_s
            for name in live.nodes
        }

    def made(self, borne: frozenset[str]) -> Fleet:
        self._check()
        machines: list[VirtualMachine] = []
        standings: list[MachineStanding] = []
        hosts: list[int] = []
        fence: dict[int, frozenset[int]] = {}
        keep: set[int] = set()
        going_on: list[int] = []
        waiting: list[int] = []
        crowded = self._crowded()
        too_small = {self._place[name] for name in crowded}
        for number, job in enumerate(self._jobs):
            standing, at = self._standing(job)
            (waiting if standing is MachineStanding.WAITING else going_on).append(number)
            may, demand = self._fence(job, at), self._count.demand(job)
            without = (demand[0], *(0 for _ in demand[1:]))
            places = [self._place[name] for name in at] or [NOWHERE] * job.nodes_wanted
            for instance, place in enumerate(places, 1):
                if job.key in self._kept or job.key in borne:
                    keep.add(len(machines))
                elif may is not None:
                    fence[len(machines)] = may
                name = job.key if job.nodes_wanted == 1 else f"{job.key}.{instance}"
                image = self._images.get(job.key)
                machines.append(
                    VirtualMachine(
                        name=name,
                        job=number,
                        demand=without if job.key in borne and place in too_small else demand,
                        image="" if image is None else _name(image.image),
                    )
                )
                standings.append(standing)
                hosts.append(place)
        sleeping = [n for n in going_on if self._sleeps_on(self._jobs[n])]
        return Fleet(
            situation=Situation(
                nodes=tuple(self._node(node) for node in self._nodes),
                machines=tuple(machines),
                standings=tuple(standings),
                hosts=tuple(hosts),
                whole=frozenset(n for n, job in enumerate(self._jobs) if job.nodes_wanted > 1),
            ),
            rules=PlacementRules(fence=fence, keep=frozenset(keep), closed=frozenset(self._closed())),
            queue=tuple(n for n in (*going_on, *waiting) if n not in sleeping),
            keys=tuple(job.key for job in self._jobs),
            kept=self._kept,
            uses=self._count.uses,
            is_by_use=self._count.rules is not None,
            overloaded=tuple(node.name for node in self._sight.nodes if self._is_overloaded(node)),
            crowded=crowded,
            words=self._count.words,
        )

    def _crowded(self) -> frozenset[str]:
        """Nodes that have too little for what is there, as it counts."""
        return frozenset(
            node.name
            for node in self._sight.nodes
            if not fits(
                plus(self._used_on(node.name), self._others_on(node.name)), self._count.capacity(node)
            )
        )

    def _used_on(self, name: str) -> Amount:
        return self._used.get(name, self._none)

    def _others_on(self, name: str) -> Amount:
        return self._others.get(name, self._none)

    def _is_overloaded(self, node: RmsNode) -> bool:
        known = (self._known if self._count.rules is not None else self._used).get(node.name)
        if known is None:
            return False
        if self._count.rules is None:
            known = plus(known, self._others_on(node.name))
        return not fits(known, self._count.capacity(node))

    def _check(self) -> None:
        known = {job.key for job in self._jobs}
        wanted = {job.key: job.nodes_wanted for job in self._jobs}
        for key, nodes in self._fences.items():
            if key not in known and key in self._kept:
                raise NoFleet(f"job {key} is not moved: {self._kept[key]}")
            if key not in known:
                raise NoFleet(f"job {key} has no machine that can be saved: it cannot be moved")
            if missing := [node for node in nodes if node not in self._place]:
                raise NoFleet(f"there is no node {missing[0]}")
            if len(nodes) < wanted[key]:
                raise NoFleet(f"job {key} has machines on {wanted[key]} nodes: name as many for it, or more")
        if unknown := sorted(self._drained - self._place.keys()):
            raise NoFleet(f"there is no node {unknown[0]}")
        if len(self._closed()) == len(self._place):
            raise NoFleet("no node is left that could take a machine: each is down or is to be empty")
        if not self._jobs and self._kept:
            kept = sorted(self._kept.items(), key=lambda each: _order(each[0]))[:MOST_NAMED]
            raise NoFleet("; ".join(f"job {key} is not moved: {reason}" for key, reason in kept))
        if not self._jobs:
            raise NoFleet("no job runs in a virtual machine that can be saved (run: vm)")
        if (count := sum(wanted.values())) > MOST_MACHINES:
            raise NoFleet(f"jobs have {count} machines: a switch is planned for at most {MOST_MACHINES}")

    def _standing(self, job: RmsJob) -> tuple[MachineStanding, tuple[str, ...]]:
        at = tuple(sorted(self._at(job), key=self._place.__getitem__))
        if job.state in ON_NODES:
            return MachineStanding.RUNNING, at
        return (MachineStanding.SLEEPING if at else MachineStanding.WAITING), at

    @staticmethod
    def _at(job: RmsJob) -> tuple[str, ...]:
        """The nodes on which its machines are."""
        return job.nodes if job.state in ON_NODES else job.saved_on

    def _sleeps_on(self, job: RmsJob) -> bool:
        """Whether somebody suspended it by hand: it goes on when somebody says so."""
        return job.state is JobState.SUSPENDED and job.key not in self._asleep

    def _fixed(self, job: RmsJob) -> str:
        """Why a machine is nothing that a plan is about; nothing if it is."""
        if not job.can_save:
            return "the batch system cannot have it saved"
        if not self._place.keys() >= {*self._at(job)}:
            return "it is on nodes that are not this service's"
        return ""

    def _reason(self, job: RmsJob) -> str:
        """Why its machine is not moved; nothing if it may be."""
        if self._standing(job)[0] is MachineStanding.WAITING:
            return ""
        if len(self._at(job)) != job.nodes_wanted:
            return "it is leaving its nodes"
        if self._sleeps_on(job):
            return (
                f"it was suspended by hand on {', '.join(job.saved_on)} (outrider migrate, outrider resume)"
            )
        if machine_of(job.key) in self._asked:
            return "it is being suspended or moved"
        if not job.elsewhere:
            return "the batch system, its partition or its user's wishes allow it no other node"
        if job.key in self._resting and job.key not in self._fences and not self._leaves(job):
            return "it was moved within the last hour"
        return ""

    def _leaves(self, job: RmsJob) -> bool:
        return not self._drained.isdisjoint(job.nodes or job.saved_on)

    def _fence(self, job: RmsJob, at: tuple[str, ...]) -> frozenset[int] | None:
        """The nodes on which it may run; None if these are all, since sets of all nodes for all machines take
        longer to make than a plan."""
        names = self._may_be_on(job, at)
        if len(names) >= len(self._place):
            return None
        return frozenset(self._place[name] for name in names if name in self._place)

    def _may_be_on(self, job: RmsJob, at: tuple[str, ...]) -> tuple[str, ...]:
        if job.key in self._fences:
            return self._fences[job.key]
        if not at:
            return job.eligible or tuple(self._place)
        return (*at, *job.elsewhere)

    def _closed(self) -> list[int]:
        """Nodes that take nothing: those that are to be empty, and down ones."""
        return [
            number
            for number, node in enumerate(self._nodes)
            if node.name in self._drained or node.state is NodeState.DOWN
        ]

    def _node(self, node: RmsNode) -> SwitchNode:
        """What machines can have of a node: what other jobs leave. One that takes no jobs, or that is
        reserved now, gives what the machines there have, and no more."""
        used, left = self._used_on(node.name), minus(self._count.capacity(node), self._others_on(node.name))
        if node.name in self._booked or node.state is not NodeState.UP:
            left = used
        return SwitchNode(
            name=node.name,
            capacity=tuple(max(0, amount) for amount in left),
            images=frozenset(self._on.get(node.name, ())),
        )

    def _images_on(self) -> dict[str, set[str]]:
        """By node, which images of machines are there or on their way."""
        found: dict[str, set[str]] = {}
        nodes = self._site.book.timeline.nodes
        pools = self._site.book.pools
        for image in {each.image for each in self._images.values()}:
            for number in pools.nodes_with(image.key):
                pool = pools.pools[number]
                lives = pool.lives.get(image.key, ())
                is_usable = any(
                    image.may_be(each.image, is_coming=each.transfer is not None) for each in lives
                )
                if is_usable or image.key in pool.lingering:
                    found.setdefault(nodes[number].name, set()).add(_name(image))
        return found


def _name(image: Image) -> str:
    """The same bytes from another address may be for others alone."""
    return f"{image.key} {image.uri}"


def _order(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdecimal() else (0, key)


def _add(found: dict[str, Amount], name: str, demand: Amount) -> None:
    found[name] = plus(found[name], demand) if name in found else demand
