"""BtrPlace's format: tiny instances worked out by hand, and drawn ones of the shape of its benchmark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.sim.switch.datacentres import draw_instance
from outrider.sim.switch.instances import InstanceFault, SwitchInstance, read_instance
from outrider.sim.switch.solving import explained, solve


def written(folder: Path, plain: dict[str, Any]) -> Path:
    path = folder / "instance.json"
    path.write_text(json.dumps(plain))
    return path


def tiny(*constraints: dict[str, Any]) -> dict[str, Any]:
    """Nodes 10, 11 and 12 with 8 of memory and 4 of cpu. On 10 run 1 (5 of memory) and 2 (3); on 11 lies 3
    (2); 4 (4) is ready. Each has 1 of cpu."""
    memory = {"1": 5, "2": 3, "3": 2, "4": 4}
    return {
        "model": {
            "mapping": {
                "readyVMs": [4],
                "onlineNodes": {
                    "10": {"runningVMs": [2, 1], "sleepingVMs": []},
                    "11": {"runningVMs": [], "sleepingVMs": [3]},
                    "12": {"runningVMs": [], "sleepingVMs": []},
                },
                "offlineNodes": [],
            },
            "attributes": {"nodes": {}, "vms": {}},
            "views": [
                {"id": "ShareableResource", "rcId": "cpu", "defCapacity": 4, "defConsumption": 1, "nodes": {},
                 "vms": {}},
                {"id": "shareableResource", "rcId": "memory", "defCapacity": 8, "defConsumption": 0,
                 "nodes": {}, "vms": memory},
            ],
        },
        "constraints": list(constraints),
        "objective": {"id": "minimizeMTTR"},
    }  # fmt: skip


def read(folder: Path, *constraints: dict[str, Any]) -> SwitchInstance:
    return read_instance(written(folder, tiny(*constraints)))


def test_machines_are_where_the_file_says(tmp_path: Path) -> None:
    instance = read(tmp_path)
    situation = instance.situation

    assert instance.resources == ("memory", "cpu"), "memory is what costs are counted in"
    assert [node.name for node in situation.nodes] == ["n10", "n11", "n12"]
    assert [(each.name, each.demand) for each in situation.machines] == [
        ("vm1", (5, 1)), ("vm2", (3, 1)), ("vm3", (2, 1)), ("vm4", (4, 1)),
    ]  # fmt: skip
    assert [each.value for each in situation.standings] == ["running", "running", "sleeping", "waiting"]
    assert situation.hosts == (0, 0, 1, -1)
    assert instance.selection.jobs == (0, 1), "what runs goes on, and nothing else is asked for"


@pytest.mark.parametrize(
    ("constraints", "hosts", "cost"),
    [
        # Nothing is asked for that is not so.
        ((), (0, 0, -1, -1), 0),
        # It needs 7 now: the smaller one leaves, which costs its 3.
        (({"id": "preserve", "vm": 1, "rc": "memory", "amount": 7},), (0, 1, -1, -1), 3),
        (({"id": "offline", "node": 10},), (1, 1, -1, -1), 8),
        (({"id": "spread", "vms": [1, 2], "continuous": False},), (0, 1, -1, -1), 3),
        (({"id": "ban", "vm": 1, "nodes": [10, 11]},), (2, 0, -1, -1), 5),
        (({"id": "fence", "vms": [2], "nodes": [12]},), (0, 2, -1, -1), 3),
        (({"id": "root", "vm": 2}, {"id": "spread", "vms": [1, 2]}), (1, 0, -1, -1), 5),
        # Read where it lies: its own 2. Started: nothing.
        (({"id": "running", "vm": 3}, {"id": "running", "vms": [4]}), (0, 0, 1, 1), 2),
        (({"id": "sleeping", "vm": 1},), (-1, 0, -1, -1), 5),
        (({"id": "killed", "vm": 1},), (-1, 0, -1, -1), 0),
        (({"id": "gather", "vms": [2, 4]}, {"id": "running", "vm": 4}), None, 3),
        (({"id": "among", "vms": [1, 2], "parts": [[11, 12], [10]]},), (0, 0, -1, -1), 0),
        (({"id": "resourceCapacity", "nodes": [10], "rc": "cpu", "amount": 1},), (0, 1, -1, -1), 3),
        # Half of 4 processors are 2, and half of 8 of memory are 4.
        (({"id": "overbook", "nodes": [10], "rc": "memory", "ratio": 0.5},), (1, 0, -1, -1), 5),
    ],
)
def test_constraints_are_kept_at_the_least_cost(
    tmp_path: Path, constraints: tuple[dict[str, Any], ...], hosts: tuple[int, ...] | None, cost: int
) -> None:
    instance = read(tmp_path, *constraints)

    solved, switch = solve(instance)

    assert solved.cost == cost
    assert not instance.rules.broken(instance.situation, switch.target.hosts)
    if hosts is not None:
        assert switch.target.hosts == hosts


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ({"id": "maxOnline", "nodes": [10], "amount": 1}, "asks for maxOnline, which is not known here"),
        ({"id": "ban", "vm": 9, "nodes": [10]}, "ban of machine 9, which is not there"),
        ({"id": "ban", "vm": 1, "nodes": [13]}, "ban of node 13, which is not there"),
        (
            {"id": "preserve", "vm": 1, "rc": "disk", "amount": 1},
            "preserve of disk, of which there is no view",
        ),
        ({"id": "resourceCapacity", "nodes": [10, 11], "rc": "cpu", "amount": 1}, "several nodes together"),
        ({"id": "sleeping", "vm": 4}, "has never run"),
        ({"id": "ready", "vm": 1}, "to be ready that runs"),
        ({"id": "spread"}, "is not an instance"),
    ],
)
def test_what_cannot_be_kept_is_named(tmp_path: Path, constraint: dict[str, Any], words: str) -> None:
    with pytest.raises(InstanceFault, match=words):
        read(tmp_path, constraint)


def test_machine_in_two_places_is_refused(tmp_path: Path) -> None:
    plain = tiny()
    plain["model"]["mapping"]["readyVMs"].append(1)

    with pytest.raises(InstanceFault, match="machine 1 in two places"):
        read_instance(written(tmp_path, plain))


def test_machines_that_meet_on_the_way_are_named(tmp_path: Path) -> None:
    """Machine 2 leaves node 11 for 10, where machine 1 is that leaves for 11, in one stage."""
    plain = tiny(
        {"id": "spread", "vms": [1, 2], "continuous": True},
        {"id": "fence", "vm": 1, "nodes": [11]},
        {"id": "fence", "vm": 2, "nodes": [10]},
    )
    plain["model"]["mapping"]["onlineNodes"]["10"]["runningVMs"] = [1]
    plain["model"]["mapping"]["onlineNodes"]["11"]["runningVMs"] = [2]

    solved, _ = solve(read_instance(written(tmp_path, plain)))

    assert "stage 1: vm1 and vm2 are on n11" in solved.breaches


def test_one_reads_why_a_machine_is_moved(tmp_path: Path) -> None:
    instance = read(tmp_path, {"id": "preserve", "vm": 1, "rc": "memory", "amount": 7})

    _, switch = solve(instance)

    assert explained(instance, switch, "vm9") is None
    words = explained(instance, switch, "vm2")
    assert words is not None
    assert words[0] == "vm2 leaves n10 for n11"
    assert any("n10 has (8, 4), and the 2 machines there that are to run on need (10, 2)" in w for w in words)
    assert words[-1] == "stage 1 of 1: migrate from n10 to n11"


@pytest.mark.parametrize("kind", ["li", "nr"])
def test_drawn_datacentre_is_placed_with_the_fewest_moves(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "drawn.gz"
    path.write_bytes(gzip.compress(json.dumps(draw_instance(kind, 200, 6, 1)).encode()))

    solved, _ = solve(read_instance(path, counts_moves=True))

    assert solved.moves == solved.least_moves
    assert solved.actions["run"] == (60 if kind == "nr" else 0), "six of one node in twenty"
    assert (solved.moves > 0) == (kind == "li")
