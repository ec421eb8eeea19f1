"""Jobs that need images beside their own: none starts before all are on all of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.rms.base import JobState
from outrider.service.ports import NodeImage
from outrider.service.requests import AskStart
from tests.unit.service.desk.jobs.test_leading_jobs import UBUNTU, details, started_on, states
from tests.unit.service.desk.jobs.yielding_site import SETTINGS, running, state
from tests.unit.service.desk.sandbox import ADMIN, RATE, Sandbox, digest_of, reserve

GENES, WORKER = digest_of("genes"), digest_of("worker")
DATA = "run: vm\ndata: https://images.example.org/genes\n"
ROLES = "run: vm\nrole: head\nrole: w image=https://images.example.org/worker\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Four nodes with empty pools."""
    made = Sandbox(tmp_path, nodes=4, settings=replace(SETTINGS, reserve_s=0))
    made.sizes["https://images.example.org/genes"] = 20 * RATE
    made.sizes["https://images.example.org/worker"] = 5 * RATE
    made.sleep(30)
    yield made
    made.close()


def pending_s(site: Sandbox, key: str) -> int:
    return next(at_s for at_s, what, _ in states(site, key) if what == "pending")


def pinned(site: Sandbox) -> set[str]:
    """For which jobs' images anything is pinned anywhere."""
    return {owner for pool in site.pools.values() for _, owner in pool.pins if owner.startswith("job-")}


@pytest.mark.parametrize(("more", "other", "nodes"), [(DATA, GENES, 1), (DATA, GENES, 3), (ROLES, WORKER, 2)])
def test_job_starts_when_all_its_images_are_on_all_its_nodes(
    site: Sandbox, more: str, other: str, nodes: int
) -> None:
    key = site.submit(more=more, nodes=nodes, argv=("sleep", "300"))
    site.sleep(90)
    used = started_on(site, key).split(",")

    assert len(used) == nodes
    for node in used:
        assert {UBUNTU, other} <= set(site.pools[node].images)
        assert all(site.pools[node].images[each].added_s <= pending_s(site, key) for each in (UBUNTU, other))
    assert site.rms.outside.ticket(key) == f"ticket {key}+1 1001 {UBUNTU[:11]}"


def test_node_with_all_images_is_preferred_to_one_that_lacks_the_data(site: Sandbox) -> None:
    for node, digests in (("n1", [UBUNTU]), ("n2", [GENES]), ("n3", [UBUNTU, GENES])):
        for digest in digests:
            size_bytes = (10 if digest == UBUNTU else 20) * RATE
            site.pools[node].images[digest] = NodeImage(digest=digest, size_bytes=size_bytes, uri="x")
    site.sleep(301)
    key = site.submit(more=DATA)
    site.sleep(40)

    assert started_on(site, key) == "n3"
    assert not [line for line in site.log.lines if line.startswith("best-effort transfer begins")]


def test_job_is_not_let_go_on_a_node_that_has_lost_its_data(site: Sandbox) -> None:
    first = [site.submit(None, cpus=8, argv=("sleep", "900"), is_held=False) for _ in range(4)]
    key = site.submit(more=DATA)
    site.sleep(90)
    (node,) = [name for name, pool in site.pools.items() if GENES in pool.images]
    ready = site.ask(AskStart(job=key, nodes=(node,)), ADMIN)
    del site.pools[node].images[GENES]
    site.pools[node].is_away = True
    site.sleep(400)
    lost = site.ask(AskStart(job=key, nodes=(node,)), ADMIN)

    assert all(state(site, each) is JobState.RUNNING for each in first)
    assert ready.verdict == "go"  # type: ignore[union-attr]
    assert lost.verdict == "wait"  # type: ignore[union-attr]


def test_cancelled_job_leaves_no_pin_of_any_of_its_images(site: Sandbox) -> None:
    for _ in range(4):
        site.submit(None, cpus=8, argv=("sleep", "3000"), is_held=False)
    key = site.submit(more=DATA)
    site.sleep(90)
    held = pinned(site)
    site.rms.outside.cancel(key)
    site.sleep(400)

    assert held == {f"job-{key}", f"job-{key}+1"}
    assert pinned(site) == set()


def test_images_that_do_not_fit_together_are_refused_in_words(tmp_path: Path) -> None:
    made = Sandbox(tmp_path, nodes=2, settings=SETTINGS)
    made.sizes["https://images.example.org/genes"] = 20 * RATE
    for pool in made.pools.values():
        pool.limit_bytes = 25 * RATE
    made.sleep(320)
    alone, both = made.submit(), made.submit(more=DATA)
    made.sleep(60)
    words = details(made, both).job.words
    made.close()

    assert started_on(made, alone)
    assert not started_on(made, both)
    assert "of the job's other images" in words
    assert "never fits" in words


@pytest.mark.parametrize("after_s", [1, 12, 25, 40])
def test_restarted_service_brings_nothing_twice_and_forgets_nothing(site: Sandbox, after_s: int) -> None:
    key = site.submit(more=DATA)
    site.sleep(after_s)
    site.restart()
    site.sleep(200)
    node = started_on(site, key)

    assert {UBUNTU, GENES} <= set(site.pools[node].images)
    assert sum(UBUNTU in pool.images for pool in site.pools.values()) == 1
    assert sum(GENES in pool.images for pool in site.pools.values()) == 1


def test_job_that_goes_on_elsewhere_has_its_data_there_first(site: Sandbox) -> None:
    key = running(site, "", cpus=8)
    site.rms.outside.cancel(key)
    key = site.submit(more=DATA, argv=("sleep", "3000"))
    site.sleep(90)
    first = started_on(site, key)
    site.rms.outside.drain(first)
    site.rms.outside.requeue(key, is_held=True)
    site.rms.outside.release(key)
    site.sleep(120)
    last = [why for _, what, why in states(site, key) if what == "starting"][-1]

    assert last != first
    assert {UBUNTU, GENES} <= set(site.pools[last].images)


def test_image_that_cannot_be_had_is_named_with_what_it_is_for(site: Sandbox) -> None:
    data = site.submit(more="run: vm\ndata: https://images.example.org/nowhere name=maps\n")
    role = site.submit(more="run: vm\nrole: w image=https://images.example.org/nowhere\n")
    site.sleep(40)

    assert "data image maps, https://images.example.org/nowhere:" in details(site, data).job.words
    assert "image of role w, https://images.example.org/nowhere:" in details(site, role).job.words


def test_job_in_a_reservation_is_held_since_none_of_its_data_would_come(site: Sandbox) -> None:
    answer = reserve(site, start="now+60s", nodes=1)
    key = site.submit(more=DATA, reservation=answer.name, is_held=False)
    site.sleep(100)
    job = site.job(key)

    assert job is not None
    assert job.state is JobState.HELD
    assert not started_on(site, key)
