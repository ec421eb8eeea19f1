"""Offers, reservations that recur and prices on a real Slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from testbed.site import OutriderSite
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.daemons.slurm.service.conftest import (
    NODES,
)
from tests.daemons.slurm.service.jobs import ended, in_slurm, output, script, wait_in_slurm
from tests.daemons.slurm.service.policed import policed

MB = 1_000_000
POLICIES = "version: 1\nrules: [{name: all}]\nleases: {pricing: {rate: 3600000}}\n"
"""One unit of money for a second of a node."""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """Four nodes with prices."""
    with policed(request, POLICIES) as made:
        yield made


def asked(site: OutriderSite, *words: str) -> dict[str, object]:
    answer = json.loads(site.outrider(*words, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def offered(decision: Mapping[str, object], kind: str) -> dict[str, object]:
    offers = decision["offers"]
    assert isinstance(offers, list)
    found = [each for each in offers if each["kind"] == kind]
    assert found, offers
    return dict(found[0])


@pytest.mark.long
def test_offer_of_fewer_nodes_is_accepted_and_runs_its_job(site: OutriderSite) -> None:
    workspace(site, "crowd", 2 * MB)
    workspace(site, "few", 2 * MB)
    crowd = str(reserve(site, "crowd", "--nodes=3", "--start=now+70s", "-t30s")["name"])

    refused = reserve(site, "few", "--nodes=2", "--start=now+75s", "-t20s")
    offer = offered(refused, "fewer-nodes")
    accepted = asked(site, "accept", str(offer["name"]))
    name = str(accepted["name"])
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), "-t1", "-N1", f"--reservation={name}")
    found = ended(site, job)

    assert refused["result"] == "refused"
    assert (accepted["result"], accepted["start_s"], accepted["node_count"]) == (
        "accepted",
        offer["start_s"],
        1,
    )
    assert (offer["price"], accepted["price"]) == (20_000, 20_000)
    assert found.state == "COMPLETED"
    assert found.start_s >= int(str(offer["start_s"]))
    assert output(site, job).count("QFI") == 1
    for each in (name, crowd):
        wait_reservation(site, each, "ended")


def test_what_recurs_has_its_image_each_time_and_is_given_back_at_once(site: OutriderSite) -> None:
    workspace(site, "often", 3 * MB)

    answer = reserve(site, "often", "--nodes=2", "--start=now+15s", "-t10s", "--every=20s", "--until=now+90s")
    occurrences = answer["occurrences"]
    assert isinstance(occurrences, list)
    names = [str(each["name"]) for each in occurrences]
    for name in names[:2]:
        wait_reservation(site, name, "ended")
    known = in_slurm(site)
    gone = asked(site, "cancel", str(answer["name"]))

    assert answer["result"] == "accepted"
    assert names == [f"{answer['name']}.{number}" for number in (1, 2, 3, 4)]
    assert set(known) & set(names)
    for name in names[:2]:
        receipt = shown(site, name)["receipt"]
        assert isinstance(receipt, Mapping)
        assert (receipt["is_met"], receipt["charged"]) == (True, 20_000)
    left = gone["reservations"]
    assert isinstance(left, list)
    assert {each["state"] for each in left} == {"cancelled"}
    for name in names:
        wait_in_slurm(site, name, is_there=False)


def test_report_adds_up_what_was_charged_and_what_was_lost(site: OutriderSite) -> None:
    workspace(site, "paid", 2 * MB)
    before = _sums(site)
    kept = reserve(site, "paid", "--nodes=2", "--start=now+15s", "-t10s")
    given = reserve(site, "paid", "--start=now+1hour", "-t10s")
    dear = reserve(site, "paid", "--start=now+2hours", "-t10s", "--max-price=9.999")
    huge = reserve(site, "paid", f"--nodes={NODES + 1}", "--start=now+2hours", "-t10s")
    site.outrider("cancel", str(given["name"]))
    wait_reservation(site, str(kept["name"]), "ended")
    after = _sums(site)

    assert [each["result"] for each in (kept, given, dear, huge)] == ["accepted"] * 2 + ["refused"] * 2
    grown = {key: after[key] - before.get(key, 0) for key in after}
    assert grown["reservations"] == 2
    assert grown["charged"] == 20_000
    assert (grown["too_dear"], grown["lost_to_price"]) == (1, 10_000)
    assert (grown["refused"], grown["lost_to_refusals"]) == (1, 10_000 * (NODES + 1))


def _sums(site: OutriderSite) -> dict[str, int]:
    lines = asked(site, "report", "--by", "account")["lines"]
    assert isinstance(lines, list)
    keys = ("reservations", "charged", "refused", "lost_to_refusals", "too_dear", "lost_to_price")
    return {key: sum(int(each[key]) for each in lines) for key in keys}
