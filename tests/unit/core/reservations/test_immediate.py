"""Reservations that start now: as soon as their image can be there."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import ReservationPlan, Shipping
from outrider.core.reservations.planning import plan_at
from outrider.core.reservations.refusal import Cause
from tests.amount import examples
from tests.unit.core.books import ONE, A, B, accept, nodes, pass_time, random_book, wanted
from tests.unit.core.sites import Site


def now(at_s: int = 0, *, instances: int = 1, within_s: int | None = None, image: object = A) -> Workspace:
    assert image is None or image in (A, B)
    return Workspace(
        name="now", instances=instances, resources=ONE, duration_s=5, start_s=at_s, is_immediate=True,
        ready_within_s=within_s, image=A if image is A else B if image is B else None,
    )  # fmt: skip


@pytest.mark.parametrize(("shipping", "start_s"), [(Shipping.RELAY, 2), (Shipping.PER_NODE, 4)])
def test_an_idle_site_accepts_it_as_soon_as_the_link_has_brought_the_image(
    shipping: Shipping, start_s: int
) -> None:
    book = Site(nodes=nodes(2, cpus=1), shipping=shipping, reserve_s=0).book()

    answer = assess(book, now(instances=2), 0)

    assert isinstance(answer, ReservationPlan)
    assert answer.start_s == start_s


def test_it_starts_at_once_where_its_image_is() -> None:
    book = Site(nodes=nodes(1), reserve_s=0).book()
    accept(book, wanted("a", 2, 10, A), 0)

    pass_time(book, 0, 3)

    assert accept(book, now(3), 3).start_s == 3


def test_the_request_says_how_long_that_may_take() -> None:
    book = Site(nodes=nodes(2), reserve_s=0).book()
    accept(book, wanted("b", 2, 10, B), 0)

    too_long = assess(book, now(), 0)
    in_time = assess(book, now(within_s=4), 0)

    # The link is taken until 2: the image is there at 4, and an idle link would need 2 s.
    assert isinstance(too_long, Rejected)
    assert too_long.refusal.cause is Cause.LINK
    assert too_long.earliest_start_s == 4
    assert isinstance(in_time, ReservationPlan)
    assert in_time.start_s == 4


def test_without_an_image_now_is_now() -> None:
    book = Site(nodes=nodes(1, cpus=1)).book()
    accept(book, wanted("busy", 0, 10), 0)

    refused = assess(book, now(image=None), 0)
    later = assess(book, now(image=None, within_s=10), 0)

    assert isinstance(refused, Rejected)
    assert refused.earliest_start_s == 10
    assert isinstance(later, ReservationPlan)


@pytest.mark.parametrize(
    "changes", [{"start_s": None}, {"is_immediate": False, "ready_within_s": 3}, {"ready_within_s": -1}]
)
def test_what_makes_no_sense_is_said(changes: dict[str, object]) -> None:
    given: dict[str, object] = {
        "name": "w", "instances": 1, "resources": ONE, "duration_s": 5, "start_s": 0, "is_immediate": True,
        **changes,
    }  # fmt: skip
    with pytest.raises(ValueError, match="immediate"):
        Workspace(**given)  # type: ignore[arg-type]


def test_it_is_accepted_exactly_when_some_second_within_its_time_would_do() -> None:
    outcomes = set()
    for seed in range(examples(400)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=seed % 2 == 0)
        within_s = chance.randint(0, 12)
        workspace = now(now_s, instances=chance.randint(1, 3), within_s=within_s, image=chance.choice([A, B]))

        answer = assess(book, workspace, now_s)

        first_s = next(
            (
                at_s
                for at_s in range(now_s, now_s + within_s + 1)
                if isinstance(plan_at(book, workspace, at_s, now_s), ReservationPlan)
            ),
            None,
        )
        outcomes.add(first_s is None)
        assert (answer.start_s if isinstance(answer, ReservationPlan) else None) == first_s, f"seed {seed}"
    assert outcomes == {True, False}
