"""Jobs of a queue of which Outrider decides when and where they start, on a real Grid Engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from testbed.site import PROGRAMS
from tests.daemons.gridengine.service.conftest import JOBS, LINK_BYTES_PER_S, NODES, RATE_BITS_PER_S, TIMINGS
from tests.daemons.gridengine.service.jobs import MB, output, report, submit, wait_told

WAIT_S = 90
SCHEDULE = {"queues": ["all.q"], "backfilling": "easy"}
WHOLE = ("-pe", "each4")


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        pytest.skip(lack)
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": {**JOBS, "schedule": SCHEDULE}},
        )
        made.install()
        queues(made, "take-over")
        yield made


def queues(site: GridEngineSite, command: str) -> str:
    """An administrator's command, from the service's own environment; what it prints."""
    argv = [site.cluster.python, "-m", "outrider.cli.main", "queues", command]
    return site.cluster.run(HEAD, argv, environment={"PYTHONPATH": PROGRAMS}).stdout


def until(site: GridEngineSite, name: str, nodes: int) -> str:
    """A job on whole nodes that runs until there is a file."""
    site.cluster.run(HEAD, ["rm", "-f", f"{site.home()}/{name}"])
    return submit(site, None, *WHOLE, str(4 * nodes), more=f"while [ ! -e {name} ]; do sleep 0.2; done")


def let_end(site: GridEngineSite, name: str) -> None:
    site.cluster.run(HEAD, ["touch", f"{site.home()}/{name}"], user="ada")


def running_on(site: GridEngineSite, job: str) -> set[str]:
    return {node for node, jobs in site.cluster.jobs_on().items() if job in jobs}


def wait_running(site: GridEngineSite, job: str) -> set[str]:
    site.cluster.wait_for(
        f"job {job} to run", lambda: bool(running_on(site, job)), WAIT_S, lambda: report(site, job)
    )
    return running_on(site, job)


def wait_over(site: GridEngineSite, job: str) -> str:
    site.cluster.wait_for(
        f"job {job} to end", lambda: "began on" in output(site, job), WAIT_S, lambda: report(site, job)
    )
    return output(site, job)


def test_jobs_start_in_their_order_and_short_ones_before(site: GridEngineSite) -> None:
    first = until(site, "first", 3)
    ran = wait_running(site, first)
    wide = submit(site, None, *WHOLE, "16")
    told = wait_told(site, wide, "it is planned to start about")
    long = submit(site, None, *WHOLE, "4", "-l", "h_rt=3600")
    short = submit(site, None, *WHOLE, "4", "-l", "h_rt=60")
    wait_over(site, short)
    waiting = [output(site, job) for job in (wide, long)]
    let_end(site, "first")
    wait_over(site, wide)
    wait_over(site, long)

    assert len(ran) == 3
    assert "n[1-4]" in told
    assert waiting == ["", ""]


def test_job_starts_on_the_nodes_of_its_place_with_its_image(site: GridEngineSite) -> None:
    image = site.image("inturn.qcow2", 6 * MB)
    holder = until(site, "held", 3)
    wait_running(site, holder)
    job = submit(site, image, *WHOLE, "8", more="sleep 3")
    wait_told(site, job, "it is planned to start about")
    site.cluster.wait_for("its image", lambda: len(site.arrived_s(image)) == 2, logs=site.logs)
    there = set(site.arrived_s(image))
    before = output(site, job)
    let_end(site, "held")
    ran = wait_running(site, job)
    done = wait_over(site, job)

    assert before == ""
    assert ran == there
    assert "QFI" in done


@pytest.mark.parametrize("is_away", [False, True], ids=["alive", "away"])
@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_jobs_in_turn.py::test_queues_are_handed_back_and_taken_over"
)
def test_queues_are_handed_back_and_taken_over(site: GridEngineSite, *, is_away: bool) -> None:
    first = until(site, "back", 4)
    wait_running(site, first)
    waiting = submit(site, None, *WHOLE, "16")
    wait_told(site, waiting, "it is planned to start about")
    if is_away:
        site.cluster.kill(HEAD, "outriderd")
    told = queues(site, "hand-back")
    let_end(site, "back")
    wait_over(site, waiting)
    later = submit(site, None, *WHOLE, "4")
    wait_over(site, later)
    if is_away:
        site.start_service()
    queues(site, "take-over")
    again = submit(site, None, *WHOLE, "4")
    wait_over(site, again)

    assert "all.q: handed back; 1 jobs are released" in told
