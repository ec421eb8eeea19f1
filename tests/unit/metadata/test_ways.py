"""Options of a request in one line each: what is read, and what hostile lines are answered."""

from __future__ import annotations

from datetime import UTC

import pytest

from outrider.metadata.errors import FaultyFileError, TextError
from outrider.metadata.notation.ways import MOST_WAYS, read_way, read_ways
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import DeploymentSection, WorkspaceFile, parse_workspace

FILE = b"""
version: 1
metadata: {name: render, image: {uri: "https://images.example.org/ubuntu"}}
"""


def workspace(ways: str, roles: str = "") -> WorkspaceFile:
    text = FILE.decode().rstrip().removesuffix("}") + f", roles: [{roles}]}}\n"
    options = {"options": ways, "start": "now+1hour"}
    return parse_workspace(text.encode(), Circumstances(now_s=0, zone=UTC), file="ws.yaml", options=options)


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
        ("nodes=2 time=60 nodes=3", "is given twice"),
        ("nodes=2 time=60 duration=70", "is given twice"),
        ("nodes=2 time=60 colour=red", "colour is not a key of an option"),
        ("nodes=-2 time=60", ""),
        ("nodes=\uff12 time=60", "is not of the form"),
        ("nodes=2;rm time=60", "is not of the form"),
        ("nodes=2 time=60 image=a;b", "is not of the form"),
        ("nodes=2 time=60 image=https://h/\u212b", "is not of the form"),
        ("nodes=2 time=60 digest=sha256:0", "digest has no effect"),
        ("nodes=2 time=60 image=" + "a" * 2049, "is not of the form"),
        ("nodes=2 time=" + "9" * 2600, "characters"),
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
    ways = [
        (way.nodes, way.duration_s, way.cpus, way.finish_by_s, way.options)
        for way in map(found.by, found.options)
    ]
    assert ways == [(2, 3600, 2, 3600, ()), (4, 2100, 8, 3600, ())]


def test_option_has_an_image_of_its_own_or_the_workspaces() -> None:
    file = workspace("nodes=2,time=60m;nodes=4,time=35m,image=https://images.example.org/fast")

    assert [each.metadata.image.uri for each in file.ways()] == [
        "https://images.example.org/ubuntu",
        "https://images.example.org/fast",
    ]


@pytest.mark.parametrize(
    ("way", "fault"),
    [
        ("image=https://me:secret@h/a", "--option: .*password"),
        ("image=https://h/../a", "--option: .*has .. as a part"),
        (
            "image=https://h/a,digest=sha256:12",
            "--option: .*64 hexadecimal",
        ),
    ],
)
def test_fault_of_an_options_image_is_named_with_its_place(way: str, fault: str) -> None:
    with pytest.raises(FaultyFileError, match=fault):
        workspace(f"nodes=2,time=60m,{way}")


@pytest.mark.parametrize(
    ("roles", "options", "fault"),
    [
        ("{name: a, hosts: 'h[1-2]'}", "nodes=2,time=60m;nodes=3,time=35m", "3 instances are wanted"),
        ("{name: a, hosts: 'h[1-2]', cpus: 2}", "nodes=2,time=60m;nodes=2,time=35m", "is not for roles"),
        ("", "nodes=1,time=60m;nodes=10000,instances_per_node=2,time=35m", "20000 instances are too many"),
    ],
)
def test_each_option_is_held_to_what_holds_for_a_deployment(roles: str, options: str, fault: str) -> None:
    with pytest.raises(FaultyFileError, match=fault):
        workspace(options, roles)


def test_deadline_that_no_option_keeps_is_a_fault() -> None:
    with pytest.raises(FaultyFileError, match="do not end by"):
        deployment(options="nodes=2,time=60m;nodes=4,time=35m", finish_by="now+30minutes")
