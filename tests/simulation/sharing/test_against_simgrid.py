"""Our link sharing against SimGrid, an independent network simulator."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import pytest

from outrider.sim.sharing import SharedTransfer
from tests.simulation.sharing.finish_times import shared_finish_times

DEBIAN_PYTHON = "/usr/bin/python3"
ORACLE = Path(__file__).with_name("simgrid_oracle.py")
# SimGrid counts in doubles and stops within 10 µs; ours rounds up to whole seconds.
SLACK_S = 0.001

pytestmark = pytest.mark.oracle


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    rate_bytes_per_s: int
    transfers: list[SharedTransfer]
    receivers_bytes_per_s: dict[str, int] = field(default_factory=dict)

    def finish_times(self) -> dict[str, int]:
        return shared_finish_times(self.transfers, self.rate_bytes_per_s, self.receivers_bytes_per_s)


@pytest.fixture(scope="module", autouse=True)
def simgrid() -> None:
    command = [DEBIAN_PYTHON, "-c", "import simgrid"]
    try:
        probe = subprocess.run(command, capture_output=True, timeout=240, check=False)
        is_missing = probe.returncode != 0
    except FileNotFoundError:
        is_missing = True
    if is_missing:
        complaint = "SimGrid is missing: run `apt-get install python3-simgrid`"
        if os.environ.get("CI"):
            pytest.fail(complaint)
        pytest.skip(complaint)


def test_thousand_images_over_100_mbit_take_48000_seconds() -> None:
    images = [transfer(str(n), 0, 600_000_000) for n in range(1000)]
    scenario = Scenario(rate_bytes_per_s=12_500_000, transfers=images)

    [oracle] = ask_simgrid([scenario])

    assert set(oracle.values()) == {48_000.0}
    assert set(scenario.finish_times().values()) == {48_000}


@pytest.mark.parametrize("with_caps", [False, True])
@pytest.mark.parametrize("with_receivers", [False, True])
def test_finish_times_equal_simgrids_to_the_second(with_caps: bool, with_receivers: bool) -> None:
    seeds = range(15)
    scenarios = [random_scenario(Random(seed), with_caps, with_receivers) for seed in seeds]

    oracles = ask_simgrid(scenarios)

    for seed, scenario, oracle in zip(seeds, scenarios, oracles, strict=True):
        ours = scenario.finish_times()
        assert ours.keys() == oracle.keys()
        wrong = {
            key: (finish_s, oracle[key])
            for key, finish_s in ours.items()
            if not -SLACK_S <= finish_s - oracle[key] < 1 + SLACK_S
        }
        assert not wrong, f"seed {seed}: (ours, SimGrid's) {wrong}"


def random_scenario(random: Random, with_caps: bool, with_receivers: bool) -> Scenario:
    """Up to 40 transfers, their starts bunched enough that most of them overlap."""
    receivers = {f"n{n}": random.randint(500_000, 9_000_000) for n in range(4)}
    caps = [random.randint(200_000, 4_000_000) for _ in range(3)]
    last_start_s = random.choice([0, 60, 600, 4000])
    transfers = [
        transfer(
            str(number),
            random.randint(0, last_start_s),
            random.choice([600_000_000, random.randint(1, 900_000_000)]),
            cap=random.choice([None, *caps]) if with_caps else None,
            receiver=random.choice([None, *receivers]) if with_receivers else None,
        )
        for number in range(random.randint(1, 40))
    ]
    return Scenario(
        rate_bytes_per_s=random.choice([12_500_000, random.randint(1_000_000, 20_000_000)]),
        transfers=transfers,
        receivers_bytes_per_s=receivers,
    )


def transfer(
    key: str, start_s: int, size: int, cap: int | None = None, receiver: str | None = None
) -> SharedTransfer:
    return SharedTransfer(key=key, start_s=start_s, size_bytes=size, cap_bytes_per_s=cap, receiver=receiver)


def ask_simgrid(scenarios: list[Scenario]) -> list[dict[str, float]]:
    done = subprocess.run(
        [DEBIAN_PYTHON, str(ORACLE)],
        input=json.dumps([asdict(scenario) for scenario in scenarios]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # SimGrid may print a line of its own first; the answer is the last one.
    answers: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return answers
