"""Daemons that die, ours and Grid Engine's: jobs wait a little longer, and still find their images."""

from __future__ import annotations

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import NODE_DAEMON, SERVICE
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    fill,
    output,
    report,
    start_s,
    submit,
    wait_advance,
    wait_arriving,
    wait_output,
    wait_released,
    wait_shown,
)
from tests.daemons.reservations import reserve, state, workspace


@pytest.mark.long
def test_transfer_goes_on_where_it_was_when_a_nodes_daemon_is_killed(site: GridEngineSite) -> None:
    image = site.image("killed.qcow2", 40 * MB)
    site.hold_back(image)
    job = submit(site, image, "-q", "all.q@n1")
    wait_arriving(site, image)

    site.cluster.kill("n1", NODE_DAEMON)
    wait_shown(site, job, "does not reach n1")
    before = site.cluster.job_state(job)
    site.let_go(image)
    site.start_node("n1")
    end = ended(site, job, timeout_s=120)

    assert before == "hqw"
    assert end["exit_status"] == "0", report(site, job)
    assert site.arrived_s(image)["n1"] <= start_s(end)
    assert "transfer resumed" in site.cluster.log("n1", NODE_DAEMON)


def test_job_whose_nodes_daemon_is_dead_at_its_start_puts_no_queue_in_error(site: GridEngineSite) -> None:
    image = site.image("dead.qcow2", 5 * MB)
    filled = fill(site, "n2")
    job = submit(site, image, "-q", "all.q@n2")
    wait_released(site, job)

    site.cluster.kill("n2", NODE_DAEMON)
    cancel(site, filled)
    site.cluster.wait_for(
        "the job to be stopped",
        lambda: (
            any(letter in site.cluster.job_state(job) for letter in ("h", "E")) or bool(output(site, job))
        ),
        logs=lambda: report(site, job),
    )
    states = site.cluster.queue_states()
    site.start_node("n2")
    site.cluster.run(HEAD, ["qmod", "-cj", job], check=False)
    end = ended(site, job, timeout_s=120)

    assert not any("E" in each for each in states.values())
    assert end["exit_status"] == "0", report(site, job)
    assert "QFI" in output(site, job)


def test_killed_service_finds_held_jobs_arriving_images_and_reservations_again(site: GridEngineSite) -> None:
    slow, here = site.image("slow2.qcow2", 10 * MB), site.image("here2.qcow2", 5 * MB)
    site.hold_back(slow)
    workspace(site, "kept2", 5 * MB)
    name = str(reserve(site, "kept2", "--start=now+1hour", "-t10m")["name"])
    wait_advance(site, name)
    filled = fill(site, "n1")
    released = submit(site, here, "-q", "all.q@n1")
    wait_released(site, released)
    held = submit(site, slow, "-q", "all.q@n2")
    wait_arriving(site, slow)

    site.cluster.kill(HEAD, SERVICE)
    unseen = submit(site, here)
    cancel(site, filled)
    first = ended(site, released)
    states = [site.cluster.job_state(job) for job in (held, unseen)]
    site.let_go(slow)
    site.start_service()

    assert states == ["hqw", "hqw"]
    assert first["exit_status"] == "0", report(site, released)
    for job, image in ((held, slow), (unseen, here)):
        end = ended(site, job, timeout_s=120)
        assert end["exit_status"] == "0", report(site, job)
        assert site.arrived_s(image)[end["hostname"]] <= start_s(end)
    assert state(site, name) in ("accepted", "preparing", "ready")
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_job_and_reservation_outlive_a_restart_of_the_qmaster(site: GridEngineSite) -> None:
    image = site.image("master.qcow2", 20 * MB)
    workspace(site, "outlives", 5 * MB)
    site.hold_back(image)
    name = str(reserve(site, "outlives", "--start=now+1hour", "-t10m")["name"])
    number = wait_advance(site, name)
    job = submit(site, image, "-q", "all.q@n3")
    wait_arriving(site, image)

    site.cluster.kill_qmaster("TERM")
    site.let_go(image)
    site.cluster.wait_for("the image", lambda: "n3" in site.arrived_s(image), logs=site.logs)
    site.cluster.start_qmaster()
    site.cluster.restart_execds()
    end = ended(site, job, timeout_s=120)

    assert end["exit_status"] == "0", report(site, job)
    assert site.arrived_s(image)["n3"] <= start_s(end)
    assert wait_advance(site, name) == number
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_failures_of_slurmctld.py"
    "::test_reservation_made_while_slurmctld_is_away_is_there_when_it_is_back"
)
def test_reservation_made_while_the_qmaster_is_away_is_made_in_grid_engine_later(
    site: GridEngineSite,
) -> None:
    workspace(site, "later", 5 * MB)
    site.cluster.kill_qmaster("TERM")

    name = str(reserve(site, "later", "--start=now+1hour", "-t10m")["name"])
    site.cluster.start_qmaster()
    site.cluster.restart_execds()

    assert wait_advance(site, name)
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_instance_of_a_job_that_ends_while_its_execd_is_dead_is_taken_away(site: GridEngineSite) -> None:
    image = site.image("execd.qcow2", 5 * MB)
    job = submit(site, image, "-q", "all.q@n4", more="while [ ! -e go-on ]; do sleep 0.1; done")
    wait_output(site, job)

    site.cluster.kill_execd("n4")
    site.cluster.run(HEAD, ["touch", "go-on"], user="ada")
    site.cluster.wait_for(
        "the shepherd's end", lambda: "sge_shepherd" not in site.cluster.programs("n4"), logs=site.logs
    )
    site.cluster.start_execd("n4")
    end = ended(site, job, timeout_s=120)
    site.cluster.run(HEAD, ["rm", "go-on"], user="ada")

    assert end["exit_status"] == "0"
    assert site.instances("n4") == []


def test_running_job_keeps_its_disk_when_its_nodes_daemon_is_killed(site: GridEngineSite) -> None:
    image = site.image("keeps.qcow2", 5 * MB)
    again = 'while [ ! -e go-on ]; do sleep 0.1; done; rm go-on; head -c3 "$OUTRIDER_IMAGE"'
    job = submit(site, image, "-q", "all.q@n3", more=again)
    wait_output(site, job)

    site.cluster.kill("n3", NODE_DAEMON)
    site.start_node("n3")
    site.cluster.run(HEAD, ["touch", "go-on"], user="ada")
    end = ended(site, job)

    assert end["exit_status"] == "0"
    assert output(site, job).count("QFI") == 2


def test_rebooted_node_runs_its_job_again_with_a_fresh_copy(site: GridEngineSite) -> None:
    image = site.image("power.qcow2", 5 * MB)
    job = submit(site, image, "-r", "y", "-q", "all.q@n2", more='[ "$RESTARTED" != 0 ] || sleep 600')
    wait_output(site, job)

    site.cluster.reboot("n2")
    end = ended(site, job, timeout_s=180)

    assert end["exit_status"] == "0", report(site, job)
    assert output(site, job).count("QFI") == 2
