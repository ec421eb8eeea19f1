"""Reservations and jobs at once over one link, which has promised best effort a share of it.

The thesis gives each class a link of its own. Here reservations get what is left of the promise
while best effort has something to send, and all of the link while it has nothing, and the other
way round. Each class has hosts of its own, so that the link is all that they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.sim.experiments.deployment import (
    BatchRequest,
    DeploymentRun,
    Testbed,
    VirtualHosts,
    deployment_run,
)
from outrider.sim.experiments.satisfaction import Satisfaction, VirtualReservations, satisfaction_of
from outrider.sim.experiments.stager import StagedRequest, Stager, Strategy
from outrider.sim.sharing import FluidLink


def run_together(
    reservations: Sequence[StagedRequest], jobs: Sequence[BatchRequest], testbed: Testbed, share_percent: int
) -> tuple[Satisfaction, DeploymentRun]:
    """Reservations staged by their deadlines, beside jobs; `share_percent` is promised to the jobs."""
    if not 0 < share_percent < 100:
        raise ValueError(f"a share of {share_percent} % leaves nothing for one class: take 1 to 99")
    rate = testbed.link_bytes_per_s
    links = {"reserved": FluidLink(rate), "jobs": FluidLink(rate)}
    promised = {"reserved": rate * (100 - share_percent) // 100, "jobs": rate * share_percent // 100}
    stager = Stager(reservations, Strategy.SCHEDULED, rate)
    staging = VirtualReservations(reservations, stager, links["reserved"])
    hosts = VirtualHosts(jobs, testbed, links["jobs"])
    now_s = 0
    while times := [each for each in (staging.next_s(), hosts.next_s()) if each is not None]:
        now_s = max(now_s, min(times))
        staging.happen(now_s)
        hosts.happen(now_s)
        is_shared = not any(link.is_idle for link in links.values())
        for name, link in links.items():
            link.set_rate(now_s, promised[name] if is_shared else rate)
    satisfaction = satisfaction_of(reservations, Strategy.SCHEDULED, staging.ready_s)
    return satisfaction, deployment_run(jobs, hosts.done)
