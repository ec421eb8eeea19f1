"""`outrider timeline`: the picture against one worked out by hand, and its edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.asking.display.terminal import plain_paint
from outrider.cli.asking.display.words import When
from outrider.cli.asking.timeline import Scale, picture, round_instants, rows
from outrider.cli.main import main
from tests.unit.cli.canned import Service
from tests.unit.cli.samples import HOUR_S, MOVING, NOW_S, TIMELINE, TRANSFERS, stretch

WHEN = When(now_s=NOW_S, zone=UTC)
HALVES = Scale(from_s=NOW_S, step_s=HOUR_S // 2, count=24)
ARRIVING = replace(MOVING, begin_s=NOW_S, ready_s=NOW_S + HOUR_S)


def test_nodes_that_are_alike_share_a_row() -> None:
    found = rows(TIMELINE, (ARRIVING,), HALVES)

    assert [(row.nodes, row.marks) for row in found] == [
        ("n[1-2]", "~~####" + "." * 18),
        ("n3", "o.####" + "." * 18),
        ("n4", "..####" + "." * 18),
        ("n5", "." * 24),
        ("n6", "x" * 24),
        ("n[7-8]", "." * 8 + "#" * 10 + "." * 6),
    ]


def test_name_stands_in_the_middle_of_its_marks_where_it_fits() -> None:
    found = rows(TIMELINE, (), HALVES)

    assert [row.names for row in found] == [(), (), (), (), ((10, 15, "web-3"),)]
    assert "n[7-8]    ........##web-3###......" in picture(TIMELINE, (), WHEN, plain_paint, 34)


def test_names_of_reservations_that_share_a_node_do_not_cover_one_another() -> None:
    halves = [stretch("n1", "reservation", name, 0, 3) for name in ("b-2", "a-1")]
    later = stretch("n1", "reservation", "c-3", 4, 7)
    found = replace(TIMELINE, nodes=("n1",), stretches=(*halves, later))

    assert rows(found, (), HALVES)[0].names == ((1, 4, "a-1"), (9, 12, "c-3"))


def test_what_is_reserved_is_seen_above_all_else() -> None:
    found = replace(
        TIMELINE, nodes=("n1",),
        stretches=(stretch("n1", "down", "", 0, 1), stretch("n1", "reservation", "a", 0.4, 0.6)),
    )  # fmt: skip

    assert rows(found, (), Scale(from_s=NOW_S, step_s=HOUR_S // 2, count=3))[0].marks == "##."


def test_kind_of_the_future_occupies_all_the_same() -> None:
    found = replace(TIMELINE, nodes=("n1",), stretches=(stretch("n1", "feast", "", 0, 0.5),))

    assert rows(found, (), Scale(from_s=NOW_S, step_s=HOUR_S // 2, count=2))[0].marks == "o."


@given(
    start=st.integers(-10_000, 10_000), length=st.integers(1, 10_000), step=st.integers(1, 1000),
    count=st.integers(1, 50),
)  # fmt: skip
def test_a_letter_is_marked_exactly_if_a_second_of_it_is_occupied(
    start: int, length: int, step: int, count: int
) -> None:
    scale = Scale(from_s=0, step_s=step, count=count)
    expected = [
        letter for letter in range(count)
        if max(start, letter * step) < min(start + length, (letter + 1) * step)
    ]  # fmt: skip

    assert list(scale.letters(start, start + length)) == expected


@pytest.mark.parametrize("wide", [52, 80, 100, 237])
@pytest.mark.parametrize("nodes", [range(1, 9), range(1, 40, 2), [1, 2, 100_000, 5_000_000]])
def test_nothing_is_wider_than_the_terminal(wide: int, nodes: Iterable[int]) -> None:
    found = replace(TIMELINE, nodes=tuple(f"n{number}" for number in nodes))
    lines = picture(found, TRANSFERS.transfers, WHEN, plain_paint, wide).splitlines()

    assert max(len(line) for line in lines) <= wide
    assert max(len(line) for line in lines[: lines.index("")]) > wide * 0.7


def test_ticks_stand_where_their_times_are() -> None:
    times, ticks = picture(TIMELINE, (), WHEN, plain_paint, 34).splitlines()[:2]

    # Half an hour a letter from 14:05 on, behind ten columns of names; midnight's label has no room.
    assert times == " " * 13 + "16:00" + " " * 3 + "20:00"
    assert ticks == " " * 13 + "|" + " " * 7 + "|" + " " * 7 + "|"


def test_ticks_are_at_whole_hours_of_the_user_s_clock() -> None:
    kolkata = When(now_s=NOW_S, zone=ZoneInfo("Asia/Kolkata"))

    assert [kolkata.clock(at_s) for at_s in round_instants(NOW_S, NOW_S + 3 * HOUR_S, 3000, kolkata)] == [
        "20:00", "21:00", "22:00"
    ]  # fmt: skip


def test_command_asks_for_seconds_and_its_nodes(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.on("GET", "/v1/timeline", TIMELINE)
    service.on("GET", "/v1/transfers", TRANSFERS)
    line = "timeline --from 2030-03-29T14:05 --until 2030-03-29T20:05 --nodes n[1-8]"

    assert main(line.split()) == 0
    assert service.asked[0].query == {
        "from": str(NOW_S), "until": str(NOW_S + 6 * HOUR_S), "nodes": "n[1-8]"
    }  # fmt: skip
    assert "#render-17#" in capsys.readouterr().out


def test_nothing_to_show_is_told(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.on("GET", "/v1/timeline", replace(TIMELINE, nodes=(), stretches=()))
    service.on("GET", "/v1/transfers", TRANSFERS)

    assert main(["timeline"]) == 0
    assert capsys.readouterr().err.startswith("outrider: nothing is reserved")


@pytest.mark.parametrize(
    "line", [["--from", "soon"], ["--until", "2001-01-01"], ["--from", "now", "--until", "now"]]
)
def test_times_that_make_no_stretch_are_input_errors(service: Service, line: list[str]) -> None:
    assert main(["timeline", *line]) == 1
    assert service.asked == []
