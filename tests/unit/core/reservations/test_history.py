"""What the thesis promises, over thousands of random histories of small sites."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import BYTES_PER_MIB, SuspensionRules
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.nodes import timeline as module
from outrider.core.reservations.book import Shipping
from tests.amount import examples
from tests.unit.core.driver import Driver, Request
from tests.unit.core.sites import Site

COUNT = 12
IMAGES = (
    Image(uri="a", size_bytes=10),
    Image(uri="b", size_bytes=10, digest="sha256:b"),
    Image(uri="c", size_bytes=18),
)


def random_site(chance: Random) -> Site:
    """A site with a random choice of everything that changes decisions; small, so that things collide."""
    pool_bytes = chance.choice([None, None, 20, 30, 40])
    nodes = tuple(
        Node(
            name=f"n{number}",
            capacity=Resources.of(cpus=chance.randint(1, 3), memory_mib=chance.randint(2, 6)),
            pool_bytes=pool_bytes,
        )
        for number in range(chance.randint(1, 3))
    )
    return Site(
        nodes=nodes,
        shipping=chance.choice(list(Shipping)),
        is_reusing=chance.random() < 0.8,
        is_extending=chance.random() < 0.7,
        keep_bytes=chance.choice([0, 0, 20, 40]),
        reserve_s=chance.choice([None, 0, 0, 3]),
        backfilling=chance.choice(list(Backfilling)),
        places=chance.choice([1, 2, None]),
        suspension=SuspensionRules(
            is_allowed=chance.random() < 0.7,
            disk_bytes_per_s=chance.choice([None, BYTES_PER_MIB]),
            is_serialised=chance.random() < 0.5,
            is_migrating=chance.random() < 0.3,
            migration_bytes_per_s=BYTES_PER_MIB,
            least_run_s=chance.choice([1, 3]),
        ),
    )


def random_requests(chance: Random, count: int) -> list[Request]:
    images = chance.choice([(None,), IMAGES[:1], IMAGES, (None, *IMAGES)])
    requests: list[Request] = []
    at_s = 0
    reserves = chance.choice([0.3, 0.5, 0.9])
    for number in range(count):
        at_s += chance.choice([0, 0, 1, 2, 5])
        duration_s = chance.randint(1, 12)
        start_s = at_s + chance.choice([0, 1, 4, 8, 15]) if chance.random() < reserves else None
        finish_by_s = None
        if start_s is not None and chance.random() < 0.2:
            finish_by_s = start_s + duration_s + chance.randint(0, 12)
        requests.append(
            Request(
                at_s=at_s,
                workspace=Workspace(
                    name=f"w{number}",
                    instances=chance.choice([1, 1, 2, 3]),
                    resources=Resources.of(cpus=chance.randint(1, 2), memory_mib=chance.randint(1, 3)),
                    duration_s=duration_s,
                    image=chance.choice(images),
                    start_s=start_s,
                    finish_by_s=finish_by_s,
                    is_parallel=chance.random() < 0.6,
                    is_preemptible=chance.random() < 0.8,
                ),
                run_s=duration_s if chance.random() < 0.6 else chance.randint(1, duration_s),
                cancel_s=at_s + chance.randint(0, 10) if chance.random() < 0.25 else None,
            )
        )
    return requests


def history(seed: int) -> Driver:
    chance = Random(seed)
    site = random_site(chance)
    requests = random_requests(chance, chance.randint(3, COUNT))
    return Driver(site, requests, link_first=chance.random() < 0.5)


@pytest.mark.parametrize("block", range(10))
def test_every_promise_is_kept_in_random_histories(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_S", 4 if block % 2 else 3600)
    for seed in range(block * 400, block * 400 + examples(400)):
        driver = history(seed)
        try:
            driver.run()
        except Exception as error:
            raise AssertionError(f"history {seed} fails at {driver.now_s}: {error}") from error


def test_the_same_history_gives_the_same_decisions() -> None:
    for seed in range(examples(150)):
        first, second = history(seed), history(seed)
        first.run()
        second.run()

        assert first.log == second.log
