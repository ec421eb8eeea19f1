"""BtrPlace's instances: nodes, machines that run, sleep or are ready, and constraints, as JSON.

What is asked for and cannot be kept is refused with its name. Machines are not in jobs there: each is a
job of its own. `among` is kept by the group of nodes that holds most of its machines' memory now.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.core.switch.model import NOWHERE, MachineStanding, Situation, SwitchNode, VirtualMachine
from outrider.core.switch.rules import PlacementRules
from outrider.core.switch.selection import Selection

MOST_BYTES = 512 << 20
MEMORY_NAMES = ("memory", "mem", "ram")
"""What a view of memory is called; without one the first view is taken for it."""

Plain = Mapping[str, Any]


class InstanceFault(Exception):
    """The file is none, or asks for what is not known here; the message says for what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchInstance:
    """A situation, which machines are to run, which are over, and what has to be kept."""

    situation: Situation
    selection: Selection
    stopped: frozenset[int]
    rules: PlacementRules
    resources: tuple[str, ...]
    apart_throughout: tuple[frozenset[int], ...] = ()
    """Machines that are never on one node, not even on the way."""


def read_instance(path: Path, *, counts_moves: bool = False) -> SwitchInstance:
    """Raises InstanceFault. With `counts_moves` each machine costs the same to move, whatever its memory."""
    try:
        with path.open("rb") as file:
            unpacked = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            data = unpacked.read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InstanceFault(f"cannot be read: {error}") from error
    if len(data) > MOST_BYTES:
        raise InstanceFault(f"has more than {MOST_BYTES} bytes")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InstanceFault(f"is not JSON: {error}") from error
    try:
        return _InstanceReader(plain, counts_moves=counts_moves).instance()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InstanceFault(f"is not an instance of BtrPlace: {type(error).__name__} {error}") from error


@dataclass(slots=True)
class _Wishes:
    """What the constraints ask, by the file's own numbers."""

    running: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    keep: set[int] = field(default_factory=set)
    fence: dict[int, set[int]] = field(default_factory=dict)
    ban: dict[int, set[int]] = field(default_factory=dict)
    spread: list[tuple[frozenset[int], bool]] = field(default_factory=list)
    gather: list[frozenset[int]] = field(default_factory=list)
    among: list[tuple[list[int], list[list[int]]]] = field(default_factory=list)
    least: dict[tuple[str, int], int] = field(default_factory=dict)
    """By view and machine, what it is to have."""
    most: dict[tuple[str, int], int] = field(default_factory=dict)
    """By view and node, what may be used of it."""
    ratio: dict[tuple[str, int], float] = field(default_factory=dict)


class _InstanceReader:
    def __init__(self, plain: Plain, *, counts_moves: bool) -> None:
        mapping = plain["model"]["mapping"]
        self._online = {int(key): each for key, each in mapping["onlineNodes"].items()}
        self._offline = sorted(int(each) for each in mapping.get("offlineNodes", ()))
        self._nodes = sorted({*self._online, *self._offline})
        self._place = {key: number for number, key in enumerate(self._nodes)}
        self._standing: dict[int, tuple[MachineStanding, int]] = {
            int(each): (MachineStanding.WAITING, NOWHERE) for each in mapping.get("readyVMs", ())
        }
        for key, hosted in self._online.items():
            for name, standing in (
                ("runningVMs", MachineStanding.RUNNING), ("sleepingVMs", MachineStanding.SLEEPING),
            ):  # fmt: skip
                for each in hosted.get(name, ()):
                    if int(each) in self._standing:
                        raise InstanceFault(f"has machine {each} in two places")
                    self._standing[int(each)] = (standing, self._place[key])
        self._keys = sorted(self._standing)
        self._number = {key: number for number, key in enumerate(self._keys)}
        views = [each for each in plain["model"].get("views", ()) if _is_resource(each)]
        if not views:
            raise InstanceFault("has no view shareableResource: nothing says what a node has")
        views.sort(key=lambda each: str(each["rcId"]).lower() not in MEMORY_NAMES)
        if counts_moves:
            # What costs are counted in comes first: one of each machine, and room for all on every node.
            views.insert(0, {"rcId": "moves", "nodes": {}, "vms": {}, "defCapacity": len(self._keys),
                             "defConsumption": 1})  # fmt: skip
        self._views = views
        self._wishes = _Wishes()
        for each in plain.get("constraints", ()):
            self._ask(each)

    def instance(self) -> SwitchInstance:
        wishes, number = self._wishes, self._number
        standings = [self._standing[key][0] for key in self._keys]
        situation = Situation(
            nodes=tuple(
                SwitchNode(name=f"n{key}", capacity=tuple(self._capacity(v, key) for v in self._views))
                for key in self._nodes
            ),
            machines=tuple(
                VirtualMachine(
                    name=f"vm{key}", job=each, demand=tuple(self._demand(v, key) for v in self._views)
                )
                for each, key in enumerate(self._keys)
            ),
            standings=tuple(standings),
            hosts=tuple(self._standing[key][1] for key in self._keys),
        )
        run = [
            each
            for each, key in enumerate(self._keys)
            if key not in wishes.over | wishes.idle
            and (key in wishes.running or standings[each] is MachineStanding.RUNNING)
        ]
        apart = [(self._group(group), is_throughout) for group, is_throughout in wishes.spread]
        return SwitchInstance(
            situation=situation,
            selection=Selection(jobs=tuple(run), hosts=()),
            stopped=frozenset(number[key] for key in wishes.over),
            rules=PlacementRules(
                spread=tuple(group for group, _ in apart),
                gather=tuple(self._group(group) for group in wishes.gather),
                fence={number[key]: frozenset(nodes) for key, nodes in self._fences(situation).items()},
                ban={number[key]: frozenset(nodes) for key, nodes in wishes.ban.items()},
                keep=frozenset(number[key] for key in wishes.keep),
                closed=frozenset(wishes.closed) | {self._place[key] for key in self._offline},
            ),
            resources=tuple(str(each["rcId"]) for each in self._views),
            apart_throughout=tuple(group for group, is_throughout in apart if is_throughout),
        )

    def _group(self, keys: Iterable[int]) -> frozenset[int]:
        return frozenset(self._number[key] for key in keys)

    def _capacity(self, view: Plain, key: int) -> int:
        name = str(view["rcId"])
        amount = int(view["nodes"].get(str(key), view.get("defCapacity", 0)))
        amount = int(amount * self._wishes.ratio.get((name, key), 1.0))
        return min(amount, self._wishes.most.get((name, key), amount))

    def _demand(self, view: Plain, key: int) -> int:
        amount = int(view["vms"].get(str(key), view.get("defConsumption", 0)))
        return max(amount, self._wishes.least.get((str(view["rcId"]), key), 0))

    def _fences(self, situation: Situation) -> dict[int, set[int]]:
        """With those of `among`: the group of nodes with the most of these machines' memory; the first one of
        equal ones."""
        found = {key: set(nodes) for key, nodes in self._wishes.fence.items()}
        for keys, groups in self._wishes.among:
            weights = [0] * len(groups)
            for key in keys:
                at = self._standing[key][1]
                for count, group in enumerate(groups):
                    if at in group:
                        weights[count] += 1 + situation.machines[self._number[key]].memory
            chosen = set(groups[weights.index(max(weights))])
            for key in keys:
                found[key] = found[key] & chosen if key in found else set(chosen)
        return found

    def _ask(self, plain: Plain) -> None:
        kind = str(plain["id"])
        ask = _KINDS.get(kind)
        if ask is None:
            raise InstanceFault(
                f"asks for {kind}, which is not known here: known are {', '.join(sorted(_KINDS))}"
            )
        ask(self, plain)

    def _vms(self, plain: Plain) -> Iterator[int]:
        for each in plain["vms"] if "vms" in plain else (plain["vm"],):
            if int(each) not in self._number:
                raise InstanceFault(f"asks for {plain['id']} of machine {each}, which is not there")
            yield int(each)

    def _places(self, plain: Plain) -> list[int]:
        return self._places_of(plain, plain["nodes"] if "nodes" in plain else (plain["node"],))

    def _places_of(self, plain: Plain, keys: Iterable[object]) -> list[int]:
        found = []
        for each in keys:
            if int(str(each)) not in self._place:
                raise InstanceFault(f"asks for {plain['id']} of node {each}, which is not there")
            found.append(self._place[int(str(each))])
        return found

    def _one_place(self, plain: Plain) -> int:
        places = self._places(plain)
        if len(places) != 1:
            raise InstanceFault(f"asks for {plain['id']} of several nodes together, which is not known here")
        return self._nodes[places[0]]

    def _view(self, plain: Plain) -> str:
        name = str(plain["rc"])
        if name not in {str(each["rcId"]) for each in self._views}:
            raise InstanceFault(f"asks for {plain['id']} of {name}, of which there is no view")
        return name

    def _ask_fence(self, plain: Plain) -> None:
        places = set(self._places(plain))
        for key in self._vms(plain):
            known = self._wishes.fence.get(key)
            self._wishes.fence[key] = places if known is None else known & places

    def _ask_ban(self, plain: Plain) -> None:
        for key in self._vms(plain):
            self._wishes.ban.setdefault(key, set()).update(self._places(plain))

    def _ask_among(self, plain: Plain) -> None:
        parts = [self._places_of(plain, part) for part in plain["parts"]]
        self._wishes.among.append((list(self._vms(plain)), parts))

    def _ask_spread(self, plain: Plain) -> None:
        self._wishes.spread.append((frozenset(self._vms(plain)), bool(plain.get("continuous", False))))

    def _ask_preserve(self, plain: Plain) -> None:
        name = self._view(plain)
        for key in self._vms(plain):
            self._wishes.least[name, key] = max(int(plain["amount"]), self._wishes.least.get((name, key), 0))

    def _ask_capacity(self, plain: Plain) -> None:
        self._wishes.most[self._view(plain), self._one_place(plain)] = int(plain["amount"])

    def _ask_overbook(self, plain: Plain) -> None:
        name = self._view(plain)
        for place in self._places(plain):
            self._wishes.ratio[name, self._nodes[place]] = float(plain["ratio"])

    def _ask_online(self, plain: Plain) -> None:
        if any(self._nodes[place] in self._offline for place in self._places(plain)):
            raise InstanceFault("asks for a node that is off to be online: nodes are not booted here")

    def _ask_asleep(self, plain: Plain) -> None:
        keys = set(self._vms(plain))
        if any(self._standing[key][0] is MachineStanding.WAITING for key in keys):
            raise InstanceFault("asks for a machine that has never run to be asleep")
        self._wishes.idle |= keys

    def _ask_ready(self, plain: Plain) -> None:
        keys = set(self._vms(plain))
        if any(self._standing[key][0] is not MachineStanding.WAITING for key in keys):
            raise InstanceFault(
                "asks for a machine to be ready that runs or sleeps: machines are not forged anew"
            )
        self._wishes.idle |= keys


def _is_resource(view: Plain) -> bool:
    return str(view.get("id", "")).lower() == "shareableresource"


_KINDS: dict[str, Callable[[_InstanceReader, Plain], None]] = {
    "among": _InstanceReader._ask_among,
    "ban": _InstanceReader._ask_ban,
    "fence": _InstanceReader._ask_fence,
    "gather": lambda reader, plain: reader._wishes.gather.append(frozenset(reader._vms(plain))),
    "killed": lambda reader, plain: reader._wishes.over.update(reader._vms(plain)),
    "offline": lambda reader, plain: reader._wishes.closed.update(reader._places(plain)),
    "online": _InstanceReader._ask_online,
    "overbook": _InstanceReader._ask_overbook,
    "preserve": _InstanceReader._ask_preserve,
    "ready": _InstanceReader._ask_ready,
    "resourceCapacity": _InstanceReader._ask_capacity,
    "root": lambda reader, plain: reader._wishes.keep.update(reader._vms(plain)),
    "running": lambda reader, plain: reader._wishes.running.update(reader._vms(plain)),
    "sleeping": _InstanceReader._ask_asleep,
    "spread": _InstanceReader._ask_spread,
}
"""The constraints that are kept, by the names that the format gives them."""
