"""What a site has no use for is not loaded: its classes would be made at every start of the simulator."""

from __future__ import annotations

import subprocess
import sys

UNUSED = (
    "outrider.core.besteffort.protection.first_slice",
    "outrider.core.leases.adaptive",
    "outrider.core.leases.nodes",
    "outrider.core.leases.preemption",
    "outrider.core.leases.pricing",
    "outrider.core.options.admission",
    "outrider.core.options.request",
)


def test_simulator_without_policies_loads_none() -> None:
    asked = "import sys, outrider.sim.world; print(*sys.modules, sep='\\n')"

    loaded = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()

    assert "outrider.core.scheduler" in loaded
    assert not set(UNUSED) & set(loaded)
