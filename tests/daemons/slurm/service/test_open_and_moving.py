"""On a real Slurm: reservations that wait for an event, that move for others, and that yield to them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from testbed.site import CONFIGURATION, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, shown, state, wait_reservation, workspace
from tests.daemons.slurm.service.failing import kill_service
from tests.daemons.slurm.service.jobs import ended, in_slurm, output, script, wait_for, wait_in_slurm

MB = 1_000_000
POLICIES = "/etc/outrider/policies.yaml"
WITHIN_S = 150
# With the margin of 20 s for what has to end, Slurm's reservation begins at most 130 s ahead.
SHORT, LONG = "-t1", "-t10"


def slurm_times(site: OutriderSite, name: str) -> tuple[int, int]:
    text = site.cluster.run(
        HEAD, ["env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "res", name]
    ).stdout
    words = dict(word.partition("=")[::2] for word in text.split() if "=" in word)
    return int(words["StartTime"]), int(words["EndTime"])


def view(site: OutriderSite, name: str) -> Mapping[str, object]:
    found = shown(site, name)["reservation"]
    assert isinstance(found, Mapping)
    return found


def open_one(site: OutriderSite, name: str, *options: str) -> str:
    answer = reserve(
        site, name, "--nodes=1", "--open-from=now+10s", "--open-until=now+20m",
        f"--ready-within={WITHIN_S}s", "-t40s", *options,
    )  # fmt: skip
    assert answer["result"] == "accepted", answer
    return str(answer["name"])


def wait_open(site: OutriderSite, name: str) -> None:
    site.cluster.wait_for(
        f"{name} to wait for its event",
        lambda: str(view(site, name)["why"]).startswith("it waits for its event"),
        logs=site.logs,
    )


def follow(site: OutriderSite, policies: str) -> None:
    """Let the service follow these policies."""
    site.cluster.write(HEAD, POLICIES, policies)
    settings = json.loads(site.cluster.read(HEAD, CONFIGURATION))
    site.cluster.write(HEAD, CONFIGURATION, json.dumps({**settings, "policies": POLICIES}))
    kill_service(site)
    site.start_service()


@pytest.mark.repeats(
    "tests/unit/service/desk/reservations/test_open_reservations.py"
    "::test_file_is_looked_for_within_the_window_alone"
)
def test_file_of_its_user_begins_what_a_killed_service_kept_ready(site: OutriderSite) -> None:
    workspace(site, "beam", 5 * MB)
    flag = f"{site.home()}/run.done"
    site.cluster.run(HEAD, ["rm", "-f", flag])
    name = open_one(site, "beam", f"--when-file={flag}")
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), SHORT, f"--reservation={name}")
    wait_open(site, name)
    node = str(view(site, name)["nodes"])

    plain = "#!/bin/sh\nsleep 20\n"
    short = site.submit(plain, SHORT, f"-w{node}", "--exclusive")
    long = site.submit(plain, LONG, f"-w{node}", "--exclusive")
    wait_for(site, short, "RUNNING")
    waited = site.cluster.run(HEAD, ["squeue", "-h", "-o%T", f"-j{inside},{long}"]).stdout.split()
    kill_service(site)
    site.start_service()
    before, after = slurm_times(site, name), int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)
    site.cluster.run(HEAD, ["touch", flag], user="ada")
    event_s = int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)
    found = ended(site, inside)
    wait_reservation(site, name, "ended")
    site.cluster.run(HEAD, ["scancel", short, long], user="ada", check=False)

    assert waited == ["PENDING", "PENDING"]
    assert before[0] > after
    assert found.state == "COMPLETED", output(site, inside)
    assert found.nodes == node
    assert event_s <= found.start_s <= event_s + WITHIN_S
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert "reservation is endangered" not in site.logs()


@pytest.mark.repeats(
    "tests/unit/service/desk/reservations/test_open_reservations.py"
    "::test_only_its_user_may_trigger_it_and_only_in_its_window"
)
def test_somebody_else_begins_it_with_its_secret_and_not_without(site: OutriderSite) -> None:
    workspace(site, "word", 5 * MB)
    answer = reserve(
        site, "word", "--nodes=1", "--open-from=now+10s", "--open-until=now+20m",
        f"--ready-within={WITHIN_S}s", "-t40s", "--when-call",
    )  # fmt: skip
    name, secret = str(answer["name"]), f"{site.home('bob')}/word.secret"
    site.cluster.write(HEAD, secret, f"{answer['secret']}\n")
    site.cluster.run(HEAD, ["chown", "bob", secret])
    wait_open(site, name)
    inside = site.submit(script(None), SHORT, f"--reservation={name}")

    strange = site.outrider("trigger", name, user="bob", check=False)
    still = state(site, name)
    event_s = int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)
    site.outrider("trigger", name, f"--secret-file={secret}", user="bob")
    again = site.outrider("trigger", name, f"--secret-file={secret}", user="bob", check=False)
    found = ended(site, inside)
    wait_reservation(site, name, "ended")

    assert strange.returncode != 0
    assert again.returncode != 0
    assert still == "ready"
    assert found.state == "COMPLETED", output(site, inside)
    assert event_s <= found.start_s <= event_s + WITHIN_S


def test_lease_with_a_deadline_moves_in_slurm_with_its_job(site: OutriderSite) -> None:
    workspace(site, "loose", 5 * MB)
    workspace(site, "fixed", 5 * MB)
    loose = reserve(site, "loose", "--nodes=4", "--start=now+10m", "--finish-by=now+3h", "-t30m")
    name = str(loose["name"])
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), SHORT, "-N4", f"--reservation={name}")

    fixed = reserve(site, "fixed", "--nodes=4", "--start=now+15m", "-t30m")
    kill_service(site)
    site.start_service()
    wait_in_slurm(site, str(fixed["name"]), is_there=True)
    moved, told = view(site, name), site.outrider("explain", name).stdout
    site.cluster.wait_for(
        "the moved lease in Slurm", lambda: slurm_times(site, name) == (moved["start_s"], moved["end_s"])
    )
    bound = site.cluster.run(HEAD, ["squeue", "-h", "-o%T %v", f"-j{job}"]).stdout.split()
    times = slurm_times(site, str(fixed["name"]))
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    for each in (name, str(fixed["name"])):
        site.outrider("cancel", each)
        wait_in_slurm(site, each, is_there=False)

    assert fixed["result"] == "accepted"
    assert moved["start_s"] != loose["start_s"]
    assert f"it was moved for reservation {fixed['name']}" in told
    assert times == (fixed["start_s"], fixed["end_s"])
    assert bound == ["PENDING", name]


def test_reservation_that_may_yield_gives_its_nodes_up_in_slurm(site: OutriderSite) -> None:
    workspace(site, "cheap", 5 * MB)
    workspace(site, "dear", 5 * MB)
    follow(site, "version: 1\nrules: [{name: all}]\nleases: {preemption: {}}\n")
    cheap = str(reserve(site, "cheap", "--nodes=4", "--start=now+10m", "-t30m", "--preemptible")["name"])
    wait_in_slurm(site, cheap, is_there=True)

    dear = reserve(site, "dear", "--nodes=4", "--start=now+15m", "-t30m")
    wait_in_slurm(site, cheap, is_there=False)
    wait_in_slurm(site, str(dear["name"]), is_there=True)
    found = shown(site, cheap)
    site.outrider("cancel", str(dear["name"]))
    wait_in_slurm(site, str(dear["name"]), is_there=False)

    assert dear["result"] == "accepted"
    assert state(site, cheap) == "cancelled"
    receipt = found["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["words"] == f"it yielded to reservation {dear['name']}, as it may"
    assert in_slurm(site) == {}
