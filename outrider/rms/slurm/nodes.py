"""Nodes as `scontrol -o show node` prints them: what they have, which state they are in, where they count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from outrider.core.model import Resources
from outrider.rms.base import NodeState, RmsNode
from outrider.rms.slurm.fields import BadField, value_in

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,9})(?=[(,]|$)")
SUFFIXES = "*~#%$@^-!"
GONE = frozenset({"DOWN", "ERROR", "FUTURE"})
"""UNKNOWN is none of them: slurmctld has been started, or has read its configuration, and has not heard
from the node since. Soon it says what it has heard, or DOWN."""
SILENT = frozenset({"NOT_RESPONDING", "NO_RESPOND"})
"""Nobody answers there: some minutes later Slurm says DOWN."""
TAKES_NOTHING = frozenset(
    {
        "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED",
        "INVALID_REG", "INVAL", "BLOCKED", "UNDRAIN",
    }
)  # fmt: skip
"""It may finish what it has. What is powered down, planned, reserved or in maintenance is up: Slurm
will use it when its time comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmNode:
    """A node, and by what jobs are led to it."""

    node: RmsNode
    partitions: tuple[str, ...]
    features: frozenset[str]


def nodes_in_lines(lines: Iterable[str]) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
    """The nodes by name, and what could not be understood."""
    found: dict[str, SlurmNode] = {}
    findings = []
    for line in lines:
        if line.startswith("NodeName="):
            try:
                each = _node(line)
            except (BadField, ValueError) as error:
                findings.append(f"node {value_in(line, 'NodeName')} is left out: {error}")
                continue
            found[each.node.name] = each
    return tuple(found[name] for name in sorted(found)), tuple(findings)


@lru_cache(maxsize=1024)
def state_of(words: str) -> NodeState:
    """`IDLE+CLOUD+DRAIN`, `DOWN*`, `MIXED$`: the base state, then flags; a suffix is a flag, too."""
    base, *flags = (each.rstrip(SUFFIXES) for each in words.upper().split("+"))
    if base in GONE or "*" in words or SILENT.intersection([base, *flags]):
        return NodeState.DOWN
    if TAKES_NOTHING.intersection([base, *flags]):
        return NodeState.DRAINED
    return NodeState.UP


def _node(line: str) -> SlurmNode:
    name, state = value_in(line, "NodeName"), value_in(line, "State")
    if not name or not state:
        raise BadField("field NodeName or State is missing")
    capacity = {
        "cpus": _number(line, "CPUEfctv", _number(line, "CPUTot", 0)),
        "memory_mib": _number(line, "RealMemory", 0),
        "gpus": sum(int(each) for each in _GPUS.findall(value_in(line, "Gres") or "")),
    }
    features = value_in(line, "ActiveFeatures") or value_in(line, "AvailableFeatures") or ""
    return SlurmNode(
        node=RmsNode(name=name, capacity=Resources.from_mapping(capacity), state=state_of(state)),
        partitions=tuple(sorted(filter(None, (value_in(line, "Partitions") or "").split(",")))),
        features=frozenset(filter(None, features.split(","))),
    )


def _number(line: str, name: str, without: int) -> int:
    value = value_in(line, name)
    if not value:
        return without
    if not value.isdecimal() or len(value) > 18:
        raise BadField(f"field {name} is {value[:40]!r}, not a number")
    return int(value)
