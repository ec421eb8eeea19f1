"""A service beside a real Grid Engine moves machines by itself, so that a job has room that waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.conftest import JOBS, LINK_BYTES_PER_S, RATE_BITS_PER_S, TIMINGS
from tests.daemons.gridengine.service.jobs import cancel, report
from tests.daemons.gridengine.service.test_jobs_in_machines import machines, wait_until_said
from tests.daemons.gridengine.service.test_switches import (
    HALF,
    counting,
    counts_on,
    disabled,
    node_of,
    wait_until_counted,
)
from tests.daemons.slurm.service.switched import steps_of, switch_of
from tests.needs import lacking

__all__ = ["machines"]
WHOLE = ("-pe", "each4", "4")
WAIT_S = 300


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        lacking(lack)
    with site_cluster(2, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        consolidate = {"enabled": True, "every": "10s"}
        made = GridEngineSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": {**JOBS, "consolidate": consolidate}},
        )
        made.install()
        environments = json.dumps({"machine_environments": [HALF[1], WHOLE[1]]})
        cluster.write(HEAD, "/etc/outrider/jsv.json", environments)
        yield made


@pytest.mark.long
def test_machine_gives_its_node_to_a_job_that_needs_all_of_one(machines: GridEngineSite) -> None:
    site = machines
    first, second = site.cluster.nodes
    stays = counting(site, "stays", *HALF, "-q", f"all.q@{first}")
    wait_until_said(site, stays, "3")
    with disabled(site, first):
        moves = counting(site, "moves", *HALF)
        wait_until_said(site, moves, "3")
    before, counted = node_of(site, moves), counts_on(site, moves)

    waits = counting(site, "waits", *WHOLE)
    site.cluster.wait_for(
        "the switch to be over",
        lambda: switch_of(site).get("state") in ("done", "failed"),
        WAIT_S,
        lambda: f"{switch_of(site)}\n{report(site, waits)}",
    )
    found = switch_of(site)
    wait_until_said(site, waits, "began")
    wait_until_counted(site, moves, counted)
    after = node_of(site, stays), node_of(site, moves), node_of(site, waits)
    cancel(site, stays, moves, waits)

    assert before == second
    assert (found["state"], found["by"]) == ("done", "outrider"), found
    assert [each["job"] for each in steps_of(found) if each["kind"] == "migrate"] == [moves]
    assert after == (first, first, second)
