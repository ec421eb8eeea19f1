"""Situations to switch from, drawn at random as section 5.1 of the paper describes them.

The paper leaves out how often each state occurs, so the mix is an argument. Jobs have 9 or 18 machines
of 256 to 2,048 MB; how many of them compute is drawn after the shapes of the NAS grid benchmarks:
ED runs all its tasks at once, HC one after the other, VP and MB a few at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from outrider.core.switch.model import NOWHERE, MachineStanding, Situation, SwitchNode, VirtualMachine

MEMORIES_MB = (256, 512, 1024, 2048)
JOB_SIZES = (9, 18)
PROCESSORS = 2
NODE_MEMORY_MB = 4096

SHAPES = {"ED": (9, 9), "HC": (1, 1), "VP": (1, 3), "MB": (1, 3)}
"""By benchmark, how many of nine machines compute at least and at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """How jobs are shared among the three states, in parts; `busy_percent`: of machines that compute,
    where it is not drawn after the benchmarks."""

    running: int
    sleeping: int
    waiting: int
    busy_percent: int | None = None


MIXES = {
    "thirds": Mix(running=1, sleeping=1, waiting=1),
    "thirds-busy": Mix(running=1, sleeping=1, waiting=1, busy_percent=95),
    "mostly-running": Mix(running=8, sleeping=1, waiting=1),
    "running": Mix(running=1, sleeping=0, waiting=0),
    "halves": Mix(running=1, sleeping=0, waiting=1),
    "six-two-two": Mix(running=6, sleeping=2, waiting=2),
}


def draw(nodes: int, machines: int, mix: Mix, seed: int) -> Situation:
    """So many machines, in jobs; those that run or sleep are where their memory fits."""
    random = Random(f"switch {nodes} {machines} {mix} {seed}")
    free = [NODE_MEMORY_MB] * nodes
    found: list[VirtualMachine] = []
    standings: list[MachineStanding] = []
    hosts: list[int] = []
    job = 0
    while len(found) < machines:
        size = min(random.choice(JOB_SIZES), machines - len(found))
        standing = random.choices(
            (MachineStanding.RUNNING, MachineStanding.SLEEPING, MachineStanding.WAITING),
            weights=(mix.running, mix.sleeping, mix.waiting),
        )[0]
        memories = [random.choice(MEMORIES_MB) for _ in range(size)]
        places = _places(random, free, memories) if standing is MachineStanding.RUNNING else None
        if standing is MachineStanding.RUNNING and places is None:
            # No room for all its machines: it waits.
            standing = MachineStanding.WAITING
        if standing is MachineStanding.SLEEPING:
            places = [random.randrange(nodes) for _ in range(size)]
        busy = _busy(random, size, mix)
        for number in range(size):
            name = f"j{job}m{number}"
            found.append(VirtualMachine(name=name, job=job, demand=(memories[number], int(number in busy))))
            standings.append(standing)
            hosts.append(NOWHERE if places is None else places[number])
        job += 1
    each = (NODE_MEMORY_MB, PROCESSORS)
    return Situation(
        nodes=tuple(SwitchNode(name=f"n{number}", capacity=each) for number in range(nodes)),
        machines=tuple(found),
        standings=tuple(standings),
        hosts=tuple(hosts),
    )


def _places(random: Random, free: list[int], memories: list[int]) -> list[int] | None:
    """A node with the memory for each; None, with nothing taken, if there is none."""
    taken: list[tuple[int, int]] = []
    for memory in memories:
        open_nodes = [node for node, left in enumerate(free) if left >= memory]
        if not open_nodes:
            for node, amount in taken:
                free[node] += amount
            return None
        node = random.choice(open_nodes)
        free[node] -= memory
        taken.append((node, memory))
    return [node for node, _ in taken]


def _busy(random: Random, size: int, mix: Mix) -> set[int]:
    """The machines of a job that compute."""
    if mix.busy_percent is not None:
        return {number for number in range(size) if random.randrange(100) < mix.busy_percent}
    least, most = SHAPES[random.choice(sorted(SHAPES))]
    found: set[int] = set()
    for first in range(0, size, 9):
        nine = range(first, min(first + 9, size))
        found.update(random.sample(nine, min(len(nine), random.randint(least, most))))
    return found
