"""Every benchmark, one after the other, each in a process of its own.

The one that needs a log of the Parallel Workloads Archive runs if OUTRIDER_DATA names the
folder with it, and says what is missing otherwise.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = (
    "mixed",
    "leases",
    "admission",
    "backfill",
    "pool",
    "hook",
    "relay",
    "service",
    "submit",
    "slurm_start",
    "slurm_naive",
    "slurm_scale",
    "slurm_accuracy",
)
MISSING = 2
"""How a benchmark ends that lacks its log: it has said so, and the others stand."""


def main() -> int:
    worst = 0
    for name in NAMES:
        print(f"== {name}", flush=True)
        script = Path(__file__).with_name(f"{name}.py")
        code = subprocess.run([sys.executable, str(script)], check=False).returncode
        if code != MISSING:
            worst = max(worst, code)
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
