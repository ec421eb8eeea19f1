"""What machines really use of processors, and as how much of a node they count where that may be packed.

What a machine has had, and waited for while others had it, is known by counters that are read again and
again. Use is both between two readings: on a node that is overloaded nobody has as much as he would use. With
a margin for what it may want a moment later it counts instead of what its job has asked for, as long as it is
not old. Memory always counts as it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST_US = 10_000_000
"""Between two readings that are compared: a shorter time says little of what comes."""
PROCESSOR = 100
"""Use is counted in hundredths of a processor."""
MachineKey = tuple[str, int]
"""Whose machine it is, as a node calls its owner, and the number of the user in whose folder it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredUse:
    """How many hundredths of a processor a machine had or waited for on the average, until when."""

    hundredths: int
    at_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorCounter:
    """What a machine has had since it runs, and waited for, read at `at_us` of its node's clock."""

    used_us: int
    waited_us: int
    at_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingByUse:
    """What a site allows. `most`: so many processors may be asked for, for each that a node has."""

    margin_percent: int = 25
    age_s: int = 120
    most: int = 2

    def counted(self, asked: int, measured: MeasuredUse | None, now_s: int) -> int | None:
        """As how many hundredths a machine counts, never as more than it has asked for; None if its use is
        not known, or not any more."""
        if measured is None or now_s - measured.at_s > self.age_s:
            return None
        return min(asked * PROCESSOR, max(1, -(-measured.hundredths * (100 + self.margin_percent) // 100)))


@dataclass(slots=True)
class UseMeter:
    """The machines of one node."""

    used: dict[MachineKey, MeasuredUse] = field(default_factory=dict)
    _read: dict[MachineKey, ProcessorCounter] = field(default_factory=dict)

    def read(self, counters: Mapping[MachineKey, ProcessorCounter], now_s: int) -> None:
        """All counters of the node. One that has fallen belongs to another process than before; of what was
        waited for, a thread that has ended takes its own away."""
        for key in [key for key in self._read if key not in counters]:
            del self._read[key]
            self.used.pop(key, None)
        for key, now in counters.items():
            before = self._read.get(key)
            if before is None or now.used_us < before.used_us or now.at_us < before.at_us:
                self._read[key] = now
                self.used.pop(key, None)
            elif (passed_us := now.at_us - before.at_us) >= LEAST_US:
                wanted_us = now.used_us - before.used_us + max(0, now.waited_us - before.waited_us)
                self.used[key] = MeasuredUse(hundredths=-(-wanted_us * PROCESSOR // passed_us), at_s=now_s)
                self._read[key] = now
