"""What users and administrators do to jobs and reservations behind the service's back."""

from __future__ import annotations

import pytest

from testbed.commands import CommandFailed
from testbed.site import CACHEMGR, CONFIGURATION, PROGRAMS, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, wait_reservation, workspace
from tests.daemons.slurm.service.failing import (
    MB,
    fill,
    hold_back,
    kill_service,
    let_go,
    wait_arriving,
    wait_released,
    wait_told,
)
from tests.daemons.slurm.service.jobs import (
    arrived_s,
    ended,
    in_slurm,
    instances,
    output,
    pins,
    script,
    seen,
    wait_for,
    wait_in_slurm,
)


def test_job_cancelled_at_any_stage_leaves_nothing_behind(site: OutriderSite) -> None:
    slow, here = site.image("stage-slow.qcow2", 10 * MB), site.image("stage-here.qcow2", 5 * MB)
    hold_back(site, slow)
    running = site.submit(script(here, "sleep 600"), "-t10", "-wn2")
    site.cluster.wait_for("its disk", lambda: instances(site, "n2") == [f"job-{running}"], logs=site.logs)
    filled = fill(site, "n1")
    released = site.submit(script(here), "-t1", "-wn1")
    wait_released(site, released)
    arriving = site.submit(script(slow), "-t1", "-wn3")
    wait_arriving(site, slow)
    held = site.submit(script(site.image("stage-held.qcow2", 5 * MB)), "-t1")

    for job in (held, arriving, released, running, filled):
        site.cluster.run(HEAD, ["scancel", job], user="ada")

    let_go(site, slow)
    for job in (held, arriving, released, running):
        assert ended(site, job).state == "CANCELLED"
    site.cluster.wait_for("no instance", lambda: instances(site, "n2") == [], logs=site.logs)
    site.cluster.wait_for(
        "no pin", lambda: not any(pins(site, node) for node in site.cluster.nodes), logs=site.logs
    )


@pytest.mark.parametrize("change", ["StartTime=now", "ReservationName=", "AdminComment=x"])
def test_user_cannot_free_a_job_that_waits_for_its_image(site: OutriderSite, change: str) -> None:
    image = site.image(f"free-{change[:4]}.qcow2", 5 * MB)
    job = site.submit(script(image), "-t1", "-wn4", "--begin=now+1hour")

    with pytest.raises(CommandFailed):
        site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", change], user="ada")

    assert seen(site, job).state == "PENDING"
    site.cluster.run(HEAD, ["scancel", job], user="ada")


def test_what_a_user_may_change_is_followed(site: OutriderSite) -> None:
    image = site.image("longer.qcow2", 10 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn1")
    wait_arriving(site, image)

    site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", "TimeLimit=2"], user="ada")
    # While the service shows when it expects the start, the hold is the service's own.
    site.cluster.wait_for("the estimate", lambda: not may_hold(site, job), logs=site.logs)
    let_go(site, image)
    site.cluster.wait_for("the image", lambda: "n1" in arrived_s(site, image), logs=site.logs)

    assert ended(site, job).state == "COMPLETED", output(site, job)


def may_hold(site: OutriderSite, job: str) -> bool:
    """Whether its user may hold a job; it is released again."""
    if site.cluster.run(HEAD, ["scontrol", "hold", job], user="ada", check=False).returncode != 0:
        return False
    site.cluster.run(HEAD, ["scontrol", "release", job], user="ada")
    return True


def test_job_that_root_releases_too_early_waits_or_is_told_and_drains_nothing(site: OutriderSite) -> None:
    image = site.image("early.qcow2", 10 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn2")
    wait_arriving(site, image)

    site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", "StartTime=now"])
    let_go(site, image)
    found = ended(site, job, timeout_s=120)

    if found.state == "COMPLETED":
        assert "QFI" in output(site, job)
        assert arrived_s(site, image)["n2"] <= found.start_s
    else:
        assert "outrider: the image is not ready on node n2" in output(site, job)


@pytest.mark.parametrize("nodes", [1, 2])
def test_job_that_root_lets_go_before_the_service_has_seen_it_goes_back_and_starts_with_its_image(
    site: OutriderSite, nodes: int
) -> None:
    image = site.image(f"unseen-{nodes}.qcow2", 5 * MB)
    kill_service(site)
    job = site.submit(script(image), "-t1", f"-N{nodes}")
    site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", "StartTime=now"])
    wait_told(site, job, "it went back to the queue, since n")
    back = wait_for(site, job, "PENDING")
    sound = site.cluster.run(HEAD, ["sinfo", "-h", "-o", "%T"]).stdout.split()
    site.start_service()
    found = ended(site, job)

    assert back.nodes == ""
    assert "somebody let the job start before its image was here" in back.admin_comment
    assert not {"drained", "draining", "down"} & set(sound)
    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") == nodes


def test_job_whose_image_root_removes_just_before_its_start_is_told_so(site: OutriderSite) -> None:
    image = site.image("evicted.qcow2", 5 * MB)
    filled = fill(site, "n3")
    job = site.submit(script(image), "-t1", "-wn3")
    wait_released(site, job)

    owner = f"reservation:job-{job}"
    site.cluster.run("n3", [CACHEMGR, "unpin", image.digest, "--owner", owner])
    site.cluster.run("n3", [CACHEMGR, "evict", image.digest], check=False)
    site.cluster.run(HEAD, ["scancel", filled], user="ada")
    found = ended(site, job, timeout_s=120)

    # The service may have noticed before.
    expected = "QFI" if found.state == "COMPLETED" else "outrider: the image is not ready on node n3"
    assert expected in output(site, job)


def test_two_jobs_of_one_image_on_one_node_end_each_by_itself(site: OutriderSite) -> None:
    image = site.image("both.qcow2", 5 * MB)
    first = site.submit(script(image, "sleep 600"), "-t10", "-wn4", "-n1")
    second = site.submit(script(image, "sleep 4"), "-t10", "-wn4", "-n1")
    site.cluster.wait_for("both disks", lambda: len(instances(site, "n4")) == 2, logs=site.logs)

    site.cluster.run(HEAD, ["scancel", first], user="ada")
    found = ended(site, second)

    assert found.state == "COMPLETED", output(site, second)
    assert "QFI" in output(site, second)
    assert ended(site, first).state == "CANCELLED"


def test_reservation_that_root_moves_in_slurm_is_put_right(site: OutriderSite) -> None:
    workspace(site, "pushed", 5 * MB)
    answer = reserve(site, "pushed", "--start=now+1hour", "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)
    other = next(each for each in site.cluster.nodes if each != node)

    site.cluster.run(HEAD, ["scontrol", "update", f"ReservationName={name}", f"Nodes={other}"])
    site.cluster.wait_for("its own node", lambda: in_slurm(site)[name]["Nodes"] == node, logs=site.logs)

    assert in_slurm(site)[name]["Users"] == "ada"
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


@pytest.mark.repeats(
    "tests/daemons/gridengine/service/test_failures_of_daemons.py"
    "::test_job_whose_nodes_daemon_is_dead_at_its_start_puts_no_queue_in_error"
)
def test_job_in_a_reservation_whose_nodes_daemon_is_dead_waits_and_is_told(site: OutriderSite) -> None:
    workspace(site, "silent", 5 * MB)
    answer = reserve(site, "silent", "--start=now+12s", "-t5m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), "-t1", f"--reservation={name}")
    wait_reservation(site, name, "ready")

    site.cluster.kill(node, "cachemgr")
    said = wait_told(site, job, "it went back to the queue")
    site.start_node(node)
    found = ended(site, job)

    assert f"since {node} could not give it its image: no daemon answers" in said
    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)
    site.outrider("cancel", name, check=False)
    wait_reservation(site, name, "cancelled", "ended")


def test_second_service_on_the_same_head_does_not_start(site: OutriderSite) -> None:
    argv = ["timeout", "20", "python3", "-m", "outrider.service", "--config", CONFIGURATION]
    done = site.cluster.run(HEAD, argv, environment={"PYTHONPATH": PROGRAMS}, check=False)

    assert done.returncode not in (0, 124)
    assert "outriderd" in done.stderr
    assert site.is_promising()


@pytest.mark.parametrize("is_service_there", [True, False])
def test_job_with_an_image_that_root_moves_into_a_foreign_reservation_is_held_and_told(
    site: OutriderSite, is_service_there: bool
) -> None:
    image = site.image(f"moved-{is_service_there}.qcow2", 5 * MB)
    theirs = f"night-{1 + is_service_there}"
    argv = ["StartTime=now", "Duration=60", "Nodes=n3", "Users=ada"]
    for name in ("night", theirs):
        given = [f"ReservationName={name}", *argv, "Flags=IGNORE_JOBS,OVERLAP"]
        site.cluster.run(HEAD, ["scontrol", "create", "reservation", *given])
    kill_service(site)
    job = site.submit(script(image), "-t1")
    update = ["scontrol", "update", f"JobId={job}"]
    with pytest.raises(CommandFailed):
        site.cluster.run(HEAD, [*update, "ReservationName=night"])
    # By its name it could be one of ours.
    site.cluster.run(HEAD, [*update, f"ReservationName={theirs}"])
    if is_service_there:
        site.start_service()
        wait_told(
            site, job, f"it stays held: reservation {theirs} is not made by Outrider, so no image comes"
        )
    else:
        site.cluster.run(HEAD, [*update, "StartTime=now"])
        said = wait_told(site, job, "it went back to the queue")
        assert f"no image is held on this node for reservation {theirs}" in said
        site.start_service()
    held = wait_for(site, job, "PENDING")
    site.cluster.run(HEAD, [*update, "ReservationName="])
    for name in ("night", theirs):
        site.cluster.run(HEAD, ["scontrol", "delete", f"ReservationName={name}"])
    found = ended(site, job)

    assert held.nodes == ""
    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)
