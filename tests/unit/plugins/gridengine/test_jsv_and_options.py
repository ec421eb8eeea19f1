"""What Grid Engine's submit filter makes of a job with several sizes."""

from __future__ import annotations

import pytest

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from tests.unit.plugins.gridengine.jsv import SERVER, module

FILTER = module(SERVER)
TWO = "image=a;option=nodes=2 time=60;option=nodes=4 time=2h"
RIGHT = [TWO, TWO + ";finish-by=2026-07-31T14:00:00Z", "image=a;option=time=5m  nodes=1"]
WRONG = {
    "image=a;option=nodes=2": "option 1: time is missing",
    "image=a;option=nodes=0 time=5": "option 1: '0' is not a number of nodes",
    "image=a;option=nodes=-1 time=5": "option 1: '-1' is not a number of nodes",
    "image=a;option=nodes=2 time=99999999": "option 1: '99999999' is not a time",
    "image=a;option=nodes=\u0662 time=5": "is not of the form key=value",
    "image=a;option=nodes=2 time=5 cpus=3": "cpus is the same for all options",
    "image=a;option=nodes=2 time=5;option=nodes=2 time=3": "option 2: another one has 2 nodes",
    "image=a" + "".join(f";option=nodes={n} time=5" for n in range(1, 101)): "there are 100 options",
    "image=a;finish-by=2026-07-31T14:00:00Z": "finish-by says nothing without options",
    TWO + ";finish-by=2026-02-31T14:00:00Z": "finish-by is '2026-02-31T14:00:00Z'",
    TWO + ";value=3": "not weighed by a value",
    TWO + ";run=vm": "option and run=vm contradict each other",
}


def answer(text: str, *more: str) -> list[str]:
    lines = ["PARAM USER ada", "PARAM JOB_ID 7", f"PARAM ac OUTRIDER={text}", *more]
    found = FILTER.verdict(lines, FILTER.Site("/nowhere"), 0)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("text", RIGHT)
def test_job_with_options_is_held_and_knows_them(text: str) -> None:
    lines = answer(text)

    nodes = ",".join(str(each.nodes) for each in parse_job_lines(text).options)
    assert f"ENV ADD OUTRIDER_OPTIONS {nodes}" in lines
    assert "PARAM h u" in lines
    assert lines[-1] == "RESULT STATE CORRECT"


@pytest.mark.parametrize(("text", "words"), WRONG.items())
def test_hostile_options_are_refused_here_and_by_the_service(text: str, words: str) -> None:
    with pytest.raises(TextError):
        parse_job_lines(text)

    (line,) = answer(text)
    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert words in line


def test_job_does_not_inherit_the_options_of_another() -> None:
    assert "ENV DEL OUTRIDER_OPTIONS" in answer("image=a", "ENV ADD OUTRIDER_OPTIONS 2,4")


def test_options_in_a_reservation_are_refused() -> None:
    (line,) = answer(TWO, "PARAM ar 3", "PARAM l_hard outrider_reservation=TRUE")

    assert "a job in a reservation has nodes enough" in line
