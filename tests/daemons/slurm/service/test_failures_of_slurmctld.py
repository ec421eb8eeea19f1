"""slurmctld that dies, restarts, forgets its last seconds, or reads its configuration anew."""

from __future__ import annotations

import pytest

from testbed.site import SERVICE, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, state, workspace
from tests.daemons.slurm.service.failing import (
    MB,
    call_instead,
    fill,
    hold_back,
    keep_state,
    kill_slurmctld,
    let_go,
    put_state_back,
    start_slurmctld,
    wait_arriving,
    wait_released,
    wait_saved,
)
from tests.daemons.slurm.service.jobs import arrived_s, ended, in_slurm, output, script, seen, wait_in_slurm

ALL = 10_000


def test_slurmctld_that_restarts_forgets_no_job_no_ticket_and_no_promise(site: OutriderSite) -> None:
    workspace(site, "firm", 5 * MB)
    answer = reserve(site, "firm", "--start=now+1hour", "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)
    slow, here = site.image("slow.qcow2", 10 * MB), site.image("here.qcow2", 5 * MB)
    hold_back(site, slow)
    filled = fill(site, "n1")
    released = site.submit(script(here), "-t1", "-wn1")
    wait_released(site, released)
    held = site.submit(script(slow), "-t1", "-wn2")
    wait_arriving(site, slow)

    kill_slurmctld(site)
    start_slurmctld(site)
    site.cluster.reconfigure()
    waits = [seen(site, job).state for job in (released, held)]
    let_go(site, slow)
    site.cluster.run(HEAD, ["scancel", filled], user="ada")

    # Until its nodes have registered slurmctld knows nothing of them: that is no reason to leave them.
    assert "node is gone" not in site.cluster.log(HEAD, SERVICE, ALL)
    assert in_slurm(site)[name]["Nodes"] == node
    assert waits == ["PENDING", "PENDING"]
    for job, image in ((released, here), (held, slow)):
        found = ended(site, job)
        assert found.state == "COMPLETED", output(site, job)
        assert arrived_s(site, image)[found.nodes] <= found.start_s
        assert "QFI" in output(site, job)
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_failures_of_slurmctld.py"
    "::test_reservation_is_made_again_that_slurmctld_said_yes_to_and_forgot"
)
def test_release_that_slurmctld_has_forgotten_is_given_again(site: OutriderSite) -> None:
    image = site.image("forgotten.qcow2", 10 * MB)
    hold_back(site, image)
    filled = fill(site, "n2")
    job = site.submit(script(image), "-t1", "-wn2")
    wait_arriving(site, image)
    wait_saved(site)
    keep_state(site)
    let_go(site, image)
    wait_released(site, job)

    site.cluster.kill_slurmctld()
    put_state_back(site)
    start_slurmctld(site)
    site.cluster.run(HEAD, ["scancel", filled], user="ada")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert "QFI" in output(site, job)


@pytest.mark.long
def test_image_arrives_while_slurmctld_is_away_and_the_job_starts_when_it_is_back(site: OutriderSite) -> None:
    image = site.image("away.qcow2", 10 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1", "-wn3")
    wait_arriving(site, image)

    site.cluster.kill_slurmctld("TERM")
    let_go(site, image)
    site.cluster.wait_for("the image", lambda: "n3" in arrived_s(site, image), logs=site.logs)
    site.cluster.start_slurmctld()
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)["n3"] <= found.start_s


def test_reservation_made_while_slurmctld_is_away_is_there_when_it_is_back(site: OutriderSite) -> None:
    workspace(site, "unseen", 5 * MB)
    kill_slurmctld(site)

    answer = reserve(site, "unseen", "--start=now+1hour", "-t10m")
    start_slurmctld(site)
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)

    assert in_slurm(site)[name]["Users"] == "ada"
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


def test_reservation_is_made_again_that_slurmctld_said_yes_to_and_forgot(site: OutriderSite) -> None:
    workspace(site, "sworn", 5 * MB)
    wait_saved(site)
    keep_state(site)
    killed = '$real "$@"; code=$?; kill -9 "$(cat /run/slurm/slurmctld.pid)"; exit $code'

    with call_instead(site, "scontrol", "*create*reservation*", killed):
        name = str(reserve(site, "sworn", "--start=now+1hour", "-t10m")["name"])
        site.cluster.wait_for(
            "slurmctld's end", lambda: not site.cluster.is_daemon_running(HEAD, "slurmctld"), logs=site.logs
        )
    put_state_back(site)
    start_slurmctld(site)
    wait_in_slurm(site, name, is_there=True)

    assert in_slurm(site)[name]["Users"] == "ada"
    assert state(site, name) in ("accepted", "preparing", "ready")
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)
