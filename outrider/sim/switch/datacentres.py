"""Instances of the shape of BtrPlace's `std-perf`, drawn at random and written in its format.

Of the published ones is known: 5,000 nodes, 3 to 6 machines a node, resources `memory` and `uCpu`, and two
kinds. In `li` load has risen, so that some hundred machines have to leave overloaded nodes; in `nr` one
node in twenty has gone, and its machines, which are ready, are to run elsewhere. Sizes are assumed.
"""

from __future__ import annotations

from random import Random

MEMORY_MB = 32_768
PROCESSORS = 64
SIZES = ((2_048, 6), (2_048, 4), (4_096, 8), (1_024, 2))
"""Machines' memory and processors; six of the largest load a node well below what it has."""
RISEN_ONE_IN = 10
GONE_ONE_IN = 20


def draw_instance(kind: str, nodes: int, machines_a_node: int, seed: int) -> dict[str, object]:
    """`kind`: `li` or `nr`."""
    random = Random(f"datacentre {kind} {nodes} {machines_a_node} {seed}")
    gone = set(random.sample(range(nodes), nodes // GONE_ONE_IN)) if kind == "nr" else set()
    online: dict[str, object] = {}
    memory: dict[str, int] = {}
    processors: dict[str, int] = {}
    ready: list[int] = []
    constraints: list[dict[str, object]] = []
    number = 0
    for node in range(nodes):
        hosted = []
        for _ in range(machines_a_node):
            size = random.choice(SIZES)
            memory[str(number)], processors[str(number)] = size
            hosted.append(number)
            if kind == "li" and not random.randrange(RISEN_ONE_IN):
                wanted = size[1] + random.randint(PROCESSORS // 4, PROCESSORS // 2)
                constraints.append({"id": "preserve", "vm": number, "rc": "uCpu", "amount": wanted})
            number += 1
        if node in gone:
            ready += hosted
            constraints += [{"id": "running", "vm": each} for each in hosted]
        else:
            online[str(node)] = {"runningVMs": hosted, "sleepingVMs": []}
    names = [str(node) for node in range(nodes)]
    return {
        "model": {
            "mapping": {"onlineNodes": online, "offlineNodes": sorted(gone), "readyVMs": ready},
            "attributes": {"nodes": {}, "vms": {}},
            "views": [
                _view("uCpu", dict.fromkeys(names, PROCESSORS), processors),
                _view("memory", dict.fromkeys(names, MEMORY_MB), memory),
            ],
        },
        "constraints": constraints,
        "objective": {"id": "minimizeMTTR"},
    }


def _view(name: str, nodes: dict[str, int], machines: dict[str, int]) -> dict[str, object]:
    return {
        "id": "shareableResource", "rcId": name, "defCapacity": 0, "defConsumption": 0, "nodes": nodes,
        "vms": machines,
    }  # fmt: skip
