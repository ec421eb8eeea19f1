"""Answers from JSON, and how they look on a terminal."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.asking.display.terminal import paint_for, plain_paint, table
from outrider.cli.errors import UnreachableError
from outrider.cli.main import main
from outrider.cli.output import plain
from outrider.service.answers.images import ImageView
from outrider.service.answers.reply import Answer
from outrider.service.answers.reservations import Receipt
from outrider.service.answers.site import Status
from outrider.service.answers.transfers import TransferList
from outrider_client.reading import read
from tests.unit.cli import samples
from tests.unit.cli.canned import Service

ANSWERS: list[Answer] = [
    samples.ACCEPTED, samples.REFUSED, samples.LIST, samples.DETAILS, samples.ENDED, samples.EXPLANATION,
    samples.NODES, samples.IMAGES, samples.TRANSFERS, samples.STATUS, samples.TIMELINE,
]  # fmt: skip
IMAGE = {"uri": None, "digest": None, "size_bytes": 5, "is_private": True}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def over_the_wire(value: object) -> object:
    found: object = json.loads(json.dumps(plain(value)))
    return found


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_answer_comes_out_as_it_went_in(answer: Answer) -> None:
    assert read(type(answer), over_the_wire(answer)) == answer


def test_field_of_the_future_is_passed_over() -> None:
    assert read(ImageView, {**IMAGE, "colour": "blue"}) == ImageView(
        uri=None, digest=None, size_bytes=5, is_private=True
    )


@pytest.mark.parametrize(
    ("value", "culprit"),
    [
        ([], "ImageView is list"),
        (None, "ImageView is NoneType"),
        ({"uri": "a"}, "ImageView.digest is missing"),
        ({**IMAGE, "size_bytes": "5"}, "ImageView.size_bytes is str"),
        ({**IMAGE, "size_bytes": 5.5}, "ImageView.size_bytes is float"),
        ({**IMAGE, "size_bytes": True}, "ImageView.size_bytes is bool"),
        ({**IMAGE, "size_bytes": None}, "ImageView.size_bytes is NoneType"),
        ({**IMAGE, "is_private": 1}, "ImageView.is_private is int"),
    ],
)
def test_what_is_not_of_the_form_is_named(value: object, culprit: str) -> None:
    with pytest.raises(UnreachableError, match=re.escape(culprit)):
        read(ImageView, value)


def test_place_of_what_is_wrong_deep_inside_is_named() -> None:
    sent = plain(samples.TRANSFERS)
    assert isinstance(sent, dict)
    sent["transfers"][1]["image"]["uri"] = 7

    with pytest.raises(UnreachableError, match=r"TransferList\.transfers\[1\]\.image\.uri is int"):
        read(TransferList, sent)


@pytest.mark.parametrize("field", ["reservations", "decisions"])
def test_counts_are_numbers(field: str) -> None:
    sent = plain(samples.STATUS)
    assert isinstance(sent, dict)
    sent[field] = {"ready": "many"}

    with pytest.raises(UnreachableError, match=f"Status.{field}.ready is str"):
        read(Status, sent)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_whatever_comes_is_an_answer_or_an_error_of_ours(value: object) -> None:
    with pytest.raises(UnreachableError):
        read(Receipt, value)


@pytest.mark.parametrize(
    ("stream", "environment", "is_coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    stream: io.StringIO, environment: dict[str, str], is_coloured: bool
) -> None:
    assert (paint_for(stream, environment)("ready", "ready") != "ready") == is_coloured


def test_colours_shift_no_column() -> None:
    header = ("NAME", "STATE", ">NUMBER", "REMARK")
    rows = [("a", "ready", 1, "x y"), ("bb", "endangered", 1000, ""), ("ü漢", "of-the-future", 2, "z")]
    coloured = table(header, rows, paint_for(Terminal(), {}))

    assert re.sub(r"\x1b\[\d+m", "", coloured) == table(header, rows, plain_paint)
    assert coloured.count("\x1b[0m") == 4 + 2


@given(
    st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=5)
)
def test_columns_can_be_taken_apart_whatever_is_in_them(rows: list[tuple[str, str, str]]) -> None:
    lines = table(("A", ">B", "C"), rows, plain_paint).split("\n")

    assert len(lines) == len(rows) + 1
    assert all(len(line.split(maxsplit=2)) == 3 for line in lines)


def test_empty_table_is_a_remark_and_no_output(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.on("GET", "/v1/transfers", TransferList(transfers=(), is_complete=True))

    assert main(["transfers"]) == 0
    assert capsys.readouterr() == ("", "outrider: no transfers\n")


def test_instant_that_no_calendar_has_is_no_traceback(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    never = replace(samples.STATUS, next_start_s=10**30, link_busy_until_s=-(10**30), last_look_s=10**20)
    service.on("GET", "/v1/status", never)

    assert main(["status"]) == 0
    assert "the next starts 9000-01-01 00:00\n" in capsys.readouterr().out
