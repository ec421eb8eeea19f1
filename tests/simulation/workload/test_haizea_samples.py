"""What Haizea's own samples show, in samples of ours in its format: who has nodes when, worked out by hand.

750 MB take 60 s of 12.5 MB/s, 1500 MB 120 s; 1024 MiB of memory 34 s at 32 MB/s and 86 s over the link.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.main import main
from tests.repository import ROOT

SAMPLES = ROOT / "tests" / "data" / "haizea"
APART = ("--images", "predeployed")
FREE = ("--suspend-rate", "free")
Capture = pytest.CaptureFixture[str]
Spans = dict[str, tuple[int, int]]


def played(name: str, folder: Path, capsys: Capture, *options: str) -> tuple[Spans, dict[str, Any]]:
    """From when until when each lease was there, and the report."""
    jobs = folder / "jobs.csv"
    words = ["sim", "run", str(SAMPLES / f"{name}.lwf"), "--slowdown", "0", "--json", "--jobs-csv", str(jobs)]

    assert main([*words, *options]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    with jobs.open(newline="") as file:
        rows = {
            row["name"]: (int(float(row["starting_time"])), int(float(row["finish_time"])))
            for row in csv.DictReader(file)
        }
    return rows, report


def states(report: dict[str, Any]) -> dict[str, str]:
    """Of whom it did not go through to the end."""
    return {each["name"]: each["state"] for each in report["leases"] if each["state"] != "done"}


@pytest.mark.parametrize(
    ("name", "options", "spans"),
    [
        ("suspended", FREE, {"1": (0, 2100 + 1200), "2": (1200, 2100)}),
        # Written from 1166 to 1200, read from 2100 to 2134.
        ("suspended", ("--suspend-rate", "32"), {"1": (0, 2134 + 2400 - 1166), "2": (1200, 2100)}),
        ("suspended", (*FREE, "--policy", "conservative"), {"1": (0, 3300), "2": (1200, 2100)}),
        ("early-ends", FREE, {"1": (0, 1800 + 600), "2": (1200, 1800)}),
        ("kept-place", (), {"1": (0, 1500), "2": (1500, 2100), "3": (360, 960), "4": (2100, 5100)}),
        (
            "kept-place",
            ("--policy", "off"),
            {"1": (0, 1500), "2": (1500, 2100), "3": (2100, 2700), "4": (2100, 5100)},
        ),
        ("in-turn", (), {"1": (0, 600), "2": (600, 1200), "3": (1200, 1800), "4": (1800, 2400)}),
        ("elsewhere", FREE, {"1": (60, 960), "2": (600, 3000), "3": (0, 3000 + 1200)}),
        (
            "elsewhere",
            (*FREE, "--migration", "yes"),
            {"1": (60, 960), "2": (600, 3000), "3": (0, 1046 + 1200)},
        ),
        (
            "elsewhere",
            (*FREE, "--migration", "free"),
            {"1": (60, 960), "2": (600, 3000), "3": (0, 960 + 1200)},
        ),
    ],
)
def test_best_effort_waits_overtakes_is_suspended_and_moves(
    name: str, options: tuple[str, ...], spans: Spans, tmp_path: Path, capsys: Capture
) -> None:
    found, report = played(name, tmp_path, capsys, *APART, *options)

    assert found == spans
    assert states(report) == {}


def test_nothing_is_accepted_in_the_place_of_what_cannot_be_suspended(
    tmp_path: Path, capsys: Capture
) -> None:
    found, report = played("suspended", tmp_path, capsys, *APART, "--suspension", "none")

    assert found == {"1": (0, 2400)}
    assert states(report) == {"2": "refused"}


@pytest.mark.parametrize(
    ("options", "start_s", "transfers"), [((), 2460, 3), (("--keep", "3GB", "--evict", "lru"), 2400, 2)]
)
def test_an_image_that_is_kept_needs_no_second_transfer(
    options: tuple[str, ...], start_s: int, transfers: int, tmp_path: Path, capsys: Capture
) -> None:
    found, report = played("image-there", tmp_path, capsys, *options)

    assert found == {"1": (600, 1200), "2": (600, 1200), "3": (start_s, start_s + 600)}
    assert report["images"]["transfers"] == transfers


def test_reservations_of_one_image_share_its_transfer(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("one-transfer", tmp_path, capsys)

    assert found == {"1": (300, 600), "2": (700, 1000)}
    assert report["images"]["transfers"] == 1


def test_a_lease_moves_within_its_deadline_and_no_further(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("deadlines", tmp_path, capsys, *APART, *FREE)

    assert found == {"1": (2400, 3600), "2": (1200, 2400)}
    assert states(report) == {"3": "refused"}
    assert report["reservations"]["moved"] == 1


@pytest.mark.parametrize(
    ("options", "pieces"),
    [(FREE, {"1": (2400, 3600), "2": (1200, 4800)}), (("--suspend-rate", "32"), {"1": (2400, 3600)})],
)
def test_a_lease_is_interrupted_if_what_that_costs_leaves_it_in_time(
    options: tuple[str, ...], pieces: Spans, tmp_path: Path, capsys: Capture
) -> None:
    """Its two pieces have 2400 s, which it needs whole. Images are brought for leases with deadlines, too."""
    found, report = played("in-pieces", tmp_path, capsys, *options)

    assert found == pieces
    assert states(report) == ({} if "free" in options else {"2": "refused"})
    assert report["images"]["transfers"] == len(pieces)


def test_a_lease_that_has_begun_keeps_its_nodes_however_late_its_deadline(
    tmp_path: Path, capsys: Capture
) -> None:
    found, report = played("begun", tmp_path, capsys, *APART, *FREE)

    assert found == {"1": (600, 4200)}
    assert states(report) == {"2": "refused"}


def test_transfers_move_for_one_another_and_an_idle_link_is_used(tmp_path: Path, capsys: Capture) -> None:
    """Sent from 180, 400 and 520 on for 120 s each: the first one makes room for the last."""
    found, report = played("link", tmp_path, capsys)

    assert found == {"1": (600, 1200), "2": (640, 1240), "3": (300, 900)}
    assert states(report) == {}
    assert report["images"]["transfers"] == 3


def test_what_is_not_preemptible_stays_and_the_youngest_yields(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("yields", tmp_path, capsys, *APART, *FREE, "--yielding", "youngest")

    assert found == {"1": (0, 3600), "2": (0, 3600), "3": (60, 60 + 3600 + 600), "4": (600, 1200)}
    assert states(report) == {"5": "refused"}


def test_what_is_larger_than_the_site_is_named_and_the_rest_runs(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("too-large", tmp_path, capsys)

    assert found == {"2": (0, 600)}
    assert report["never_fit"] == ["1"]


def test_a_cancelled_reservation_leaves_nothing_on_nodes_and_link(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("cancelled", tmp_path, capsys)

    assert found == {"2": (600, 1200)}
    assert states(report) == {"1": "cancelled"}
    assert report["images"]["transfers"] == 1


def test_a_pool_never_holds_more_than_its_limit(tmp_path: Path, capsys: Capture) -> None:
    found, report = played("pool", tmp_path, capsys, "--pool", "3000MB")

    assert found == {"1": (1000, 1600), "3": (2000, 2600)}
    assert states(report) == {"2": "refused"}
    assert report["images"]["peak_disk_bytes"] == 2_000_000_000
