"""Images that cannot be had: their users are told why, and whoever has named a good one is not kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.failing import (
    MB,
    hold_back,
    let_go,
    start_images,
    stop_images,
    told,
    wait_arriving,
    wait_released,
    wait_shown,
    wait_told,
)
from tests.daemons.slurm.service.jobs import arrived_s, ended, output, script, seen

NOT_HERE = "#!/bin/sh\n#OUTRIDER image: http://images:8000/{name}\ntrue\n"


def test_who_names_what_is_not_there_is_told_so_and_others_are_not_kept(site: OutriderSite) -> None:
    right, large = site.image("right.qcow2", 5 * MB), site.image("larger.qcow2", 220 * MB)
    wrong = replace(site.image("wrong.qcow2", 5 * MB), digest=f"sha256:{'a' * 64}")
    mistaken = site.submit(script(wrong), "-t1")
    lost = site.submit(NOT_HERE.format(name="none.qcow2"), "-t1")
    unsaid = site.submit(NOT_HERE.format(name="right.qcow2"), "-t1")
    unfit = site.submit(script(large), "-t1")

    good = site.submit(script(right), "-t1")

    assert ended(site, good).state == "COMPLETED"
    assert "404" in wait_told(site, lost, "it stays held")
    assert "digest" in wait_told(site, unsaid, "it stays held")
    assert "at most 200.0 MiB are staged here" in wait_told(site, unfit, "it stays held")
    assert "correct the digest" in wait_told(site, mistaken, "it stays held")
    for job in (mistaken, lost, unsaid, unfit):
        assert seen(site, job).state == "PENDING"
        site.cluster.run(HEAD, ["scancel", job], user="ada")
    assert arrived_s(site, wrong) == {}


def test_transfer_goes_on_when_the_server_of_images_is_back(site: OutriderSite) -> None:
    image = site.image("midway.qcow2", 20 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1")
    wait_arriving(site, image)

    stop_images(site)
    wait_shown(site, job, "nothing comes to")
    state = seen(site, job).state
    let_go(site, image)
    start_images(site)
    found = ended(site, job, timeout_s=150)

    assert state == "PENDING"
    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)[found.nodes] <= found.start_s


@pytest.mark.long
def test_job_runs_when_a_server_is_there_that_was_away_for_long(site: OutriderSite) -> None:
    image = site.image("before.qcow2", 5 * MB)
    stop_images(site)

    job = site.submit(script(image), "-t1")
    wait_told(site, job, "it stays held")
    start_images(site)

    assert ended(site, job, timeout_s=150).state == "COMPLETED"


@pytest.mark.repeats("tests/unit/service/desk/jobs/test_leading_jobs.py::test_job_goes_round_full_pools")
def test_job_waits_while_pools_are_full_of_what_others_wait_for(site: OutriderSite) -> None:
    large, other = site.image("fills.qcow2", 150 * MB), site.image("no-place.qcow2", 80 * MB)
    keeper = site.submit(script(large, "sleep 600"), "-t10", "-wn1", "-Jfill")
    wait_released(site, keeper)

    late = site.submit(script(other), "-t1", "-wn1")
    wait_told(site, late, "no-place.qcow2 waits")
    state = seen(site, late).state
    site.cluster.run(HEAD, ["scancel", keeper], user="ada")
    found = ended(site, late, timeout_s=90)

    assert state == "PENDING"
    assert found.state == "COMPLETED", told(site, late)
    assert arrived_s(site, other)["n1"] <= found.start_s
    assert "n1" not in arrived_s(site, large)


@pytest.mark.long
def test_image_that_is_put_there_later_is_found(site: OutriderSite) -> None:
    image = site.image("later.qcow2", 5 * MB)
    folder = "/srv/images"
    site.cluster.run("images", ["mv", f"{folder}/later.qcow2", f"{folder}/hidden"])
    job = site.submit(script(image), "-t1")
    wait_told(site, job, "404")

    site.cluster.run("images", ["mv", f"{folder}/hidden", f"{folder}/later.qcow2"])

    assert ended(site, job, timeout_s=150).state == "COMPLETED"
