"""Daemons that die, restart or do not answer: jobs wait a little longer, and still find their images."""

from __future__ import annotations

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.slurm.failing import (
    MB,
    fill,
    kill_node,
    kill_service,
    long,
    wait_arriving,
    wait_released,
    wait_saved,
    wait_shown,
)
from tests.slurm.jobs import arrived_s, ended, in_slurm, instances, output, script, seen, wait_for
from tests.slurm.test_reservations import reserve, state, wait_in_slurm, workspace


def test_slurmctld_that_restarts_forgets_no_job_and_no_ticket(site: OutriderSite) -> None:
    slow, here = site.image("slow.qcow2", 90 * MB), site.image("here.qcow2", 5 * MB)
    filled = fill(site, "n1")
    released = site.submit(script(here), "-t1", "-wn1")
    wait_released(site, released)
    held = site.submit(script(slow), "-t1", "-wn2")
    wait_arriving(site, slow)

    wait_saved(site, slow, here)
    site.cluster.kill_slurmctld()
    site.cluster.start_slurmctld()
    site.cluster.reconfigure()
    waits = [seen(site, job).state for job in (released, held)]
    site.cluster.run(HEAD, ["scancel", filled], user="ada")

    assert waits == ["PENDING", "PENDING"]
    for job, image in ((released, here), (held, slow)):
        found = ended(site, job)
        assert found.state == "COMPLETED", output(site, job)
        assert arrived_s(site, image)[found.nodes] <= found.start_s
        assert "QFI" in output(site, job)


@long
def test_image_arrives_while_slurmctld_is_away_and_the_job_starts_when_it_is_back(site: OutriderSite) -> None:
    image = site.image("away.qcow2", 40 * MB)
    job = site.submit(script(image), "-t1", "-wn3")
    wait_arriving(site, image)

    site.cluster.kill_slurmctld("TERM")
    site.cluster.wait_for("the image", lambda: "n3" in arrived_s(site, image), logs=site.logs)
    site.cluster.start_slurmctld()
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n3"] <= found.start_s


def test_reservation_made_while_slurmctld_is_away_is_there_when_it_is_back(site: OutriderSite) -> None:
    workspace(site, "unseen", 5 * MB)
    site.cluster.kill_slurmctld()

    answer = reserve(site, "unseen", "--start=now+1hour", "-t10m")
    site.cluster.start_slurmctld()
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)

    assert in_slurm(site)[name]["Users"] == "ada"
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


def test_transfer_goes_on_where_it_was_when_a_nodes_daemon_is_killed(site: OutriderSite) -> None:
    image = site.image("killed.qcow2", 90 * MB)
    job = site.submit(script(image), "-t1", "-wn1")
    wait_arriving(site, image)

    kill_node(site, "n1")
    wait_shown(site, job, "does not reach n1")
    state_before = seen(site, job).state
    site.start_node("n1")
    found = ended(site, job, timeout_s=90)

    assert state_before == "PENDING"
    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n1"] <= found.start_s


def test_job_whose_nodes_daemon_is_dead_at_its_start_is_told_so_and_drains_nothing(
    site: OutriderSite,
) -> None:
    image = site.image("dead.qcow2", 5 * MB)
    filled = fill(site, "n2")
    job = site.submit(script(image), "-t1", "-wn2")
    wait_released(site, job)

    kill_node(site, "n2")
    site.cluster.run(HEAD, ["scancel", filled], user="ada")
    said = ""

    def has_run_or_waits() -> bool:
        nonlocal said
        found = seen(site, job)
        said = output(site, job) if found.state == "FAILED" else ""
        return found.state == "FAILED" or "not" in found.admin_comment

    site.cluster.wait_for("the job's user to be told", has_run_or_waits, logs=site.logs)
    failed = seen(site, job).state == "FAILED"
    site.start_node("n2")

    if failed:
        assert "outrider: the image is not ready on node n2" in said
    else:
        assert ended(site, job, timeout_s=90).state == "COMPLETED"
    assert not site.cluster.node_states()["n2"].startswith("drain")


def test_running_job_keeps_its_disk_when_its_nodes_daemon_is_killed(site: OutriderSite) -> None:
    image = site.image("keeps.qcow2", 5 * MB)
    again = "sleep 8; srun --quiet sh -c 'head -c3 \"$OUTRIDER_IMAGE\"'"
    job = site.submit(script(image, again), "-t1", "-wn3")
    wait_for(site, job, "RUNNING")

    kill_node(site, "n3")
    site.start_node("n3")

    assert ended(site, job).state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") == 2


@long
def test_job_that_ends_while_its_nodes_daemon_is_dead_leaves_nothing_there(site: OutriderSite) -> None:
    image = site.image("leaves.qcow2", 5 * MB)
    job = site.submit(script(image, "sleep 600"), "-t10", "-wn4")
    wait_for(site, job, "RUNNING")
    site.cluster.wait_for("its output", lambda: "QFI" in output(site, job), logs=site.logs)

    kill_node(site, "n4")
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    found = ended(site, job)
    site.start_node("n4")

    site.cluster.wait_for("no instance", lambda: instances(site, "n4") == [], logs=site.logs)
    assert found.state == "CANCELLED"


def test_killed_service_finds_held_jobs_arriving_images_and_reservations_again(site: OutriderSite) -> None:
    slow, here = site.image("slow2.qcow2", 90 * MB), site.image("here2.qcow2", 5 * MB)
    workspace(site, "kept2", 5 * MB)
    name = str(reserve(site, "kept2", "--start=now+1hour", "-t10m")["name"])
    filled = fill(site, "n1")
    released = site.submit(script(here), "-t1", "-wn1")
    wait_released(site, released)
    held = site.submit(script(slow), "-t1", "-wn2")
    wait_arriving(site, slow)

    kill_service(site)
    unseen = site.submit(script(here), "-t1")
    site.cluster.run(HEAD, ["scancel", filled], user="ada")
    first = ended(site, released)
    states = [seen(site, job).state for job in (held, unseen)]
    site.start_service()

    assert states == ["PENDING", "PENDING"]
    assert first.state == "COMPLETED", output(site, released)
    for job, image in ((held, slow), (unseen, here)):
        found = ended(site, job)
        assert found.state == "COMPLETED", output(site, job)
        assert arrived_s(site, image)[found.nodes] <= found.start_s
    assert state(site, name) in ("accepted", "preparing", "ready")
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)
