"""Options of a request in one line each: what is read, and what hostile lines are answered."""

from __future__ import annotations

from datetime import UTC

import pytest

from outrider.metadata.errors import FaultyFileError, TextError
from outrider.metadata.notation.ways import MOST_WAYS, read_way, read_ways
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import DeploymentSection, parse_workspace

FILE = b"""
version: 1
metadata: {name: render, image: {uri: "https://images.example.org/ubuntu"}}
"""


def deployment(**options: str) -> DeploymentSection:
    file = parse_workspace(FILE, Circumstances(now_s=0, zone=UTC), file="ws.yaml", options=options)
    assert file.deployment is not None
    return file.deployment


@pytest.mark.parametrize("text", ["nodes=2,time=60m", "nodes=2 time=60m", "  nodes=2 ,  duration=60m "])
def test_one_line_with_commas_or_blanks_is_one_option(text: str) -> None:
    assert read_way(text) == {"nodes": "2", "duration": "60m"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not of the form"),
        ("nodes=2", "time is missing"),
        ("time=60", "nodes is missing"),
        ("nodes=2 time=60 nodes=3", "stands twice"),
        ("nodes=2 time=60 duration=70", "stands twice"),
        ("nodes=2 time=60 colour=red", "colour is not known"),
        ("nodes=-2 time=60", ""),
        ("nodes=\uff12 time=60", "is not of the form"),
        ("nodes=2;rm time=60", "is not of the form"),
        ("nodes=2 time=" + "9" * 600, "characters"),
    ],
)
def test_line_that_is_no_option_is_refused_with_the_reason(text: str, reason: str) -> None:
    if reason:
        with pytest.raises(TextError, match=reason):
            read_way(text)
        return
    with pytest.raises(FaultyFileError, match="too small"):
        deployment(options=text)


def test_so_many_options_are_read_and_no_more() -> None:
    way = "nodes=1 time=60"

    assert len(read_ways(";".join([way] * MOST_WAYS))) == MOST_WAYS
    with pytest.raises(TextError, match="100 options"):
        read_ways(";".join([way] * 100))


def test_fault_names_the_option_by_its_number() -> None:
    with pytest.raises(FaultyFileError, match="--option: option 2: time is missing"):
        deployment(options="nodes=1 time=60;nodes=2")


def test_overflowing_number_of_nodes_is_refused() -> None:
    with pytest.raises(FaultyFileError, match="too large"):
        deployment(options="nodes=99999999999999999 time=60")


def test_deployment_is_as_its_first_option_and_each_is_one_of_its_own() -> None:
    text = "nodes=2,time=60m;nodes=4,time=35m,cpus=8"

    found = deployment(options=text, cpus="2", finish_by="now+60minutes")

    assert (found.nodes, found.duration_s) == (2, 3600)
    ways = [(way.nodes, way.duration_s, way.cpus, way.finish_by_s, way.options) for way in found.ways()]
    assert ways == [(2, 3600, 2, 3600, ()), (4, 2100, 8, 3600, ())]


def test_deadline_that_no_option_keeps_is_a_fault() -> None:
    with pytest.raises(FaultyFileError, match="do not end by"):
        deployment(options="nodes=2,time=60m;nodes=4,time=35m", finish_by="now+30minutes")
