"""Daemons of ours that die or do not answer: jobs wait a little longer, and still find their images."""

from __future__ import annotations

import pytest

from testbed.site import NODE_DAEMON, SERVICE, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, state, wait_reservation, workspace
from tests.daemons.slurm.service.failing import (
    MB,
    SECOND,
    call_instead,
    fill,
    hold_back,
    kill_node,
    kill_service,
    let_go,
    second_service,
    wait_arriving,
    wait_released,
    wait_shown,
)
from tests.daemons.slurm.service.jobs import (
    HELD,
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


def test_transfer_goes_on_where_it_was_when_a_nodes_daemon_is_killed(site: OutriderSite) -> None:
    image = site.image("killed.qcow2", 40 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn1")
    wait_arriving(site, image)

    kill_node(site, "n1")
    wait_shown(site, job, "does not reach n1")
    state_before = seen(site, job).state
    let_go(site, image)
    site.start_node("n1")
    found = ended(site, job, timeout_s=90)

    assert state_before == "PENDING"
    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n1"] <= found.start_s
    assert "transfer resumed" in site.cluster.log("n1", NODE_DAEMON)


@pytest.mark.long
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
        # It went back since the node could not give it its image, and then waits for a node that is up.
        words = ("could not give it", "that it may run on are up")
        return found.state == "FAILED" or any(each in found.admin_comment for each in words)

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
    go = f"{site.home()}/go"
    again = f"until [ -e {go} ]; do sleep 0.1; done; srun --quiet sh -c 'head -c3 \"$OUTRIDER_IMAGE\"'"
    job = site.submit(script(image, again), "-t1", "-wn3")
    wait_for(site, job, "RUNNING")

    kill_node(site, "n3")
    site.start_node("n3")
    site.cluster.write(HEAD, go, "")

    assert ended(site, job).state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") == 2


@pytest.mark.long
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
    slow, here = site.image("slow2.qcow2", 10 * MB), site.image("here2.qcow2", 5 * MB)
    hold_back(site, slow)
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
    let_go(site, slow)
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


def test_service_killed_at_a_release_has_done_nothing_by_halves_and_does_it_when_it_is_back(
    site: OutriderSite,
) -> None:
    image = site.image("between.qcow2", 20 * MB)
    job = site.submit(script(image), "-t1", "-wn4")

    # Whoever calls scontrol to let it start is killed, and it does not start.
    with call_instead(site, "scontrol", f'"update JobId={job} "*StartTime=now*', "kill -9 $PPID; exit 1"):
        site.cluster.wait_for(
            "outriderd's end", lambda: not site.cluster.is_running(HEAD, SERVICE), logs=site.logs
        )
    # Slurm looks at a job that was changed a moment later.
    site.cluster.wait_for("the job to be held", lambda: seen(site, job).reason in HELD, logs=site.logs)
    comment = seen(site, job).comment
    site.start_service()
    found = ended(site, job)

    assert "outrider-ticket=none" in comment
    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)


def test_second_service_with_a_store_of_its_own_says_so_and_breaks_no_promise(site: OutriderSite) -> None:
    image = workspace(site, "theirs", 5 * MB)
    answer = reserve(site, "theirs", "--start=now+1hour", "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)
    wait_reservation(site, name, "ready")

    with second_service(site):
        site.cluster.wait_for(
            "words of another service", lambda: "another outriderd" in _said(site), logs=lambda: _said(site)
        )
        # It has been told of all pins when it has brought this.
        found = ended(site, site.submit(script(image), "-t1", "--exclusive", f"-w{node}"))
        pinned = pins(site, node)

    assert found.state == "COMPLETED"
    assert f"reservation {name} is in the batch system, and nothing is known of it" in _said(site)
    assert in_slurm(site)[name]["Users"] == "ada"
    assert f"reservation:{name}" in pinned
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


def _said(site: OutriderSite) -> str:
    return site.cluster.log(HEAD, SECOND)
