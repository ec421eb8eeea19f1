"""Reservations on a real Slurm: promised, bound to, changed, given back, and kept against others' changes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from testbed.commands import CommandFailed
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, shown, state, wait_reservation, workspace
from tests.daemons.slurm.service.jobs import (
    arrived_s,
    ended,
    in_slurm,
    output,
    script,
    seen,
    wait_for,
    wait_in_slurm,
)

MB = 1_000_000
REFUSED = 4


def test_promised_nodes_have_the_image_before_the_start_and_the_job_runs_there(site: OutriderSite) -> None:
    image = workspace(site, "kept", 10 * MB)

    answer = reserve(site, "kept", "--nodes=2", "--start=now+8s", "-t15s")
    name, start_s = str(answer["name"]), answer["start_s"]
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), "-t1", "-N2", f"--reservation={name}")
    found = ended(site, job)

    assert isinstance(start_s, int)
    assert max(arrived_s(site, image).values()) <= start_s <= found.start_s
    assert found.state == "COMPLETED"
    assert output(site, job).count("QFI") == 2
    wait_reservation(site, name, "ended")
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert receipt["transferred_bytes"] == 2 * image.size_bytes
    wait_in_slurm(site, name, is_there=False)


def test_what_cannot_be_there_in_time_is_refused_with_a_start_that_is_accepted(site: OutriderSite) -> None:
    workspace(site, "large", 110 * MB)

    refused = site.outrider(
        "reserve", f"{site.home()}/large.yaml", "--start=now+4s", "-t10s", "--json", check=False
    )
    answer = json.loads(refused.stdout)
    again = answer
    # What is asked for later than was said cannot be there any more: on a busy machine that takes seconds.
    for spare_s in (1, 2, 4, 8, 16):
        if again["result"] == "refused":
            earliest_s = again["earliest_start_s"]
            assert isinstance(earliest_s, int)
            again = reserve(site, "large", f"--start=uts{earliest_s + spare_s}", "-t10s")

    assert refused.returncode == REFUSED
    assert answer["result"] == "refused"
    assert again["result"] == "accepted"
    site.outrider("cancel", str(again["name"]))
    wait_in_slurm(site, str(again["name"]), is_there=False)


def test_option_whose_image_is_on_a_node_already_is_reserved_before_a_shorter_one(site: OutriderSite) -> None:
    near, far = site.image("near.qcow2", 5 * MB), site.image("far.qcow2", 110 * MB)
    warm = site.submit(script(near), "-t1", "-N1")
    assert ended(site, warm).state == "COMPLETED", output(site, warm)
    ways = [
        f"nodes=1,time={seconds}s,image={image.uri},digest={image.digest}"
        for image, seconds in ((far, 1200), (near, 1204))
    ]

    words = ["--option", ways[0], "--option", ways[1], "--finish-by=now+3hours", "--json"]

    def needs_none() -> bool:
        planned = site.outrider("plan", *words, check=False)
        return planned.returncode == 0 and json.loads(planned.stdout)["transfers"] == []

    site.cluster.wait_for("the service to see what the job has left", needs_none, logs=site.logs)
    answer = json.loads(site.outrider("reserve", *words).stdout)
    site.outrider("cancel", str(answer["name"]))

    assert [(each["result"], each["image"]) for each in answer["options"]] == [
        ("possible", far.uri),
        ("chosen", near.uri),
    ]
    assert (answer["image"]["digest"], answer["transfers"]) == (near.digest, [])
    wait_in_slurm(site, str(answer["name"]), is_there=False)


def test_job_without_lines_is_given_back_to_its_user_when_its_reservation_is_over(
    site: OutriderSite,
) -> None:
    workspace(site, "over", 5 * MB)
    name = str(reserve(site, "over", "--start=now+1hour", "-t10m")["name"])
    wait_in_slurm(site, name, is_there=True)
    plain = "#!/bin/sh\necho alone\n"
    job = site.submit(plain, "-t1", f"--reservation={name}", "--comment=mine")
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)
    held = seen(site, job)
    site.cluster.run(HEAD, ["scontrol", "release", job], user="ada")
    found = ended(site, job)

    assert (held.state, held.reason) == ("PENDING", "JobHeldUser")
    assert held.comment == "mine"
    assert held.admin_comment in ("", "(null)")
    assert found.state == "COMPLETED"


def test_only_its_user_may_use_a_reservation(site: OutriderSite) -> None:
    workspace(site, "mine", 5 * MB)
    name = str(reserve(site, "mine", "--start=now+1hour", "-t10m")["name"])
    wait_in_slurm(site, name, is_there=True)

    with pytest.raises(CommandFailed, match="Access denied"):
        site.submit(script(None), "-t1", f"--reservation={name}", user="bob")

    with pytest.raises(CommandFailed):
        site.outrider("cancel", name, user="bob")
    site.outrider("cancel", name)


def test_running_jobs_are_no_place_for_a_reservation(site: OutriderSite) -> None:
    workspace(site, "beside", 5 * MB)
    jobs = [
        site.submit("#!/bin/sh\nsleep 600\n", "-t10", f"-w{node}", "--exclusive")
        for node in ("n1", "n2", "n3")
    ]
    for job in jobs:
        wait_for(site, job, "RUNNING")

    def is_refused() -> bool:
        plan = site.outrider(
            "plan", f"{site.home()}/beside.yaml", "--nodes=2", "--start=now+5s", "-t1m", check=False
        )
        return plan.returncode == REFUSED

    site.cluster.wait_for("the jobs to be seen", is_refused, logs=site.logs)

    one = reserve(site, "beside", "--nodes=1", "--start=now+5s", "-t10s")

    assert (one["result"], one["nodes"]) == ("accepted", "n4")
    site.outrider("cancel", str(one["name"]))
    for job in jobs:
        site.cluster.run(HEAD, ["scancel", job])
        ended(site, job)


def test_change_and_cancellation_reach_slurm(site: OutriderSite) -> None:
    workspace(site, "moved", 5 * MB)
    answer = reserve(site, "moved", "--start=now+1hour", "-t10m")
    name, start_s = str(answer["name"]), answer["start_s"]
    assert isinstance(start_s, int)
    wait_in_slurm(site, name, is_there=True)
    before = in_slurm(site)[name]["StartTime"]

    site.outrider("modify", name, "--start", f"uts{start_s + 1800}")
    site.cluster.wait_for(
        "the new start in Slurm", lambda: in_slurm(site)[name]["StartTime"] != before, logs=site.logs
    )
    site.outrider("cancel", name)

    wait_in_slurm(site, name, is_there=False)
    assert state(site, name) == "cancelled"


def test_job_waiting_in_a_cancelled_reservation_is_held_and_not_lost(site: OutriderSite) -> None:
    workspace(site, "left", 5 * MB)
    name = str(reserve(site, "left", "--start=now+1hour", "-t10m")["name"])
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), "-t1", f"--reservation={name}")

    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)

    assert seen(site, job).state == "PENDING"
    site.cluster.run(HEAD, ["scancel", job])


def test_reservation_deleted_by_an_administrator_is_put_back_once(site: OutriderSite) -> None:
    workspace(site, "back", 5 * MB)
    name = str(reserve(site, "back", "--start=now+1hour", "-t10m")["name"])
    wait_in_slurm(site, name, is_there=True)

    site.cluster.run(HEAD, ["scontrol", "delete", f"ReservationName={name}"])
    wait_in_slurm(site, name, is_there=True)
    site.cluster.run(HEAD, ["scontrol", "delete", f"ReservationName={name}"])

    wait_reservation(site, name, "cancelled", "ended", "failed")
    assert state(site, name) == "cancelled"


def test_reservation_moves_away_from_a_drained_node(site: OutriderSite) -> None:
    workspace(site, "drained", 5 * MB)
    answer = reserve(site, "drained", "--start=now+1hour", "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    wait_in_slurm(site, name, is_there=True)
    before = in_slurm(site)[name]

    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=broken"])
    site.cluster.wait_for("other nodes", lambda: in_slurm(site)[name]["Nodes"] != node, logs=site.logs)
    moved = in_slurm(site)[name]

    assert moved["StartTime"] == before["StartTime"]
    assert set(moved["Users"].split(",")) == {"ada"}
    site.cluster.run(HEAD, ["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    site.outrider("cancel", name)
