"""Reservations and jobs over one link, and what else the bodies on real hosts needed of the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.sim.experiments.deployment import BatchRequest, Testbed, run_deployments
from outrider.sim.experiments.stager import StagedRequest
from outrider.sim.experiments.together import run_together
from outrider.sim.sharing import FinishedTransfer, FluidLink, SharedTransfer

# An image takes 40 s over all of the link.
IMAGE_BYTES, RATE = 400, 10
TESTBED = Testbed(
    hosts=1, slots_per_host=1, link_bytes_per_s=RATE, pool_bytes=2 * IMAGE_BYTES, copy_bytes_per_s=400
)


def reservation(start_s: int) -> StagedRequest:
    return StagedRequest(submit_s=0, start_s=start_s, nodes=1, size_bytes=IMAGE_BYTES, duration_s=1000)


def job(image: str, submit_s: int = 0) -> BatchRequest:
    return BatchRequest(submit_s=submit_s, image=image, size_bytes=IMAGE_BYTES, nodes=1, duration_s=10)


def test_transfer_goes_on_at_the_rate_that_the_link_has_now() -> None:
    link = FluidLink(RATE)
    link.add(SharedTransfer(key="image", start_s=0, size_bytes=IMAGE_BYTES))

    link.set_rate(20, 5)
    link.set_rate(40, 20)

    # 200 bytes in 20 s, 100 in the next 20, and 100 in 5.
    assert link.advance(100) == [FinishedTransfer(key="image", finish_s=45)]
    assert link.is_idle


def test_reservation_gets_what_the_promise_leaves_and_then_all() -> None:
    satisfaction, run = run_together([reservation(0)], [job("a")], TESTBED, 20)

    # 8 bytes/s for 50 s; of the job's image 100 bytes have come by then, and 300 take 30 s more.
    assert satisfaction.got_s == (1000 - 50,)
    assert [each.ready_s for each in run.deployments] == [80]


def test_class_that_is_alone_has_all_of_the_link() -> None:
    satisfaction, run = run_together([reservation(0)], [job("a", submit_s=40)], TESTBED, 20)

    assert satisfaction.got_s == (1000 - 40,)
    assert [each.ready_s for each in run.deployments] == [80]


@pytest.mark.parametrize("share_percent", [0, 100])
def test_share_that_starves_a_class_is_refused(share_percent: int) -> None:
    with pytest.raises(ValueError, match="leaves nothing for one class"):
        run_together([reservation(0)], [job("a")], TESTBED, share_percent)


def test_job_starts_so_late_as_grid_engine_starts_it() -> None:
    (deployment,) = run_deployments([job("a")], replace(TESTBED, start_delay_s=7)).deployments

    assert (deployment.job_start_s, deployment.ready_s) == (7, 47)


def test_calendar_keeps_what_a_waiting_job_needs() -> None:
    # When c comes, a was used twice and b once; b's next user waits behind c.
    jobs = [job("a"), job("a"), job("b"), job("c"), job("b")]

    found = {
        policy: run_deployments(jobs, replace(TESTBED, eviction=policy)).hits
        for policy in ("lfu", "calendar")
    }

    assert found == {"lfu": 1, "calendar": 2}
