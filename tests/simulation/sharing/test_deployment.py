"""Deployment with and without a pool on each host (thesis, Figures 8.6 and 8.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outrider.sim.experiments.deployment import (
    BatchRequest,
    InstanceDeployment,
    Testbed,
    lead_bytes,
    run_deployments,
)

GB = 10**9
IMAGE_BYTES = 600_000_000
# Over the link alone an image takes 48 s; a copy of it takes 200 s.
TESTBED = Testbed()
WITHOUT_POOL = replace(TESTBED, pool_bytes=0)
ONE_HOST = replace(TESTBED, hosts=1, slots_per_host=1)


def request(submit_s: int, image: str, nodes: int, duration_s: int = 100) -> BatchRequest:
    return BatchRequest(
        submit_s=submit_s,
        image=image,
        size_bytes=IMAGE_BYTES,
        nodes=nodes,
        duration_s=duration_s,
    )


def deploy(testbed: Testbed, *requests: BatchRequest) -> tuple[InstanceDeployment, ...]:
    return run_deployments(requests, testbed).deployments


def ready_s(testbed: Testbed, *requests: BatchRequest) -> list[int]:
    return [each.ready_s for each in deploy(testbed, *requests)]


def test_hosts_share_the_link_and_each_takes_one_transfer_at_a_time() -> None:
    # Two hosts transfer at once, hence 96 s; each then has a second instance to serve.
    assert ready_s(WITHOUT_POOL, request(0, "a", nodes=4)) == [96, 96, 192, 192]


def test_second_instance_on_a_host_copies_what_the_first_one_brought() -> None:
    deployments = deploy(TESTBED, request(0, "a", nodes=2))

    assert [each.host for each in deployments] == [0, 0]
    assert [each.is_hit for each in deployments] == [False, True]
    assert [each.ready_s for each in deployments] == [48, 48 + 200]


def test_parallel_job_frees_its_slots_together() -> None:
    testbed = replace(ONE_HOST, slots_per_host=2, pool_bytes=0)
    first, second = request(0, "a", nodes=2), request(0, "b", nodes=1)

    # The last image of the first is there at 96 s, it ends at 196 s, then 48 s more.
    assert ready_s(testbed, first, second) == [48, 96, 244]
    # One by one, the slot of the first instance is free at 148 s.
    assert ready_s(replace(testbed, is_parallel=False), first, second) == [48, 96, 196]


def test_large_job_holds_up_the_small_one_behind_it() -> None:
    testbed = replace(ONE_HOST, slots_per_host=2, pool_bytes=0)
    small, large, last = request(0, "a", 1), request(1, "b", 2), request(2, "c", 1)

    deployments = deploy(testbed, small, large, last)

    assert [each.request for each in deployments] == [0, 1, 1, 2]


def test_pool_of_three_images_gives_up_the_least_used() -> None:
    # For d, b has to go: a has been idle for longer, but was used twice.
    images = ["a", "a", "b", "c", "d", "a", "c", "d", "b"]
    requests = [request(1000 * number, image, nodes=1) for number, image in enumerate(images)]

    hits = [each.is_hit for each in deploy(ONE_HOST, *requests)]

    assert hits == [False, True, False, False, False, True, True, True, False]


def test_image_larger_than_the_pool_is_transferred_every_time() -> None:
    testbed = replace(ONE_HOST, pool_bytes=IMAGE_BYTES - 1)

    run = run_deployments([request(0, "a", 1), request(0, "a", 1)], testbed)

    assert (run.hits, run.transfers) == (0, 2)


def test_job_goes_where_its_image_is() -> None:
    requests = [request(0, "a", nodes=2), request(0, "b", nodes=2), request(1000, "b", 2)]

    preferring = deploy(TESTBED, *requests)
    ignoring = deploy(replace(TESTBED, prefers_cached=False), *requests)

    assert [each.host for each in preferring if each.request == 2] == [1, 1]
    assert [each.host for each in ignoring if each.request == 2] == [0, 0]


def test_job_gets_both_slots_of_a_host_unless_jobs_are_spread() -> None:
    spread = replace(TESTBED, fills_hosts=False)

    assert {each.host for each in deploy(TESTBED, request(0, "a", nodes=4))} == {0, 1}
    assert {each.host for each in deploy(spread, request(0, "a", nodes=4))} == {0, 1, 2, 3}


def test_copy_after_a_miss_is_waited_for_only_where_there_is_a_pool() -> None:
    testbed = replace(TESTBED, copies_after_miss=True)

    assert ready_s(testbed, request(0, "a", nodes=1)) == [48 + 200]
    assert ready_s(replace(testbed, pool_bytes=0), request(0, "a", nodes=1)) == [48]


def test_series_adds_up_and_is_looked_up_by_the_second() -> None:
    run = run_deployments([request(0, "a", nodes=4)], WITHOUT_POOL)

    assert run.series() == ((96, 2 * IMAGE_BYTES), (192, 4 * IMAGE_BYTES))
    assert [run.deployed_bytes(second) // IMAGE_BYTES for second in (95, 96, 191, 192)] == [
        0,
        2,
        2,
        4,
    ]
    assert run.mean_from_job_start_s == 144
    assert run.mean_from_transfer_start_s == 96


@pytest.mark.parametrize(
    ("trace", "published_gb"),
    [("trace_III_excerpt.trace", 25.2), ("trace_IV_excerpt.trace", 27.6)],
)
def test_lead_at_3550_seconds_is_the_published_one_within_two_images(
    trace: str, published_gb: float, read_rows: Callable[[str], list[list[str]]]
) -> None:
    requests = [
        BatchRequest(
            submit_s=int(row[0]),
            image=row[1],
            size_bytes=int(row[2]) * 10**6,
            nodes=int(row[3]),
            duration_s=int(row[8]),
        )
        for row in read_rows(trace)
    ]

    cached = run_deployments(requests, TESTBED)
    uncached = run_deployments(requests, WITHOUT_POOL)

    lead_gb = lead_bytes(cached, uncached, 3550) / GB
    assert lead_gb == pytest.approx(published_gb, abs=2 * IMAGE_BYTES / GB + 0.01)
    assert cached.hits + cached.transfers == uncached.transfers
    assert cached.mean_from_job_start_s < uncached.mean_from_job_start_s


def test_job_that_can_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="request 0 asks for 17 instances"):
        run_deployments([request(0, "a", nodes=17)], TESTBED)


def test_unknown_eviction_is_refused() -> None:
    with pytest.raises(ValueError, match="eviction random is not one of lfu, lru"):
        replace(TESTBED, eviction="random")
