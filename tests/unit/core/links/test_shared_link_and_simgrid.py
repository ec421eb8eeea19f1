"""The shared link's two rates against SimGrid, an independent network simulator."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Transfer
from tests.repository import ROOT

DEBIAN_PYTHON = "/usr/bin/python3"
ORACLE = ROOT / "tests/simulation/sharing/simgrid_oracle.py"
RATE = 12_500_000
PERCENT = 20
BESIDE_RATE = RATE // 5

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", autouse=True)
def simgrid() -> None:
    command = [DEBIAN_PYTHON, "-c", "import simgrid"]
    try:
        is_missing = subprocess.run(command, capture_output=True, timeout=240, check=False).returncode != 0
    except FileNotFoundError:
        is_missing = True
    if is_missing:
        complaint = "SimGrid is missing: run `apt-get install python3-simgrid`"
        if os.environ.get("CI"):
            pytest.fail(complaint)
        pytest.skip(complaint)


@pytest.mark.parametrize(
    ("deadline_bytes", "best_effort_bytes"),
    [(600_000_000, 150_000_000), (600_000_000, 100_000_000), (1_000_000_000, 25_000_000)],
)
def test_side_by_side_each_has_its_cap_to_the_second(deadline_bytes: int, best_effort_bytes: int) -> None:
    """Both sizes are such that best effort ends first, or with the slot: each keeps its cap."""
    ours = ends_of({"deadline": deadline_bytes, "best-effort": best_effort_bytes}, deadline_s=3600)
    beside_s = ours["best-effort"]

    both = ask_simgrid(
        [
            sent("deadline", 0, beside_s * (RATE - BESIDE_RATE), RATE - BESIDE_RATE),
            sent("best-effort", 0, best_effort_bytes, BESIDE_RATE),
        ]
    )
    left = deadline_bytes - beside_s * (RATE - BESIDE_RATE)
    alone = ask_simgrid([sent("deadline", beside_s, left, None)]) if left else both

    assert both == {"deadline": pytest.approx(beside_s), "best-effort": pytest.approx(beside_s)}
    assert alone["deadline"] == pytest.approx(ours["deadline"])


def test_after_the_slot_best_effort_has_the_whole_link_to_the_second() -> None:
    ours = ends_of({"deadline": 600_000_000, "best-effort": 400_000_000}, deadline_s=3600)
    slot_s = ours["deadline"]

    both = ask_simgrid(
        [
            sent("deadline", 0, 600_000_000, RATE - BESIDE_RATE),
            sent("best-effort", 0, slot_s * BESIDE_RATE, BESIDE_RATE),
        ]
    )
    alone = ask_simgrid([sent("best-effort", slot_s, 400_000_000 - slot_s * BESIDE_RATE, None)])

    assert both == {"deadline": pytest.approx(slot_s), "best-effort": pytest.approx(slot_s)}
    assert alone["best-effort"] == pytest.approx(ours["best-effort"])


def ends_of(sizes: dict[str, int], deadline_s: int) -> dict[str, int]:
    """Both are handed in at 0; the deadline's transfer starts at once."""
    link = SharedLink(rate_bytes_per_s=RATE, best_effort_percent=PERCENT, reserve_s=None)
    numbers = {1: "deadline", 2: "best-effort"}
    wanted = Transfer(
        number=1,
        image=Image(uri="deadline", size_bytes=sizes["deadline"]),
        nodes=("n1",),
        duration_s=link.deadline_duration_s(sizes["deadline"]),
        deadline_s=deadline_s,
    )
    insertion = link.deadlines.plan([wanted], 0)
    assert insertion is not None
    link.deadlines.apply(insertion)
    image = Image(uri="best-effort", size_bytes=sizes["best-effort"])
    link.add(Transfer(number=2, image=image, nodes=("n2",), duration_s=1), 0)
    return {
        numbers[event.transfer.number]: event.at_s
        for event in link.advance(deadline_s)
        if not event.has_begun
    }


def sent(key: str, start_s: int, size: int, cap: int | None) -> dict[str, object]:
    return {"key": key, "start_s": start_s, "size_bytes": size, "cap_bytes_per_s": cap, "receiver": None}


def ask_simgrid(transfers: list[dict[str, object]]) -> dict[str, float]:
    scenario = {"rate_bytes_per_s": RATE, "receivers_bytes_per_s": {}, "transfers": transfers}
    done = subprocess.run(
        [DEBIAN_PYTHON, str(ORACLE)],
        input=json.dumps([scenario]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # SimGrid may print a line of its own first; the answer is the last one.
    [answer] = json.loads(done.stdout.splitlines()[-1])
    return dict(answer)
