"""A place in the queue is free for the next one as soon as whoever had it begins."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation, SimulationResult
from tests.amount import examples

RATE = 10
ONE = Resources.of(cpus=1)


def simulated(gangs: list[tuple[int, int, int, int]], *, nodes: int, places: int | None) -> SimulationResult:
    """Gangs of (handed in, instances, seconds, bytes of an image of its own)."""
    site = tuple(Node(name=f"n{number}", capacity=ONE) for number in range(nodes))
    setup = Setup(
        rate_bytes_per_s=RATE, backfilling=Backfilling.RESERVING, places=places,
        suspension=SuspensionRules(is_allowed=False),
    )  # fmt: skip
    submissions = tuple(
        TraceSubmission(
            at_s=at_s,
            run_s=duration_s,
            workspace=Workspace(
                name=f"g{number}", instances=instances, resources=ONE, duration_s=duration_s,
                image=Image(uri=f"i{number}", size_bytes=size_bytes),
            ),
        )
        for number, (at_s, instances, duration_s, size_bytes) in enumerate(gangs)
    )  # fmt: skip
    return Simulation(setup, site, Trace(name="gangs", submissions=submissions)).run()


@pytest.mark.parametrize("places", [1, 2, None])
def test_of_gangs_that_take_all_nodes_only_the_first_waits_for_its_image(places: int | None) -> None:
    outcome = simulated([(0, 2, 50, 100)] * 7, nodes=2, places=places)

    starts = [done.start_s for done in outcome.done]
    assert starts == [10 + 50 * number for number in range(7)]


def test_it_is_free_also_when_a_gang_begins_at_an_instant_at_which_nothing_ends() -> None:
    outcome = simulated([(0, 1, 200, 10), (0, 2, 30, 10), (0, 2, 30, 10), (0, 2, 30, 10)], nodes=2, places=1)

    starts = {done.workspace: done.start_s for done in outcome.done}
    assert starts == {"g0": 1, "g1": 201, "g2": 231, "g3": 261}


def test_gangs_that_run_longer_than_a_transfer_takes_follow_each_other_without_a_gap() -> None:
    for seed in range(examples(100)):
        chance = Random(seed)
        gangs = [(0, 3, chance.randint(10, 60), chance.randint(1, 10) * RATE) for _ in range(8)]

        outcome = simulated(gangs, nodes=3, places=1)

        first_s = gangs[0][3] // RATE
        assert outcome.end_s == first_s + sum(duration_s for _, _, duration_s, _ in gangs), f"seed {seed}"
