"""Jobs of a partition of which Outrider decides when and where they start, on a real Slurm."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from testbed.site import PROGRAMS, OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, workspace
from tests.daemons.slurm.service.conftest import (
    JOBS,
    LINES,
    LINK_BYTES_PER_S,
    NODES,
    RATE_BITS_PER_S,
    TIMINGS,
    check_clean,
)
from tests.daemons.slurm.service.failing import kill_service
from tests.daemons.slurm.service.jobs import ended, output, script, seen, wait_for
from tests.needs import need_slurm

MB = 1_000_000
SLEEP = "#!/bin/sh\nwhile [ ! -e $HOME/{name} ]; do sleep 0.2; done\n"
"""A job that runs until there is a file."""
NOTHING = "#!/bin/sh\ntrue\n"
SCHEDULE = {"queues": ["main"], "backfilling": "easy"}


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """Four nodes, whose jobs Outrider starts."""
    need_slurm()
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    failed_before = request.session.testsfailed
    with site_cluster(
        NODES, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=LINES
    ) as cluster:
        made = OutriderSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": {**JOBS, "schedule": SCHEDULE}},
        )
        made.install()
        queues(made, "take-over")
        yield made
        if request.session.testsfailed == failed_before:
            check_clean(made)


def queues(site: OutriderSite, command: str) -> str:
    """An administrator's command, from the service's own environment; what it prints."""
    argv = [site.cluster.python, "-m", "outrider.cli.main", "queues", command]
    return site.cluster.run(HEAD, argv, environment={"PYTHONPATH": PROGRAMS}).stdout


def until_told(site: OutriderSite, name: str) -> str:
    """The script of a job that runs until `let_end`."""
    site.cluster.run(HEAD, ["rm", "-f", f"{site.home()}/{name}"])
    return SLEEP.format(name=name)


def let_end(site: OutriderSite, name: str) -> None:
    site.cluster.run(HEAD, ["touch", f"{site.home()}/{name}"], user="ada")


def wait_said(site: OutriderSite, job: str, words: str) -> str:
    """The line at a job, once it has these words."""
    site.cluster.wait_for(
        f"{words!r} at job {job}",
        lambda: words in seen(site, job).admin_comment,
        logs=lambda: f"{seen(site, job)}\n{site.logs()}",
    )
    return seen(site, job).admin_comment


def test_jobs_start_in_their_order_on_their_nodes_and_short_ones_before(site: OutriderSite) -> None:
    first = site.submit(until_told(site, "first"), "-N3", "--exclusive", "-t10")
    ran = wait_for(site, first, "RUNNING")
    wide = site.submit(NOTHING, "-N4", "--exclusive", "-t5")
    told = wait_said(site, wide, "it is planned to start about")
    site.cluster.wait_for("a start in squeue", lambda: seen(site, wide).start_s > 0, logs=site.logs)
    expected_s = seen(site, wide).start_s
    long = site.submit(NOTHING, "-N1", "--exclusive", "-t60")
    short = site.submit(NOTHING, "-N1", "--exclusive", "-t5")
    done = ended(site, short)
    waiting = [seen(site, job).state for job in (wide, long)]
    shown = json.loads(site.outrider("show", wide, "--json").stdout)["job"]
    let_end(site, "first")
    after = [ended(site, job) for job in (first, wide, long)]

    assert ran.nodes == "n[1-3]"
    assert done.nodes == "n4"
    assert waiting == ["PENDING", "PENDING"]
    assert "on n[1-4]" in told
    assert abs(shown["start_s"] - (ran.start_s + 600)) <= 60
    # On any version: users see in squeue what is planned.
    assert abs(expected_s - (ran.start_s + 600)) <= 60
    assert [each.state for each in after] == ["COMPLETED"] * 3
    assert after[0].start_s <= done.start_s <= after[1].start_s <= after[2].start_s


def test_job_starts_on_exactly_the_nodes_of_its_place_with_its_image(site: OutriderSite) -> None:
    image = site.image("inturn.qcow2", 6 * MB)
    holder = site.submit(until_told(site, "held"), "-N3", "-wn1,n2,n3", "--exclusive", "-t10")
    wait_for(site, holder, "RUNNING")
    job = site.submit(script(image), "-N2", "--exclusive", "-t5")
    wait_said(site, job, "it is planned to start about")
    site.cluster.wait_for("its image", lambda: len(site.arrived_s(image)) == 2, logs=site.logs)
    before = seen(site, job).state
    there = set(site.arrived_s(image))
    let_end(site, "held")
    done = ended(site, job)

    assert before == "PENDING"
    assert done.state == "COMPLETED", output(site, job)
    assert {line.split()[0] for line in output(site, job).splitlines()[1:]} == there


def test_jobs_go_round_a_reservation(site: OutriderSite) -> None:
    workspace(site, "round", 5 * MB)
    answers = list[dict[str, object]]()

    def is_accepted() -> bool:
        answers.append(reserve(site, "round", "--nodes=3", "--start=now+90s", "-t10s"))
        return answers[-1]["result"] == "accepted"

    site.cluster.wait_for("the jobs of other tests to be gone", is_accepted, logs=lambda: str(answers[-1]))
    answer = answers[-1]
    start_s = answer["start_s"]
    long = site.submit(NOTHING, "-N1", "--exclusive", "-t60")
    wide = site.submit(NOTHING, "-N4", "--exclusive", "-t60")
    alone = ended(site, long)
    waits = seen(site, wide)
    site.cluster.run(HEAD, ["scancel", wide], user="ada")
    site.outrider("cancel", str(answer["name"]))

    assert isinstance(start_s, int)
    assert alone.state == "COMPLETED"
    assert alone.nodes not in str(answer["nodes"])
    assert waits.state == "PENDING"


def test_job_that_depends_on_another_keeps_nobody_waiting(site: OutriderSite) -> None:
    first = site.submit(until_told(site, "needed"), "-N2", "--exclusive", "-t10")
    wait_for(site, first, "RUNNING")
    bound = site.submit(NOTHING, "-N4", "--exclusive", "-t5", f"--dependency=afterok:{first}")
    wait_said(site, bound, "it waits for other jobs")
    other = ended(site, site.submit(NOTHING, "-N2", "--exclusive", "-t60"))
    let_end(site, "needed")
    after = [ended(site, job) for job in (first, bound)]

    assert other.state == "COMPLETED"
    assert [each.state for each in after] == ["COMPLETED"] * 2


def test_nothing_starts_while_the_service_is_away_and_what_runs_goes_on(site: OutriderSite) -> None:
    first = site.submit(until_told(site, "away"), "-N4", "--exclusive", "-t10")
    wait_for(site, first, "RUNNING")
    second = site.submit(NOTHING, "-N4", "--exclusive", "-t5")
    wait_said(site, second, "it is planned to start about")
    kill_service(site)
    let_end(site, "away")
    done = ended(site, first)
    late = site.submit(NOTHING, "-N1", "-t5")
    time.sleep(5)
    waiting = [seen(site, job).state for job in (second, late)]
    site.start_service()
    after = [ended(site, job) for job in (second, late)]

    assert done.state == "COMPLETED"
    assert waiting == ["PENDING", "PENDING"]
    assert [each.state for each in after] == ["COMPLETED"] * 2


@pytest.mark.parametrize("is_away", [False, True], ids=["alive", "away"])
def test_queues_are_handed_back_and_taken_over(site: OutriderSite, *, is_away: bool) -> None:
    first = site.submit(until_told(site, "back"), "-N4", "--exclusive", "-t10")
    wait_for(site, first, "RUNNING")
    waiting = site.submit(NOTHING, "-N4", "--exclusive", "-t5")
    wait_said(site, waiting, "it is planned to start about")
    if is_away:
        kill_service(site)
    told = queues(site, "hand-back")
    let_end(site, "back")
    done = ended(site, waiting)
    later = ended(site, site.submit(NOTHING, "-N4", "--exclusive", "-t5"))
    if is_away:
        site.start_service()
    queues(site, "take-over")
    again = site.submit(until_told(site, "again"), "-N4", "--exclusive", "-t10")
    held = wait_for(site, again, "RUNNING")
    let_end(site, "again")
    ended(site, again)

    # A service that lives may have released it first.
    assert "main: handed back; " in told
    assert not is_away or "; 1 jobs are released" in told
    assert done.state == "COMPLETED"
    assert '"outrider"' not in later.admin_comment
    assert later.state == "COMPLETED"
    assert '"outrider"' in held.admin_comment
