"""Best effort and its images: who shares a transfer, who waits for one, who needs its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import BestEffortRun
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.book import ReservationPlan, Shipping
from outrider.core.scheduler import Scheduler
from outrider.sim.setup import Setup

RATE = 10
ONE = Resources.of(cpus=1)
RED, BLUE = Image(uri="red", size_bytes=100), Image(uri="blue", size_bytes=100)
ARRIVAL_S = 10
"""When either image arrives that is sent at 0 on an idle link."""


@dataclass(frozen=True, slots=True)
class Site:
    scheduler: Scheduler

    def submit(self, name: str, image: Image, *, instances: int = 1, is_parallel: bool = True) -> None:
        workspace = Workspace(
            name=name,
            instances=instances,
            resources=ONE,
            duration_s=50,
            image=image,
            is_parallel=is_parallel,
        )
        assert self.scheduler.submit(workspace)

    def reserve(self, name: str, image: Image, start_s: int, duration_s: int = 50) -> None:
        workspace = Workspace(
            name=name, instances=1, resources=ONE, duration_s=duration_s, image=image, start_s=start_s
        )
        assert isinstance(self.scheduler.reserve(workspace, 0).admission, ReservationPlan)

    def pass_to(self, now_s: int) -> None:
        book = self.scheduler.book
        while (at_s := book.links.next_event_s(0)) is not None and at_s <= now_s:
            for event in book.links.advance(at_s):
                if event.has_begun:
                    book.transfer_begun(event.transfer.number, at_s)
                else:
                    book.transfer_done(event.transfer.number, at_s)


def site(cpus: Sequence[int] = (2,), **changes: object) -> Site:
    given: dict[str, object] = {"rate_bytes_per_s": RATE, "backfilling": Backfilling.GREEDY, **changes}
    nodes = tuple(Node(name=f"n{n}", capacity=Resources.of(cpus=count)) for n, count in enumerate(cpus))
    return Site(Setup(**given).scheduler(nodes))  # type: ignore[arg-type]


def test_the_second_with_the_same_image_joins_the_transfer_under_way() -> None:
    here = site()
    here.submit("first", RED)
    [first] = here.scheduler.schedule(0)
    here.pass_to(4)
    here.submit("second", RED)

    [second] = here.scheduler.schedule(4)

    assert len(first.transfers) == 1
    assert not second.transfers
    assert (first.start_s, second.start_s) == (ARRIVAL_S, ARRIVAL_S)
    assert second.lives[0][1] is first.lives[0][1]


def test_a_transfer_of_another_image_is_never_joined() -> None:
    here = site()
    here.submit("first", RED)
    here.submit("second", BLUE)

    first, second = here.scheduler.schedule(0)

    assert [sent.transfer.image for sent in first.transfers] == [RED]
    assert [sent.transfer.image for sent in second.transfers] == [BLUE]
    assert (first.start_s, second.start_s) == (ARRIVAL_S, 2 * ARRIVAL_S)


def test_what_has_arrived_is_used_at_once() -> None:
    here = site()
    here.submit("first", RED)
    here.scheduler.schedule(0)
    here.pass_to(ARRIVAL_S)
    here.submit("second", RED)

    [second] = here.scheduler.schedule(ARRIVAL_S)

    assert not second.transfers
    assert second.start_s == ARRIVAL_S


@pytest.mark.parametrize("is_parallel", [True, False])
def test_a_transfer_for_a_reservation_is_joined_only_when_it_has_arrived(is_parallel: bool) -> None:
    here = site(push_back_s=0)
    here.reserve("reservation", RED, start_s=100)
    here.submit("before", RED, is_parallel=is_parallel)
    [before] = here.scheduler.schedule(0)
    here.pass_to(95)
    here.scheduler.queue.begin(before, before.start_s)
    here.scheduler.queue.finish(before, before.end_s)
    here.pass_to(100)
    here.submit("after", RED, is_parallel=is_parallel)

    [after] = here.scheduler.schedule(100)

    assert len(before.transfers) == 1
    assert before.start_s == ARRIVAL_S
    assert not after.transfers
    assert after.start_s == 100


def test_an_image_that_will_come_for_a_reservation_does_not_hold_up_best_effort() -> None:
    """The one node will have the image for a reservation, much later: a transfer of its own is due."""
    here = site(cpus=(1,))
    here.reserve("reservation", RED, start_s=10_000)
    here.submit("now", RED)

    [run] = here.scheduler.schedule(0)

    assert run.start_s == ARRIVAL_S


def test_where_nothing_is_reused_an_image_that_lingers_holds_up_nobody() -> None:
    here = site(cpus=(1,), is_reusing=False, keep_bytes=1000, rank=lambda entry, now_s: ())
    here.reserve("reservation", RED, start_s=20, duration_s=10)
    here.pass_to(20)
    here.scheduler.end_reservation("reservation", 30)
    here.scheduler.schedule(40)
    here.submit("now", RED)

    [run] = here.scheduler.schedule(40)

    assert len(run.transfers) == 1
    assert run.start_s == 50


@pytest.mark.parametrize(("shipping", "count"), [(Shipping.RELAY, 1), (Shipping.PER_NODE, 3)])
def test_a_parallel_workspace_starts_when_all_its_nodes_have_the_image(
    shipping: Shipping, count: int
) -> None:
    here = site(cpus=(1, 1, 1), shipping=shipping)
    here.submit("wide", RED, instances=3)

    [run] = here.scheduler.schedule(0)

    assert len(run.transfers) == count
    assert run.start_s == count * ARRIVAL_S == max(sent.end_s for sent in run.transfers)


def test_where_nothing_is_reused_everybody_has_a_transfer() -> None:
    here = site(is_reusing=False)
    here.submit("first", RED)
    here.submit("second", RED)

    runs: list[BestEffortRun] = here.scheduler.schedule(0)

    assert [len(run.transfers) for run in runs] == [1, 1]
    assert [run.start_s for run in runs] == [ARRIVAL_S, 2 * ARRIVAL_S]
