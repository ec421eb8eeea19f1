"""The months again, against figures worked out by hand: 100 bytes a second, images of 1000 bytes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from outrider.sim.workload.savings.records import AccountedJob, Accounting, ImageMap, MappedImage, Rule
from outrider.sim.workload.savings.replay import SavingsSite, as_it_was, shared_ends, wants_of, with_outrider
from outrider.sim.workload.savings.summary import savings_of

A, B = MappedImage(name="a", size_bytes=1000), MappedImage(name="b", size_bytes=10_000)
C = MappedImage(name="c", size_bytes=1000)
IMAGES = ImageMap(Rule(field="name", pattern=image.name, image=image) for image in (A, B, C))
SITE = SavingsSite(link_bytes_per_s=100, pool_bytes=1500)


def job(image: str, submit_s: int, start_s: int, end_s: int, *nodes: str, count: int = 0) -> AccountedJob:
    said: Mapping[str, str] = {"name": image}
    return AccountedJob(
        key=f"{start_s}", submit_s=submit_s, start_s=start_s, end_s=end_s, count=count or len(nodes),
        nodes=nodes, said=said,
    )  # fmt: skip


def both(*jobs: AccountedJob, site: SavingsSite = SITE) -> list[tuple[int, float, float, int, float]]:
    """Of each job: bytes, own node-seconds and wait as it was; bytes and wait with Outrider."""
    wants, _ = wants_of(jobs, IMAGES)
    return [
        (old.bytes, old.lost_s, old.wait_s, new.bytes, new.wait_s)
        for old, new in zip(as_it_was(wants, site), with_outrider(wants, site), strict=True)
    ]


def test_nodes_of_a_job_share_the_link_and_a_relay_needs_it_once() -> None:
    assert both(job("a", 0, 100, 200, "n1", "n2")) == [(2000, 40, 120, 1000, 100)]


def test_those_that_fetch_at_a_time_have_equal_shares() -> None:
    # Until 110 two have 500 bytes each; the three have a third each until 125, and the last 5 s alone.
    assert shared_ends([(100, 2, 1000), (110, 1, 1000)], 100) == pytest.approx([125, 130])


def test_fetches_apart_do_not_slow_each_other() -> None:
    assert shared_ends([(0, 1, 1000), (0, 0, 1000), (50, 1, 500)], 100) == pytest.approx([10, 0, 55])


def test_image_that_is_on_the_node_moves_no_more() -> None:
    first, second = both(job("a", 0, 100, 200, "n1"), job("a", 300, 301, 400, "n1"))

    assert first == (1000, 10, 110, 1000, 100)
    assert second == (1000, 10, 11, 0, 1)


def test_image_that_has_not_come_yet_is_waited_for_by_all_who_want_it() -> None:
    _, second = both(job("a", 100, 100, 200, "n1"), job("a", 101, 102, 200, "n1"))

    assert second[3:] == (0, 9)


def test_transfers_go_one_after_another_and_may_be_late() -> None:
    _, small = both(job("b", 500, 500, 900, "n5"), job("a", 500, 501, 900, "n6"))

    # As it was it had half of the link from 501 on: 20 s. Behind the large one it arrives at 610.
    assert small[2] == pytest.approx(21)
    assert small[4] == pytest.approx(110)


def test_image_goes_when_its_pool_is_full_and_nobody_uses_it() -> None:
    jobs = [job("a", 0, 10, 20, "n1"), job("c", 20, 40, 50, "n1"), job("a", 50, 70, 80, "n1")]

    assert [each[3] for each in both(*jobs)] == [1000, 1000, 1000]


def test_image_in_use_stays() -> None:
    jobs = [job("a", 0, 10, 90, "n1"), job("c", 20, 40, 50, "n1"), job("a", 50, 70, 80, "n1")]

    assert [each[3] for each in both(*jobs)] == [1000, 1000, 0]


def test_site_that_keeps_images_already_saves_less() -> None:
    site = SavingsSite(link_bytes_per_s=100, pool_bytes=1500, keeps_images=True)
    _, second = both(job("a", 0, 100, 200, "n1"), job("a", 300, 301, 400, "n1", "n2"), site=site)

    assert (second[0], second[1]) == (1000, 20)


def test_fetching_takes_no_longer_than_the_job_ran() -> None:
    assert both(job("b", 0, 100, 130, "n1"))[0][:3] == (10_000, 30, 130)


def test_jobs_without_names_of_nodes_take_free_ones_in_turn() -> None:
    jobs = [job("a", 0, 0, 10, count=2), job("a", 1, 5, 10, count=1), job("a", 2, 10, 20, count=2)]
    wants, _ = wants_of(jobs, IMAGES)

    assert [each.nodes for each in wants] == [("node-1", "node-2"), ("node-3",), ("node-1", "node-2")]


def test_summary_adds_up_and_divides_by_months() -> None:
    october, november = 1_793_000_000, 1_794_000_000
    jobs = (
        job("a", october, october, october + 100, "n1"),
        job("a", november, november, november + 100, "n1"),
        job("other", november, november, november + 100, "n1"),
    )
    found = savings_of(Accounting(jobs=jobs, passed_over={}), IMAGES, SITE)

    assert [(each.name, each.jobs, each.saved_bytes) for each in found.months] == [
        ("2026-10", 1, 0), ("2026-11", 1, 1000),
    ]  # fmt: skip
    assert found.whole.saved_bytes == 1000
    assert found.whole.saved_node_hours == pytest.approx(20 / 3600)
    # Nobody knew of the first one before it started: it waits as long as it would have fetched.
    assert found.whole.before.wait_mean_s - found.whole.after.wait_mean_s == pytest.approx(5)
    assert (found.jobs_without_image, found.whole.later_jobs) == (1, 0)
    assert found.node_hours == pytest.approx(200 / 3600)


def test_map_that_no_job_fits_is_an_error() -> None:
    with pytest.raises(ValueError, match="no job fits"):
        savings_of(Accounting(jobs=(job("other", 0, 0, 1, "n1"),), passed_over={}), IMAGES, SITE)
