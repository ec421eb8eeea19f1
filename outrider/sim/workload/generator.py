"""Every generated workload, under one name to import from.

All are pure functions of their parameters: the seed is one of these, a fresh `Random` is
made from it, and nothing depends on the order of a set or on PYTHONHASHSEED.
"""

from outrider.sim.workload.images import ImageShares, skewed_images, uniform_images
from outrider.sim.workload.mixed import (
    ROWS,
    MixedParameters,
    all_thirty_six,
    mixed_trace,
    requested_work,
    row_parameters,
)
from outrider.sim.workload.reservations import (
    DiskUsageParameters,
    FeasibleParameters,
    disk_usage_trace,
    feasible_trace,
    transfers_meet_deadlines,
)
from outrider.sim.workload.synthetic import synthetic_leases

__all__ = [
    "ROWS",
    "DiskUsageParameters",
    "FeasibleParameters",
    "ImageShares",
    "MixedParameters",
    "all_thirty_six",
    "disk_usage_trace",
    "feasible_trace",
    "mixed_trace",
    "requested_work",
    "row_parameters",
    "skewed_images",
    "synthetic_leases",
    "transfers_meet_deadlines",
    "uniform_images",
]
