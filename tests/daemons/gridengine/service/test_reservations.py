"""Reservations on a real Grid Engine: promised, bound to, changed, given back, and kept against others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from testbed.batchcluster import HEAD
from testbed.commands import CommandFailed
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    advances,
    cancel,
    ended,
    fill,
    output,
    report,
    start_s,
    submit,
    wait_advance,
)
from tests.daemons.reservations import reserve, shown, state, wait_reservation, workspace

REFUSED = 4
IN_OURS = ("-l", "outrider_reservation=TRUE")


def granted(site: GridEngineSite, number: str) -> dict[str, str]:
    """What qrstat tells of an advance reservation."""
    text = site.cluster.run(HEAD, ["qrstat", "-ar", number], check=False).stdout
    pairs = [line.split(None, 1) for line in text.splitlines()]
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def test_promised_nodes_have_the_image_before_the_start_and_the_job_runs_there(site: GridEngineSite) -> None:
    image = workspace(site, "kept", 10 * MB)

    answer = reserve(site, "kept", "--nodes=2", "--start=now+10s", "-t20s")
    name, begins_s = str(answer["name"]), answer["start_s"]
    number = wait_advance(site, name)
    job = submit(site, None, "-ar", number, *IN_OURS, "-pe", "each4", "8", "-l", "h_rt=10")
    end = ended(site, job)

    assert isinstance(begins_s, int)
    assert max(site.arrived_s(image).values()) <= begins_s <= start_s(end)
    assert (end["exit_status"], end["qname"]) == ("0", "outrider.q"), report(site, job)
    assert end["hostname"] in site.arrived_s(image)
    assert "QFI" in output(site, job)
    wait_reservation(site, name, "ended")
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert receipt["transferred_bytes"] == 2 * image.size_bytes
    wait_advance(site, name, is_there=False)


def test_job_that_outrider_submits_into_a_reservation_has_its_nodes(site: GridEngineSite) -> None:
    workspace(site, "inside", 5 * MB)
    text = '#!/bin/sh\necho "$NHOSTS $(head -c3 "$OUTRIDER_IMAGE")" >inside\n'
    site.cluster.write(HEAD, f"{site.home()}/inside.sh", text, mode=0o755, owner="ada:ada")
    name = str(reserve(site, "inside", "--nodes=2", "--start=now+8s", "-t40s")["name"])
    wait_advance(site, name)

    asked = ["--reservation", name, "--nodes", "2", "-t", "20s", f"{site.home()}/inside.sh"]
    end = ended(site, site.outrider("submit", *asked).stdout.strip())

    assert (end["exit_status"], end["qname"]) == ("0", "outrider.q")
    assert site.cluster.read(HEAD, f"{site.home()}/inside") == "2 QFI\n"
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_what_cannot_be_there_in_time_is_refused_with_a_start_that_is_accepted(site: GridEngineSite) -> None:
    workspace(site, "large", 110 * MB)

    refused = site.outrider(
        "reserve", f"{site.home()}/large.yaml", "--start=now+4s", "-t10s", "--json", check=False
    )
    answer = json.loads(refused.stdout)
    again = reserve(site, "large", f"--start=uts{answer['earliest_start_s'] + 5}", "-t10s")

    assert refused.returncode == REFUSED
    assert answer["result"] == "refused"
    assert again["result"] == "accepted"
    site.outrider("cancel", str(again["name"]))
    wait_advance(site, str(again["name"]), is_there=False)


def test_only_its_user_may_use_a_reservation(site: GridEngineSite) -> None:
    workspace(site, "mine", 5 * MB)
    name = str(reserve(site, "mine", "--start=now+1hour", "-t10m")["name"])
    number = wait_advance(site, name)

    with pytest.raises(CommandFailed, match="no suitable queues"):
        submit(site, None, "-w", "e", "-ar", number, *IN_OURS, user="bob")

    with pytest.raises(CommandFailed):
        site.cluster.run(HEAD, ["qrdel", number], user="ada")
    with pytest.raises(CommandFailed):
        site.outrider("cancel", name, user="bob")
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_change_and_cancellation_reach_grid_engine(site: GridEngineSite) -> None:
    workspace(site, "moved", 5 * MB)
    answer = reserve(site, "moved", "--start=now+1hour", "-t10m")
    name, begins_s = str(answer["name"]), answer["start_s"]
    assert isinstance(begins_s, int)
    before = granted(site, wait_advance(site, name))

    site.outrider("modify", name, "--start", f"uts{begins_s + 1800}")
    site.cluster.wait_for(
        "the new start in Grid Engine",
        lambda: (
            granted(site, advances(site).get(name, "0")).get("start_time", before["start_time"])
            != before["start_time"]
        ),
        logs=site.logs,
    )
    after = granted(site, advances(site)[name])
    site.outrider("cancel", name)

    wait_advance(site, name, is_there=False)
    assert state(site, name) == "cancelled"
    assert before["acl_list"] == after["acl_list"] == "ada"


def test_job_waiting_in_a_cancelled_reservation_is_held_and_not_lost(site: GridEngineSite) -> None:
    workspace(site, "left", 5 * MB)
    name = str(reserve(site, "left", "--start=now+1hour", "-t10m")["name"])
    job = submit(site, None, "-ar", wait_advance(site, name), *IN_OURS, "-l", "h_rt=60")

    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)

    assert site.cluster.job_state(job) == "hqw"
    cancel(site, job)


def test_reservation_deleted_by_an_administrator_is_put_back_once(site: GridEngineSite) -> None:
    workspace(site, "back", 5 * MB)
    name = str(reserve(site, "back", "--start=now+1hour", "-t10m")["name"])
    first = wait_advance(site, name)

    site.cluster.run(HEAD, ["qrdel", first])
    site.cluster.wait_for("a new one", lambda: advances(site).get(name, first) != first, logs=site.logs)
    site.cluster.run(HEAD, ["qrdel", advances(site)[name]])

    wait_reservation(site, name, "cancelled", "ended", "failed")
    assert state(site, name) == "cancelled"


def test_jobs_that_have_a_node_are_no_place_for_a_reservation(site: GridEngineSite) -> None:
    workspace(site, "beside", 5 * MB)
    jobs = [fill(site, node) for node in ("n1", "n2", "n3")]

    def is_refused() -> bool:
        asked = ["plan", f"{site.home()}/beside.yaml", "--nodes=2", "--start=now+5s", "-t1m"]
        return site.outrider(*asked, check=False).returncode == REFUSED

    site.cluster.wait_for("the jobs to be seen", is_refused, logs=site.logs)
    one = reserve(site, "beside", "--nodes=1", "--start=now+8s", "-t10s")
    cancel(site, *jobs)

    assert (one["result"], one["nodes"]) == ("accepted", "n4")
    site.outrider("cancel", str(one["name"]))
    wait_advance(site, str(one["name"]), is_there=False)
