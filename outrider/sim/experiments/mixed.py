"""The thesis' section 8.3: 36 mixed workloads, each run in several configurations.

A configuration is a name for a `Setup`. The first four are the thesis' own; the next three
are variants of them that Tables 4.1, 4.2 and 8.4 need; the rest is what the thesis did not
have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.reservations.book import Shipping
from outrider.sim.experiments.parallel import in_parallel
from outrider.sim.measures import peak_disk_bytes, utilisation
from outrider.sim.setup import MEGABYTE, THESIS, Setup, no_virtualisation, ranked_by, thesis_nodes
from outrider.sim.workload.mixed import ROWS, mixed_trace, row_parameters
from outrider.sim.world import Simulation

IMAGE_BYTES = 600 * MEGABYTE
_BACKFILLING_ONLY = SuspensionRules(is_allowed=False)


_REUSE = replace(THESIS, is_reusing=True)
_LINGER = replace(_REUSE, keep_bytes=5 * IMAGE_BYTES, is_extending=True)

CONFIGURATIONS: dict[str, Setup] = {
    "no virtualisation": no_virtualisation(THESIS),
    "predeployed": replace(THESIS, has_images=False),
    "no reuse": THESIS,
    "reuse": _REUSE,
    "reuse, any image joined": replace(_REUSE, joins_any_image=True),
    "predeployed, no overhead": replace(THESIS, has_images=False, slowdown_percent=0),
    "predeployed, backfilling": replace(THESIS, has_images=False, suspension=_BACKFILLING_ONLY),
    "no reuse, backfilling": replace(THESIS, suspension=_BACKFILLING_ONLY),
    "reuse, 3 GB pools": replace(_REUSE, pool_bytes=5 * IMAGE_BYTES),
    "LFU pool": replace(_LINGER, rank=ranked_by("lfu")),
    "timeout pool": replace(_LINGER, rank=ranked_by("timeout")),
    "calendar pool": replace(_LINGER, rank=ranked_by("calendar")),
    "relay": replace(_REUSE, shipping=Shipping.RELAY),
    "one shared link": replace(_REUSE, best_effort_percent=50),
    "all of these": replace(
        _LINGER, rank=ranked_by("calendar"), shipping=Shipping.RELAY, best_effort_percent=50
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedRun:
    """One workload in one configuration."""

    row: str
    seed: int
    configuration: str
    finish_s: int
    """When the last best-effort instance ended, noticed as the thesis does at a tick's start."""
    utilisation: float
    peak_disk_bytes: int
    moved_bytes: int
    instances: int
    accepted: int
    refused: int
    late: int


def run_row(row: str, seed: int, configurations: Sequence[str]) -> list[MixedRun]:
    """One of the 36 workloads, drawn once, in each configuration."""
    trace = mixed_trace(row_parameters(row, seed), name=row)
    nodes = thesis_nodes()
    runs: list[MixedRun] = []
    for name in configurations:
        setup = CONFIGURATIONS[name]
        outcome = Simulation(setup, nodes, trace).run()
        last_s = max((done.end_s for done in outcome.done), default=0)
        runs.append(
            MixedRun(
                row=row,
                seed=seed,
                configuration=name,
                finish_s=last_s // setup.quantum_s * setup.quantum_s,
                utilisation=utilisation(outcome, "cpus"),
                peak_disk_bytes=max(peak_disk_bytes(outcome.stays).values(), default=0),
                moved_bytes=outcome.moved_bytes,
                instances=len(outcome.done),
                accepted=len(outcome.kept),
                refused=len(outcome.refused),
                late=len(outcome.late),
            )
        )
    return runs


def run_mixed(
    configurations: Sequence[str],
    *,
    seeds: int,
    first_seed: int = 1,
    rows: Iterable[str] = tuple(ROWS),
    on_progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> list[MixedRun]:
    """Every row with every seed, on all cores; in the order of rows, seeds, configurations."""
    drawn = range(first_seed, first_seed + seeds)
    pieces = [(row, seed, configurations) for row in rows for seed in drawn]
    found = in_parallel(run_row, pieces, workers=workers, on_progress=on_progress)
    return [run for runs in found for run in runs]
