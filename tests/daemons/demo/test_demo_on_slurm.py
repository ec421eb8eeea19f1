"""The demo on a private Slurm tells its story to the end, and takes everything away again."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cachemgr.machines.keeper import PROGRAM
from tests.daemons.demo.conftest import Shown, left_behind, output_of, start_on_slurm
from tests.daemons.testbed.clusters import needs_slurm
from tests.repository import ROOT

SECONDS, BYTES = r" +(\d+\.\d\d) s", r" +(\d+(?:\.\d)? \w+)"
MOST_WHOLE_S = 600
ROW = re.compile(rf"^(\w+(?:, \w+)?){SECONDS}{SECONDS}{BYTES}{SECONDS}{SECONDS}{BYTES}$", re.MULTILINE)


def test_demo_on_slurm_succeeds_and_leaves_nothing(brief_on_slurm: Shown) -> None:
    assert (brief_on_slurm.code, brief_on_slurm.err) == (0, ""), brief_on_slurm.out
    assert brief_on_slurm.left == []


def test_job_that_names_its_image_finds_it_on_each_of_its_nodes(brief_on_slurm: Shown) -> None:
    for number in (2, 3, 4):
        printed = output_of(brief_on_slurm, f"cat slurm-{number}.out")

        nodes = re.findall(r"the image is on (n\d): \S+/instances/", printed)
        assert len(set(nodes)) == 2, printed


def test_node_says_in_how_many_milliseconds_a_disk_was_made(brief_on_slurm: Shown) -> None:
    made = re.findall(
        r"^instance ready .*owner=job-(\d) .* milliseconds=\d", brief_on_slurm.out, re.MULTILINE
    )

    assert made == ["3", "4"]


def test_refusal_on_slurm_names_the_earliest_start(brief_on_slurm: Shown) -> None:
    refused = output_of(brief_on_slurm, "outrider reserve train.yaml")

    assert refused.startswith("train is refused: image http://images:8000/train.qcow2 ")
    assert re.search(r"^  earliest  [\d:]+ \(in \d+ s\)", refused, re.MULTILINE)


def test_reservation_on_slurm_is_met_with_a_receipt(brief_on_slurm: Shown) -> None:
    accepted = output_of(brief_on_slurm, "outrider reserve train.yaml", 1)

    assert accepted.startswith("train-1 is reserved: 2 nodes, ")
    assert re.search(r"receipt   met: ready \d+ s before", output_of(brief_on_slurm, "outrider show train-1"))


def test_table_has_each_job_in_both_ways(brief_on_slurm: Shown) -> None:
    rows = {row[0]: row[1:] for row in ROW.findall(brief_on_slurm.out)}

    assert list(rows) == ["render", "render, again", "train, reserved", "together"]
    for _, fetching, fetched, _, ours, _ in rows.values():
        assert float(ours) < float(fetching)
        assert fetched != "0 B"
    assert rows["render, again"][5] == "0 B"
    # One copy for two nodes: the relay's work.
    assert (rows["render"][2], rows["render"][5]) == ("31.2 MiB", "15.6 MiB")


def normal(text: str) -> list[str]:
    """Lines without what differs from one run to the next."""
    plain = re.sub(r"(sha256:|instances/)[0-9a-f]+", "name", text)
    plain = re.sub(r"\d[\d.:,T+-]*", "1", plain).replace("1 min 1 s", "1 s")
    return [re.sub(r"\s+", " ", line).strip() for line in plain.splitlines()]


def test_readme_shows_what_the_demo_shows(brief_on_slurm: Shown) -> None:
    page = (ROOT / "README.md").read_text()
    excerpt = page.split("$ make demo\n")[1].split("$ make test")[0]
    # The brief one has one reservation less.
    lines = [line for line in normal(excerpt) if line not in ("", "…") and not line.startswith("solve")]
    real = normal(brief_on_slurm.out)

    assert len(lines) > 20
    assert [line for line in lines if line not in real] == []


@pytest.mark.long
def test_machine_is_saved_for_a_reservation_and_counts_on(installed: Path, temporary: Path) -> None:
    """The whole demo, since its short form leaves the machine out."""
    needs_slurm()
    if not os.path.exists(PROGRAM) and "CI" not in os.environ:
        pytest.skip(f"needs {PROGRAM}: make tools")
    process = start_on_slurm(installed, temporary)
    out, err = process.communicate(timeout=MOST_WHOLE_S)
    whole = Shown(code=process.returncode, out=out, err=err, left=left_behind(temporary))
    # What the demo says of it stands below.
    printed = [output_of(whole, "cat slurm-4.out", number) for number in (0, 1)]
    counted = [text.splitlines()[0].split() for text in printed]
    saved_at = re.search(r"^It was saved at (\d+), its node was a reservation's", out, re.MULTILINE)

    assert (whole.code, whole.err, whole.left) == (0, "", []), out
    assert "job 4 is running: it yields to reservation solve-" in output_of(whole, "outrider show 4")
    assert "count.sh PENDING" in output_of(whole, "squeue --jobs=4")
    assert counted[0] == [str(number) for number in range(1, len(counted[0]) + 1)]
    assert counted[1] == [str(number) for number in range(1, 46)]
    assert saved_at is not None
    assert len(counted[0]) <= int(saved_at[1]) < 45
