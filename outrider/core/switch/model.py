"""A cluster of virtual machines as it is, what it is to be, and the actions between the two.

Nodes and machines are known by their numbers. Amounts are whole numbers, one for each resource in
the same order everywhere; memory is the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

Amount = tuple[int, ...]

NOWHERE = -1


class MachineStanding(Enum):
    """What a machine does."""

    WAITING = "waiting"
    RUNNING = "running"
    SLEEPING = "sleeping"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchNode:
    """A node that hosts machines. `images`: those whose bytes it has, by address."""

    name: str
    capacity: Amount
    images: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class VirtualMachine:
    """A virtual machine of a job: what it needs while it runs, and the image that it starts from."""

    name: str
    job: int
    demand: Amount
    image: str = ""

    @property
    def memory(self) -> int:
        return self.demand[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """Every machine's standing, and its node: where it runs, or where its saved state lies.

    A node may be overloaded, because what machines really use changes.
    """

    nodes: tuple[SwitchNode, ...]
    machines: tuple[VirtualMachine, ...]
    standings: tuple[MachineStanding, ...]
    hosts: tuple[int, ...]
    whole: frozenset[int] = frozenset()
    """Jobs that move whole or not at all: all of their machines are saved and read again together if one of
    them goes to another node. No two of them run on one node, and the first one is on the first of their
    nodes: there the batch system begins the job's script. It alone may come to a node that another of them
    leaves, so that it never has to be waited for."""
    jobs: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """By job, its machines."""

    def __post_init__(self) -> None:
        if not len(self.machines) == len(self.standings) == len(self.hosts):
            raise ValueError("every machine has one standing and one node")
        found: list[list[int]] = [
            [] for _ in range(1 + max((each.job for each in self.machines), default=-1))
        ]
        for number, machine in enumerate(self.machines):
            found[machine.job].append(number)
            has_node = self.standings[number] in (MachineStanding.RUNNING, MachineStanding.SLEEPING)
            if has_node != (self.hosts[number] != NOWHERE):
                raise ValueError(f"machine {machine.name} is {self.standings[number].value}: check its node")
        object.__setattr__(self, "jobs", tuple(tuple(each) for each in found))

    def is_whole(self, machine: int) -> bool:
        """Whether all machines of its job move if it does."""
        return self.machines[machine].job in self.whole

    def suits(self, machine: int, node: int, hosts: Sequence[int]) -> bool:
        """Whether a machine of a job that moves whole may run on a node, beside where the others of its job
        are (`hosts`, NOWHERE for those that are not put yet) and were."""
        first, *others = self.jobs[self.machines[machine].job]
        was = self.hosts[machine]
        for each in (first, *others):
            if each == machine:
                continue
            at = hosts[each]
            if node == at or (node == self.hosts[each] and node != was and machine != first):
                return False
            if at != NOWHERE and ((machine == first and at < node) or (each == first and at > node)):
                return False
        return True

    @property
    def free(self) -> list[Amount]:
        """What is left of each node beside the machines that run there; below zero where it is overloaded."""
        left = [list(node.capacity) for node in self.nodes]
        for number, machine in enumerate(self.machines):
            if self.standings[number] is MachineStanding.RUNNING:
                row = left[self.hosts[number]]
                for resource, amount in enumerate(machine.demand):
                    row[resource] -= amount
        return [tuple(row) for row in left]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where each machine is to run; NOWHERE for one that is not to run. `stopped`: those that are over."""

    hosts: tuple[int, ...]
    stopped: frozenset[int] = frozenset()


class ActionKind(Enum):
    RUN = "run"
    STOP = "stop"
    MIGRATE = "migrate"
    PAUSE = "pause"
    """Saved and read again where it is, because others of its job go elsewhere."""
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Action:
    """One step of one machine. `source`: where it runs or where its state lies; NOWHERE for none."""

    kind: ActionKind
    machine: int
    source: int = NOWHERE
    target: int = NOWHERE

    @property
    def takes(self) -> int:
        """The node on which it needs room; NOWHERE for none."""
        return NOWHERE if self.kind in _STAYS_OR_ENDS else self.target

    @property
    def frees(self) -> int:
        """The node that has more room when it is over; NOWHERE for none."""
        leaves = self.kind in (ActionKind.STOP, ActionKind.SUSPEND, ActionKind.MIGRATE)
        return self.source if leaves else NOWHERE

    @property
    def leaves(self) -> int:
        """The node on which it makes room for others of its job already while it is under way."""
        return self.source if self.kind is ActionKind.MIGRATE else NOWHERE

    @property
    def is_local(self) -> bool:
        """Whether a state is read where it lies."""
        return self.source == self.target


_STAYS_OR_ENDS = (ActionKind.STOP, ActionKind.SUSPEND, ActionKind.PAUSE)
Stage = tuple[Action, ...]
"""Actions that are begun together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchPlan:
    """Stages in their order: one begins when the one before it is over."""

    stages: tuple[Stage, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for stage in self.stages for action in stage)


def fits(demand: Amount, free: Amount) -> bool:
    """Whether there is room for it. Where nothing is asked for, too much may be taken already."""
    # A loop takes half of the time that `all` does, and this is asked most.
    for wanted, left in zip(demand, free, strict=True):  # noqa: SIM110
        if wanted > left and wanted:
            return False
    return True


def plus(left: Amount, right: Amount) -> Amount:
    return tuple([one + other for one, other in zip(left, right, strict=True)])


def minus(left: Amount, right: Amount) -> Amount:
    return tuple([one - other for one, other in zip(left, right, strict=True)])


def summed(amounts: Iterable[Amount], resources: int) -> Amount:
    total = [0] * resources
    for amount in amounts:
        for resource, each in enumerate(amount):
            total[resource] += each
    return tuple(total)
