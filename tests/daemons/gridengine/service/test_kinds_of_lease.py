"""Reservations that recur, and offers, on a real Grid Engine."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import MB, advances, wait_advance
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace


@pytest.mark.long
def test_what_recurs_has_its_image_each_time_and_is_given_back_at_once(site: GridEngineSite) -> None:
    workspace(site, "often", 3 * MB)

    answer = reserve(site, "often", "--start=now+20s", "-t10s", "--every=20s", "--until=now+75s")
    occurrences = answer["occurrences"]
    assert isinstance(occurrences, list)
    names = [str(each["name"]) for each in occurrences]
    wait_advance(site, names[2])
    wait_reservation(site, names[0], "ended")
    site.outrider("cancel", str(answer["name"]))

    assert names == [f"{answer['name']}.{number}" for number in (1, 2, 3)]
    receipt = shown(site, names[0])["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    for name in names:
        wait_advance(site, name, is_there=False)


def test_offer_of_a_later_start_is_accepted(site: GridEngineSite) -> None:
    workspace(site, "crowd", 2 * MB)
    workspace(site, "later", 2 * MB)
    nodes = len(site.cluster.nodes)
    crowd = reserve(site, "crowd", f"--nodes={nodes}", "--start=now+2min", "-t30s")

    refused = reserve(site, "later", f"--nodes={nodes}", "--start=now+2min", "-t30s")
    offers = refused["offers"]
    assert isinstance(offers, list)
    offer = next(each for each in offers if each["kind"] == "later")
    accepted = json.loads(site.outrider("accept", offer["name"], "--json").stdout)
    wait_advance(site, accepted["name"])
    number = advances(site)[accepted["name"]]
    for name in (str(crowd["name"]), accepted["name"]):
        site.outrider("cancel", name)
        wait_advance(site, name, is_there=False)

    assert (refused["result"], accepted["result"], bool(number)) == ("refused", "accepted", True)
    assert accepted["start_s"] == offer["start_s"]
