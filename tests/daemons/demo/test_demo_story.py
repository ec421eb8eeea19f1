"""The demo without Slurm tells its story to the end, and takes everything away again."""

from __future__ import annotations

import os
import re

import pytest

from outrider.cli.demo.story import TRIES
from tests.daemons.demo.conftest import Playing, Shown, output_of

TABLE = re.compile(
    r"^(render-\d+) +n\[[\d,-]+\] +(\d+) s before +(\d+\.\d) s +(\d+\.\d) s +(\S+ \S+) +(\S+ \S+)$",
    re.MULTILINE,
)


def test_demo_succeeds_and_leaves_nothing(brief: Shown) -> None:
    assert (brief.code, brief.err) == (0, ""), brief.out
    assert brief.left == []


def test_first_reservation_is_accepted_with_its_plan(brief: Shown) -> None:
    shown = output_of(brief, "outrider reserve render.yaml --start")

    assert shown.startswith("render-1 is reserved: 2 nodes, n[1-2]")
    assert re.search(r"^  ready    about .* before the start; at the latest ", shown, re.MULTILINE)


def test_command_of_the_refusal_is_typed_and_accepted(brief: Shown) -> None:
    said = refused = output_of(brief, "outrider reserve train.yaml --start now")
    typed = list[str]()
    while said.startswith("train is refused: image ") and len(typed) < TRIES:
        command = next(line.strip() for line in said.splitlines() if line.startswith("   "))
        said = output_of(brief, command, typed.count(command))
        typed.append(command)

    assert refused.startswith("train is refused: image ")
    assert said.startswith("train-2 is reserved: 1 node, ")


def test_same_image_again_goes_to_nodes_that_will_have_it(brief: Shown) -> None:
    shown = output_of(brief, "outrider reserve render.yaml --nodes 3")

    assert re.search(r"^  saved +17\.9 MiB: n\[1-2\] have the image, or will$", shown, re.MULTILINE)


def test_jobs_find_instances_of_their_images(brief: Shown) -> None:
    for number, nodes in ((1, 2), (2, 3)):
        made = output_of(brief, f"grep 'instance made job={number}' log").strip().splitlines()

        assert "/instances/" in output_of(brief, f"cat state/embedded/jobs/{number}.out")
        assert len(made) == nodes


def test_receipts_say_met_and_the_table_sums_them_up(brief: Shown) -> None:
    rows = TABLE.findall(brief.out)

    assert [row[0] for row in rows] == ["render-1", "render-3"]
    for name, spare, delay, fetched, moved, _ in rows:
        assert f"met: ready {spare} s before the start\n            {moved} moved" in output_of(
            brief, f"outrider show {name}"
        )
        assert float(fetched) >= float(delay) + 1


@pytest.mark.skipif(not os.environ.get("CI"), reason="it takes a little more than a minute: CI runs it")
def test_hanging_node_is_gone_round_in_time(playing: dict[str, Playing]) -> None:
    demo = playing["full"].shown()
    explained = output_of(demo, "outrider explain render-3")

    assert demo.code == 0, demo.out + demo.err
    assert re.search(r"repair moved: the pool of n\d does not answer: .+: it has other nodes now", explained)
    assert len(TABLE.findall(demo.out)) == 2
    assert demo.left == []
