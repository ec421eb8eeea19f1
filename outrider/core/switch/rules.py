"""What operators ask of a placement beside room: spread, gather, fence, ban, keep, maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.core.switch.model import NOWHERE, MachineStanding, Situation


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementRules:
    """Machines and nodes are numbers. A machine that is in no rule may run anywhere but on closed nodes."""

    spread: tuple[frozenset[int], ...] = ()
    """Machines of which no two run on one node."""
    gather: tuple[frozenset[int], ...] = ()
    """Machines that run on one and the same node."""
    fence: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By machine, the nodes on which it may run."""
    ban: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By machine, nodes on which it may not run."""
    keep: frozenset[int] = frozenset()
    """Machines that are never moved while they run."""
    closed: frozenset[int] = frozenset()
    """Nodes in maintenance: all machines leave them."""

    @property
    def is_empty(self) -> bool:
        return self == NO_RULES

    def allows(self, machine: int, node: int) -> bool:
        """Whether it may run there, whatever else does."""
        if node in self.closed or node in self.ban.get(machine, frozenset()):
            return False
        fence = self.fence.get(machine)
        return fence is None or node in fence

    def contradictions(self, situation: Situation) -> list[str]:
        """Why no placement can follow them all; in sentences."""
        names, found = [each.name for each in situation.machines], []
        count = len(situation.nodes)
        for number in sorted({*self.fence, *self.ban, *self.keep}):
            if not any(self.allows(number, node) for node in range(count)):
                found.append(f"machine {names[number]} may run on no node")
            is_kept = number in self.keep and situation.standings[number] is MachineStanding.RUNNING
            if is_kept and not self.allows(number, situation.hosts[number]):
                node = situation.nodes[situation.hosts[number]].name
                found.append(f"machine {names[number]} is never moved, and may not stay on {node}")
        for group in self.gather:
            for other in self.spread:
                both = sorted(group & other)
                if len(both) > 1:
                    words = ", ".join(names[number] for number in both)
                    found.append(f"machines {words} are to be on one node, and no two of them on one")
        return found

    def broken(self, situation: Situation, hosts: Sequence[int]) -> list[str]:
        """Which of them a placement breaks, in sentences."""
        found = []
        machines, nodes = situation.machines, situation.nodes
        for number, node in enumerate(hosts):
            if node == NOWHERE:
                continue
            if not self.allows(number, node):
                found.append(f"machine {machines[number].name} may not run on {nodes[node].name}")
            was = situation.hosts[number]
            is_moved = situation.standings[number] is MachineStanding.RUNNING and node != was
            if number in self.keep and is_moved:
                found.append(f"machine {machines[number].name} is never moved")
        for number in (number for job in sorted(situation.whole) for number in situation.jobs[job]):
            if hosts[number] != NOWHERE and not situation.suits(number, hosts[number], hosts):
                where = nodes[hosts[number]].name
                found.append(
                    f"machine {machines[number].name} may not run on {where} beside the others of its job"
                )
        for group in self.spread:
            used = [hosts[number] for number in group if hosts[number] != NOWHERE]
            if len(set(used)) < len(used):
                words = ", ".join(machines[number].name for number in sorted(group))
                found.append(f"no two of machines {words} may run on one node")
        for group in self.gather:
            if len({hosts[number] for number in group if hosts[number] != NOWHERE}) > 1:
                words = ", ".join(machines[number].name for number in sorted(group))
                found.append(f"machines {words} are to run on one node")
        return found


NO_RULES = PlacementRules()
