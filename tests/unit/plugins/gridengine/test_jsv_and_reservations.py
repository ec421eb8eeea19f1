"""What the submit filter says of jobs in advance reservations, with an image and without."""

from __future__ import annotations

import pytest

from tests.unit.plugins.gridengine.test_jsv_alone import answered


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (("PARAM ar 12",), ["ENV ADD OUTRIDER_RESERVED 1", "RESULT STATE CORRECT"]),
        (("PARAM ar 0",), ["RESULT STATE ACCEPT"]),
        (
            ("PARAM ar 12", "ENV ADD OUTRIDER_TICKET 1.x"),
            ["ENV DEL OUTRIDER_TICKET", "ENV ADD OUTRIDER_RESERVED 1", "RESULT STATE CORRECT"],
        ),
    ],
)
def test_job_in_an_advance_reservation_is_marked_for_its_other_nodes(
    lines: tuple[str, ...], answer: list[str]
) -> None:
    assert answered(*lines) == answer


@pytest.mark.parametrize(
    "request_", ["PARAM l_hard h_rt=5,outrider_reservation=TRUE", "PARAM global_l_hard orsv=1"]
)
def test_job_without_an_image_of_its_own_waits_in_a_reservation_of_outriders_for_its_ticket(
    request_: str,
) -> None:
    """The image is the reservation's. In one that has begun it would start at once, and fail."""
    held = answered("PARAM ar 7", request_)
    by_its_user = answered("PARAM ar 7", request_, "PARAM h u")

    assert held == [
        "ENV ADD OUTRIDER_RESERVED 1", "PARAM h u", "PARAM ac OUTRIDER_HELD=1", "RESULT STATE CORRECT"
    ]  # fmt: skip
    assert by_its_user == ["ENV ADD OUTRIDER_RESERVED 1", "RESULT STATE CORRECT"]


@pytest.mark.parametrize("requests", [[], ["PARAM l_hard h_rt=5,outrider_reservations=TRUE"]])
def test_image_in_a_reservation_that_is_not_outriders_is_refused(requests: list[str]) -> None:
    (line,) = answered("PARAM ac OUTRIDER=http://h/a", "PARAM ar 7", *requests)

    assert line.startswith(
        "RESULT STATE REJECT outrider: no image comes to the nodes of reservation 7, if it is"
    )
    assert "add -l outrider_reservation=TRUE" in line
    assert answered("PARAM ar 7", *requests)[-1] == "RESULT STATE CORRECT"
