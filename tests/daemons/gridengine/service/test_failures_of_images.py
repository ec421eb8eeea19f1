"""Images that cannot be had: their users are told why, and whoever has named a good one is not kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.batchcluster import IMAGES
from testbed.clustersite import CACHEMGR, ServedImage
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    output,
    report,
    start_s,
    submit,
    told,
    wait_arriving,
    wait_output,
    wait_released,
    wait_shown,
    wait_told,
)


@pytest.mark.long
def test_who_names_what_is_not_there_is_told_so_and_others_are_not_kept(site: GridEngineSite) -> None:
    right, large = site.image("right.qcow2", 5 * MB), site.image("larger.qcow2", 220 * MB)
    wrong = replace(site.image("wrong.qcow2", 5 * MB), digest=f"sha256:{'a' * 64}")
    none = ServedImage(name="none", uri="http://images:8000/none.qcow2", digest=wrong.digest, size_bytes=1)
    mistaken, lost, unfit = (submit(site, each) for each in (wrong, none, large))

    good = submit(site, right)

    assert ended(site, good)["exit_status"] == "0", report(site, good)
    assert "404" in wait_told(site, lost, "it stays held")
    assert "at most 200.0 MiB are staged here" in wait_told(site, unfit, "it stays held")
    assert "correct the digest" in wait_told(site, mistaken, "it stays held")
    assert [site.cluster.job_state(job) for job in (mistaken, lost, unfit)] == ["hqw"] * 3
    assert site.arrived_s(wrong) == {}
    cancel(site, mistaken, lost, unfit)


def test_transfer_goes_on_when_the_server_of_images_is_back(site: GridEngineSite) -> None:
    image = site.image("midway.qcow2", 20 * MB)
    site.hold_back(image)
    job = submit(site, image)
    wait_arriving(site, image)

    site.cluster.kill(IMAGES, "images")
    wait_shown(site, job, "nothing comes to")
    state = site.cluster.job_state(job)
    site.let_go(image)
    site.start_images()
    end = ended(site, job, timeout_s=150)

    assert state == "hqw"
    assert "QFI" in output(site, job), report(site, job)
    assert site.arrived_s(image)[end["hostname"]] <= start_s(end)


@pytest.mark.long
def test_job_waits_while_pools_are_full_of_what_others_wait_for(site: GridEngineSite) -> None:
    large, other = site.image("fills.qcow2", 150 * MB), site.image("no-place.qcow2", 80 * MB)
    keeper = submit(site, large, "-q", "all.q@n1", more="sleep 600")
    wait_output(site, keeper, timeout_s=90)

    late = submit(site, other, "-q", "all.q@n1")
    wait_told(site, late, "no-place.qcow2 waits")
    state = site.cluster.job_state(late)
    cancel(site, keeper)
    end = ended(site, late, timeout_s=90)

    assert state == "hqw"
    assert end["exit_status"] == "0", told(site, late)
    assert site.arrived_s(other)["n1"] <= start_s(end)
    assert "n1" not in site.arrived_s(large)


def test_image_removed_just_before_the_start_is_brought_again_and_no_queue_is_in_error(
    site: GridEngineSite,
) -> None:
    image = site.image("evicted.qcow2", 5 * MB)
    jobs = [submit(site, None, "-q", "all.q@n3", "-N", "fill", more="sleep 600") for _ in range(4)]
    site.cluster.wait_for("a full node", lambda: len(site.cluster.jobs_on()["n3"]) == 4, logs=site.logs)
    job = submit(site, image, "-q", "all.q@n3")
    wait_released(site, job)

    site.cluster.run("n3", [CACHEMGR, "unpin", image.digest, "--owner", f"reservation:job-{job}"])
    site.cluster.run("n3", [CACHEMGR, "evict", image.digest], check=False)
    cancel(site, *jobs)
    end = ended(site, job, timeout_s=150)

    assert end["exit_status"] == "0", report(site, job)
    assert "QFI" in output(site, job)
