"""One run on hosts, and in the simulator on the very same requests."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from bench.physical.arbiter import Arbiter
from bench.physical.experiments import ALL, Experiment
from bench.physical.jobs import RealJobs
from bench.physical.reservations import RealReservations, Staged
from bench.physical.site import HOSTS, PhysicalSite
from outrider.sim.experiments.deployment import DeploymentRun, run_deployments
from outrider.sim.experiments.figures import (
    GIGABYTE,
    SATISFACTION_DURATION_S,
    batch_requests,
    staging_requests,
)
from outrider.sim.experiments.satisfaction import (
    NOMINAL_BYTES_PER_S,
    Satisfaction,
    client_satisfaction,
    satisfaction_of,
)
from outrider.sim.experiments.stager import StagedRequest, Strategy
from outrider.sim.experiments.together import run_together
from outrider.sim.workload.formats.thesis import published_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.base.clock import Clock

Result = TypeVar("Result")
POOL_SPARE = 1.25
"""A pool of three images has room for a little more than three, and not for four."""
RESERVED_IMAGES = 64
"""So many images for reservations have room on a host: images go when their reservation is over."""
ESTIMATED_PERCENT = 95
"""Of what the link was measured to carry: what just-in-time staging reckons with on hosts."""
PATIENCE = 3
"""How many times the simulator's time a run may take before it is given up."""
LEAST_PATIENCE_S = 3600


def measure(name: str, *, factor: int, clock: Clock, most_requests: int | None = None) -> dict[str, object]:
    """What came out, as it is written down."""
    experiment = ALL[name]
    begun_s = clock.monotonic_s()
    run = _together if experiment.beside else _reserved if experiment.strategy else _deployed
    found = run(experiment, factor, clock, most_requests)
    return {
        "name": name,
        "figure": experiment.figure,
        "trace": experiment.trace,
        "way": experiment.way,
        "factor": factor,
        "took_s": round(clock.monotonic_s() - begun_s, 1),
        "load": round(os.getloadavg()[1], 1),
        **found,
    }


def _reserved(experiment: Experiment, factor: int, clock: Clock, most: int | None) -> dict[str, object]:
    trace = published_trace(experiment.trace, duration_s=SATISFACTION_DURATION_S)
    requests = staging_requests(trace)[:most]
    strategy, is_relayed = experiment.strategy, experiment.is_relayed
    assert strategy is not None
    room = [RESERVED_IMAGES * requests[0].size_bytes // factor] * HOSTS
    last_s = max(each.start_s for each in requests)
    with PhysicalSite(factor=factor, clock=clock, pools=room) as site:
        rate = measured_rate(site, requests[0].size_bytes)
        estimate = rate * ESTIMATED_PERCENT // 100
        real = RealReservations(site, requests, strategy, estimate, is_relayed=is_relayed)
        told = real.run(last_s + LEAST_PATIENCE_S)
        leftovers = site.leftovers()
    got = satisfaction_of(requests, strategy, told.ready_s)
    simulated = [
        client_satisfaction(requests, strategy, each, is_relayed=is_relayed)
        for each in (NOMINAL_BYTES_PER_S, rate)
    ]
    delays_s = _delays_s(requests, told)
    sent_gigabytes = sum((1 if is_relayed else each.nodes) * each.size_bytes for each in requests) / GIGABYTE
    return {
        "link_bytes_per_s": rate,
        "start_delay_s": fmean(delays_s or [0]),
        "jobs_started": len(delays_s),
        "leftovers": leftovers,
        "rows": _rows(requests, told, got, simulated),
        "quantities": [
            *(_compared(name, "%", value, got, simulated) for name, value in SATISFACTIONS.items()),
            _compared("mean lateness of images", "s", _late_s, got, simulated),
            _quantity("moved by the server", "GB", told.served_bytes * factor / GIGABYTE, [sent_gigabytes]),
        ],
    }


def _rows(
    requests: Sequence[StagedRequest], told: Staged, got: Satisfaction, simulated: Sequence[Satisfaction]
) -> list[dict[str, object]]:
    return [
        {
            "workspace": number + 1,
            "start_s": request.start_s,
            "asked_s": request.duration_s,
            "got_s": got.got_s[number],
            "simulated_got_s": simulated[0].got_s[number],
            "fitted_got_s": simulated[1].got_s[number],
            "job_start_s": told.job_start_s[number],
            "job_ready_s": told.job_ready_s[number],
        }
        for number, request in enumerate(requests)
    ]


def _delays_s(requests: Sequence[StagedRequest], told: Staged) -> list[int]:
    """How long after the starts of their reservations jobs said that they run."""
    return [
        begun_s - request.start_s
        for begun_s, request in zip(told.job_start_s, requests, strict=True)
        if begun_s is not None
    ]


def _together(experiment: Experiment, factor: int, clock: Clock, most: int | None) -> dict[str, object]:
    """Reservations on some hosts and jobs on others, at the same time, over the server's one link."""
    trace = published_trace(experiment.trace, duration_s=SATISFACTION_DURATION_S)
    requests, jobs = staging_requests(trace)[:most], batch_requests(published_trace(experiment.beside))[:most]
    testbed, share = experiment.testbed, experiment.share_percent
    assert testbed is not None
    rooms = [RESERVED_IMAGES * requests[0].size_bytes // factor] * HOSTS
    rooms += [int(testbed.pool_bytes // factor * POOL_SPARE)] * HOSTS
    last_s = max(each.start_s for each in requests)
    with PhysicalSite(factor=factor, clock=clock, pools=rooms) as site:
        rate = measured_rate(site, requests[0].size_bytes)
        arbiter = Arbiter(site, share_percent=share, rate_bytes_per_s=rate)
        reserved, working = site.nodes[:HOSTS], site.nodes[HOSTS:]
        real = RealReservations(
            site, requests, Strategy.SCHEDULED, NOMINAL_BYTES_PER_S, nodes=reserved, lane=arbiter.reservation
        )
        beside = RealJobs(site, jobs, testbed, nodes=working, lane=arbiter.job)
        with ThreadPoolExecutor(1) as thread:
            future = thread.submit(beside.run, last_s + LEAST_PATIENCE_S)
            told = real.run(last_s + LEAST_PATIENCE_S)
            run = future.result().run
        arbiter.close()
        leftovers = site.leftovers()
    simulated = [
        run_together(requests, jobs, replace(testbed, link_bytes_per_s=each), share)
        for each in (NOMINAL_BYTES_PER_S, rate)
    ]
    got = satisfaction_of(requests, Strategy.SCHEDULED, told.ready_s)
    satisfactions, deployments = [one for one, _ in simulated], [other for _, other in simulated]
    return {
        "link_bytes_per_s": rate,
        "start_delay_s": fmean(_delays_s(requests, told) or [0]),
        "jobs_started": len(_delays_s(requests, told)) + len(jobs),
        "leftovers": leftovers,
        "rows": _rows(requests, told, got, satisfactions),
        "quantities": [
            *(_compared(name, "%", value, got, satisfactions) for name, value in SATISFACTIONS.items()),
            *(_compared(name, unit, value, run, deployments) for name, unit, value in DEPLOYMENTS),
        ],
    }


def _deployed(experiment: Experiment, factor: int, clock: Clock, most: int | None) -> dict[str, object]:
    requests = batch_requests(published_trace(experiment.trace))[:most]
    testbed = experiment.testbed
    assert testbed is not None
    image_bytes = max(each.size_bytes for each in requests) // factor
    pool_bytes = int(testbed.pool_bytes // factor * POOL_SPARE) or HOSTS * image_bytes
    thesis = run_deployments(requests, testbed)
    last_s = thesis.deployments[-1].ready_s
    with PhysicalSite(
        factor=factor, clock=clock, pools=[pool_bytes] * HOSTS, policy=testbed.eviction
    ) as site:
        rate = measured_rate(site, requests[0].size_bytes)
        told = RealJobs(site, requests, testbed).run(PATIENCE * last_s + LEAST_PATIENCE_S)
        leftovers = site.leftovers()
    real = told.run
    delay_s = fmean(each.job_start_s - told.starts_s[each.request] for each in real.deployments)
    fitted = run_deployments(requests, replace(testbed, link_bytes_per_s=rate, start_delay_s=round(delay_s)))
    return {
        "link_bytes_per_s": rate,
        "start_delay_s": delay_s,
        "jobs_started": len(requests),
        "leftovers": leftovers,
        "rows": [asdict(each) for each in real.deployments],
        "simulated_rows": [asdict(each) for each in thesis.deployments],
        "quantities": [
            *(_compared(name, unit, value, real, [thesis, fitted]) for name, unit, value in DEPLOYMENTS),
            _quantity(
                "moved by the server", "GB", told.served_bytes * factor / GIGABYTE,
                [each.transfers * requests[0].size_bytes / GIGABYTE for each in (thesis, fitted)],
            ),
        ],
    }  # fmt: skip


def measured_rate(site: PhysicalSite, size_bytes: int) -> int:
    """What two images of the trace in one really get of the link when alone, connection and all."""
    image = site.image("calibration", 2 * site.scale.size_bytes(size_bytes))
    with site.client(site.nodes[0]) as client:
        begun_s = site.clock.monotonic_s()
        client.ask(
            "add",
            {"uri": image.uri, "digest": image.digest, "size_bytes": image.size_bytes},
            on_progress=lambda told: None,
        )
        took_s = site.clock.monotonic_s() - begun_s
        client.ask("evict", {"name": image.digest})
    return int(image.size_bytes / took_s)


def _late_s(result: Satisfaction) -> float:
    return fmean(asked - got for asked, got in zip(result.asked_s, result.got_s, strict=True))


SATISFACTIONS: dict[str, Callable[[Satisfaction], float]] = {
    "mean satisfaction": lambda result: 100 * float(result.mean),
    "worst satisfaction": lambda result: 100 * float(result.worst),
    "got all they asked for": lambda result: 100 * float(result.fully_satisfied),
}
DEPLOYMENTS: list[tuple[str, str, Callable[[DeploymentRun], float]]] = [
    ("mean deployment", "s", lambda run: float(run.mean_from_job_start_s)),
    ("mean deployment from its own turn on", "s", lambda run: float(run.mean_from_transfer_start_s)),
    ("found in pools", "images", lambda run: run.hits),
    ("transferred", "images", lambda run: run.transfers),
    ("last image ready", "s", lambda run: run.deployments[-1].ready_s),
]


def _compared(
    name: str, unit: str, value: Callable[[Result], float], real: Result, simulated: Sequence[Result]
) -> dict[str, object]:
    return _quantity(name, unit, value(real), [value(each) for each in simulated])


def _quantity(name: str, unit: str, real: float, simulated: Sequence[float]) -> dict[str, object]:
    """The simulator's values: with the thesis' parameters, and with what was measured of these hosts."""
    return {"name": name, "unit": unit, "real": real, "simulated": simulated[0], "fitted": simulated[-1]}
