"""Nodes that reboot, lose their slurmd or their link: no job runs without its image, and none is lost."""

from __future__ import annotations

import pytest

from testbed.site import POOL, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, wait_reservation, workspace
from tests.daemons.slurm.service.failing import (
    MB,
    fill,
    hold_back,
    let_go,
    wait_arriving,
    wait_released,
    wait_shown,
)
from tests.daemons.slurm.service.jobs import (
    arrived_s,
    ended,
    in_slurm,
    instances,
    output,
    script,
    seen,
    wait_for,
    wait_in_slurm,
)

REBOOT_S = 120


def test_image_arrives_after_all_on_a_node_that_reboots_meanwhile(site: OutriderSite) -> None:
    image = site.image("reboots.qcow2", 20 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn1")
    wait_arriving(site, image)

    site.cluster.reboot("n1")
    let_go(site, image)
    found = ended(site, job, REBOOT_S)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n1"] <= found.start_s


@pytest.mark.long
def test_job_on_a_node_that_reboots_runs_again_with_a_fresh_disk(site: OutriderSite) -> None:
    image = site.image("twice.qcow2", 5 * MB)
    more = 'test "${SLURM_RESTART_COUNT:-0}" != 0 || sleep 300'
    job = site.submit(script(image, more), "-t10", "-wn2", "--requeue")
    site.cluster.wait_for("its first start", lambda: "QFI" in _said(site, job), logs=site.logs)

    site.cluster.power_off("n2")
    site.cluster.run(HEAD, ["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=off"])
    wait_for(site, job, "PENDING")
    site.cluster.power_on("n2")
    site.cluster.run(HEAD, ["scontrol", "update", "NodeName=n2", "State=RESUME"], check=False)
    found = ended(site, job, REBOOT_S)

    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)


def test_job_whose_slurmd_dies_leaves_no_instance_when_its_node_is_back(site: OutriderSite) -> None:
    image = site.image("noepilog.qcow2", 5 * MB)
    job = site.submit(script(image, "sleep 300"), "-t10", "-wn3", "--no-requeue")
    site.cluster.wait_for("its start", lambda: "QFI" in _said(site, job), logs=site.logs)

    site.cluster.kill_slurmd("n3")
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    site.cluster.power_off("n3")
    site.cluster.power_on("n3")

    assert ended(site, job, REBOOT_S).state in ("CANCELLED", "NODE_FAIL")
    site.cluster.wait_for("no instance", lambda: instances(site, "n3") == [], logs=site.logs)


@pytest.mark.long
def test_transfer_over_a_cut_link_goes_on_when_the_link_is_mended(site: OutriderSite) -> None:
    image = site.image("cut.qcow2", 20 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn4")
    wait_arriving(site, image)

    site.cluster.cut("n4")
    wait_shown(site, job, "does not reach n4")
    state = seen(site, job).state
    let_go(site, image)
    site.cluster.mend("n4")
    found = ended(site, job, REBOOT_S)

    assert state == "PENDING"
    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n4"] <= found.start_s


def test_image_that_vanishes_between_release_and_start_is_brought_again(site: OutriderSite) -> None:
    image = site.image("removed.qcow2", 5 * MB)
    filled = fill(site, "n1")
    job = site.submit(script(image), "-t1", "-wn1")
    wait_released(site, job)
    before_s = arrived_s(site, image)["n1"]

    folder = f"{POOL}/images/{image.digest.removeprefix('sha256:')}"
    site.cluster.run("n1", ["/bin/sh", "-c", f"chmod -R u+w {folder} && rm -r {folder}"])
    site.cluster.wait_for("the image", lambda: arrived_s(site, image).get("n1", 0) > before_s, logs=site.logs)
    site.cluster.run(HEAD, ["scancel", filled], user="ada")
    found = ended(site, job, REBOOT_S)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n1"] <= found.start_s
    assert "QFI" in output(site, job)


@pytest.mark.long
def test_reservation_survives_a_reboot_of_its_node(site: OutriderSite) -> None:
    image = workspace(site, "reborn", 10 * MB)
    answer = reserve(site, "reborn", "--start=now+40s", "-t60s")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)

    site.cluster.reboot(node)
    job = site.submit(script(None), "-t1", f"--reservation={name}")
    found = ended(site, job, REBOOT_S)

    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)
    assert arrived_s(site, image)[found.nodes] <= found.start_s
    site.outrider("cancel", name, check=False)
    wait_reservation(site, name, "cancelled", "ended")


def test_reservation_moves_from_a_node_that_is_off_and_its_job_runs_elsewhere(site: OutriderSite) -> None:
    workspace(site, "leaves-off", 5 * MB)
    answer = reserve(site, "leaves-off", "--start=now+1hour", "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)

    site.cluster.power_off(node)
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=off"])
    site.cluster.wait_for("other nodes", lambda: in_slurm(site)[name]["Nodes"] != node, logs=site.logs)

    site.cluster.power_on(node)
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
    assert in_slurm(site)[name]["Users"] == "ada"
    site.outrider("cancel", name)


def _said(site: OutriderSite, job: str) -> str:
    """A job's output so far."""
    done = site.cluster.run(HEAD, ["cat", f"{site.home()}/slurm-{job}.out"], check=False)
    return done.stdout


def test_job_waits_for_another_node_while_its_own_is_drained(site: OutriderSite) -> None:
    image = site.image("drains.qcow2", 5 * MB)
    filled = [fill(site, node) for node in site.cluster.nodes]
    job = site.submit(script(image), "-t1")
    wait_released(site, job)
    node = next(iter(arrived_s(site, image)))

    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=broken"])
    for each in filled:
        site.cluster.run(HEAD, ["scancel", each], user="ada")
    found = ended(site, job, REBOOT_S)
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"])

    assert found.state == "COMPLETED", output(site, job)
    assert found.nodes != node
    assert arrived_s(site, image)[found.nodes] <= found.start_s
    wait_for(site, job, "COMPLETED")
