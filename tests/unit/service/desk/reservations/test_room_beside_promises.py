"""Room in pools: what users hold is promised to nobody, and what is promised is held by no user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.service.answers.decision import Decision
from outrider.service.desk.state import node_list
from outrider.service.ports import HeldBytes, NodeReport, NodeRoom, NodeTrouble, TellNode
from outrider.service.requests import Cancel
from outrider.service.settings import Settings
from outrider.store.records import NodeRecord
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of, reserve, show, wanted

IMAGE = 10 * RATE
"""An image's size."""
LIMIT = 2 * IMAGE
HOUR_S = 3_600


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """One node, whose pool holds two images."""
    made = small(tmp_path, nodes=1)
    yield made
    made.close()


def small(folder: Path, nodes: int) -> Sandbox:
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, reconcile_every_s=120)
    made = Sandbox(folder, nodes=nodes, settings=settings)
    for pool in made.pools.values():
        pool.limit_bytes = LIMIT
    made.sleep(121)
    return made


def leave_all_to_users(site: Sandbox) -> None:
    """Nodes keep nothing from users but what is promised."""
    for pool in site.pools.values():
        pool.users_percent = 100
    site.sleep(121)


def at(at_s: int | None) -> str:
    """An instant as a workspace says it."""
    assert at_s is not None
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def users_take(site: Sandbox, size_bytes: int, seconds: int, *nodes: str, digest: str = "") -> list[bool]:
    """Users hold so much on these nodes, or on all; which nodes let them."""
    pools = [site.pools[name] for name in nodes or site.pools]
    until_s = site.now_s + seconds
    return [pool.user_holds("users", size_bytes, until_s, site.now_s, digest) for pool in pools]


def test_bytes_that_users_hold_are_promised_to_nobody(site: Sandbox) -> None:
    held_until_s = site.now_s + 6 * HOUR_S
    users_take(site, LIMIT - IMAGE + 1, 6 * HOUR_S)
    site.sleep(121)

    refused = reserve(site, start="now+1hours")
    remedy = reserve(site, BOB, start="now+7hours")

    assert (refused.result, refused.cause) == ("refused", "pool")
    assert "1.0 GB of its 2.0 GB are held there by users' images and copies, until" in refused.reason
    assert any("`cachemgr ls`" in each for each in refused.remedies)
    assert refused.earliest_start_s is not None
    assert held_until_s < refused.earliest_start_s < held_until_s + 600
    assert remedy.result == "accepted"


def test_earliest_start_after_what_users_hold_is_accepted_and_kept(site: Sandbox) -> None:
    users_take(site, LIMIT, 2 * HOUR_S)
    site.sleep(121)
    refused = reserve(site, start="now+1hours")
    accepted = reserve(site, start=at(refused.earliest_start_s))
    site.sleep(2 * HOUR_S)

    shown = show(site, accepted.name).reservation
    assert accepted.start_s == refused.earliest_start_s
    assert (shown.state, site.now_s >= shown.start_s) == ("active", True)
    assert not any("endangered" in line for line in site.log.lines)


def test_promised_bytes_are_kept_from_the_acceptance_on(site: Sandbox) -> None:
    leave_all_to_users(site)
    accepted = reserve(site, start="now+20hours")

    taken = users_take(site, LIMIT - IMAGE + 1, 40 * HOUR_S)
    allowed = users_take(site, LIMIT - IMAGE, 40 * HOUR_S)
    site.sleep(20 * HOUR_S + 60)

    assert site.pools["n1"].promised[0] == IMAGE
    assert (taken, allowed) == ([False], [True])
    assert show(site, accepted.name).reservation.state == "active"


def test_what_users_never_get_is_kept_without_a_call_for_it(site: Sandbox) -> None:
    calls: list[TellNode] = []
    tell = site.tell

    def noted(call: TellNode) -> NodeReport:
        calls.append(call)
        return tell(call)

    site.tell = noted  # type: ignore[method-assign]
    accepted = reserve(site, start="now+20hours")
    at_once = len(calls)
    site.sleep(125)

    assert (accepted.result, at_once) == ("accepted", 0)
    assert site.pools["n1"].promised[0] == IMAGE


def test_kept_bytes_are_renewed_and_given_back(site: Sandbox) -> None:
    accepted = reserve(site, start="now+100hours")
    # Longer than a promise to a node lasts without being renewed.
    site.sleep(site.settings.pin_lease_s + 12 * HOUR_S)
    renewed_s = site.pools["n1"].promised[1]
    site.ask(Cancel(name=accepted.name), ALICE)
    site.sleep(300)

    assert renewed_s > site.now_s + 10 * HOUR_S
    assert site.pools["n1"].promised[0] == 0
    assert users_take(site, LIMIT, HOUR_S) == [True]


def test_two_promises_at_different_times_keep_the_larger_one(site: Sandbox) -> None:
    leave_all_to_users(site)
    reserve(site, start="now+5hours", image="small", size_bytes=IMAGE // 2)
    reserve(site, start="now+50hours", image="large")

    site.sleep(2)

    assert site.pools["n1"].promised[0] == IMAGE


def test_node_with_room_is_chosen_however_many_are_held(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=40)
    users_take(site, LIMIT, 6 * HOUR_S, *[f"n{number}" for number in range(1, 40)])
    site.sleep(121)

    accepted = reserve(site, start="now+1hours")
    refused = reserve(site, BOB, start="now+1hours")
    site.close()

    assert (accepted.result, accepted.nodes) == ("accepted", "n40")
    assert (refused.result, refused.cause) == ("refused", "pool")


def test_users_own_image_is_counted_once(site: Sandbox) -> None:
    users_take(site, LIMIT - IMAGE // 2, 6 * HOUR_S, digest=digest_of("ubuntu"))
    site.sleep(121)

    other = reserve(site, start="now+1hours", image="debian")
    same = reserve(site, start="now+1hours", size_bytes=LIMIT - IMAGE // 2)

    assert (other.result, same.result) == ("refused", "accepted")


def test_plan_says_what_the_request_would_be_told(site: Sandbox) -> None:
    users_take(site, LIMIT, 6 * HOUR_S)
    site.sleep(121)

    planned = site.ask(replace(wanted(site, start="now+1hours"), is_plan=True))
    asked = reserve(site, start="now+1hours")

    assert isinstance(planned, Decision)
    assert (planned.result, planned.reason) == (asked.result, asked.reason)
    assert planned.earliest_start_s == asked.earliest_start_s


def test_user_who_was_faster_costs_another_node_and_no_promise(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=2)
    users_take(site, LIMIT, 6 * HOUR_S, "n1")
    accepted = reserve(site, start="now+2hours")
    site.sleep(300)

    shown = show(site, accepted.name)
    assert accepted.nodes == "n1"
    assert shown.reservation.nodes == "n2"
    assert "has no room in the pool of n1" in shown.reservation.why
    site.sleep(2 * HOUR_S)
    assert show(site, accepted.name).reservation.state == "active"
    site.close()


def test_without_another_node_it_is_said_at_once_and_ends_when_there_is_room(site: Sandbox) -> None:
    users_take(site, LIMIT, 6 * HOUR_S)
    accepted = reserve(site, start="now+2hours")
    site.sleep(125)
    endangered = show(site, accepted.name)
    site.pools["n1"].held.clear()
    site.sleep(300)
    safe = show(site, accepted.name)

    assert endangered.reservation.state == "endangered"
    assert "has no room in the pool of n1" in endangered.reservation.why
    assert safe.reservation.state == "accepted"
    site.sleep(2 * HOUR_S)
    assert show(site, accepted.name).reservation.state == "active"


def test_service_remembers_what_users_hold_over_a_restart(site: Sandbox) -> None:
    users_take(site, LIMIT, 6 * HOUR_S)
    site.sleep(121)
    site.pools["n1"].is_away = True
    site.restart()

    refused = reserve(site, start="now+1hours")

    assert (refused.result, refused.cause) == ("refused", "pool")


def test_hold_is_told_again_after_a_restart_of_service_and_node(site: Sandbox) -> None:
    reserve(site, start="now+20hours")
    site.restart()
    site.pools["n1"].promised = (0, 0)
    site.sleep(600)

    assert site.pools["n1"].promised[0] == IMAGE


def test_disk_without_room_is_promised_to_nobody(site: Sandbox) -> None:
    site.pools["n1"].disk_bytes = IMAGE - 1
    site.sleep(121)

    refused = reserve(site, start="now+1hours")
    site.pools["n1"].disk_bytes = None
    site.sleep(121)

    assert (refused.result, refused.cause, refused.earliest_start_s) == ("refused", "pool", None)
    assert "its disk has room for 999 MB of the 2.0 GB that the pool may take" in refused.reason
    assert any("free space on the disk of n1" in each for each in refused.remedies)
    assert reserve(site, start="now+1hours").result == "accepted"
    assert any("node's disk is full" in line for line in site.log.lines)


def test_disk_that_has_refused_an_image_a_minute_ago_is_promised_to_nobody(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=1)
    pool = site.pools["n1"]
    pool.broken, pool.broken_code = "writing image ubuntu failed: the disk is full", "disk"
    reserve(site, start="now+2minutes", duration="10m")
    site.sleep(100)

    refused = reserve(site, BOB, start="now+1hours", image="debian")
    pool.broken = ""
    site.sleep(HOUR_S)
    later = reserve(site, BOB, start="now+1hours", image="debian")
    site.close()

    assert (refused.result, refused.cause) == ("refused", "pool")
    assert later.result == "accepted"


def test_node_of_an_older_version_is_promised_as_before(site: Sandbox) -> None:
    site.pools["n1"].is_old = True
    users_take(site, LIMIT, 6 * HOUR_S)
    site.restart()

    assert reserve(site, start="now+1hours").result == "accepted"
    assert site.pools["n1"].promised == (0, 0)


def test_job_is_led_where_its_image_has_room(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=2)
    users_take(site, LIMIT, 6 * HOUR_S, "n1")
    site.sleep(121)
    key = site.submit()
    site.sleep(300)

    job = site.job(key)
    nodes = () if job is None else job.nodes
    site.close()
    assert job is None or tuple(expand(",".join(nodes))) == ("n2",)
    assert digest_of("ubuntu") in site.pools["n2"].images
    assert site.pools["n1"].fetches == []


def test_who_was_faster_is_found_out_before_anything_is_promised(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=2)
    leave_all_to_users(site)
    users_take(site, LIMIT, 6 * HOUR_S, "n1")

    accepted = reserve(site, start="now+2hours")
    users_take(site, LIMIT, 6 * HOUR_S, "n2")
    refused = reserve(site, BOB, start="now+2hours")
    site.sleep(2 * HOUR_S)
    state = show(site, accepted.name).reservation.state
    alarms = [line for line in site.log.lines if "endangered" in line or "moved" in line]
    site.close()

    assert (accepted.result, accepted.nodes, state) == ("accepted", "n2", "active")
    assert (refused.result, refused.cause) == ("refused", "pool")
    assert alarms == []


def test_request_waits_for_a_silent_node_no_longer_than_seconds(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=1)
    leave_all_to_users(site)
    site.pools["n1"].is_away = True
    before_s = site.now_s

    answered = reserve(site, start="now+2hours")
    waited_s = site.now_s - before_s
    site.close()

    assert answered.result in ("accepted", "refused")
    assert waited_s <= 11


class WithNewcomer(Sandbox):
    """A node whose daemon has never run: nobody knows how large its pool is."""

    is_there = False

    def tell(self, call: TellNode) -> NodeReport:
        if call.node == "n2" and not self.is_there:
            raise NodeTrouble("node n2 does not answer")
        return super().tell(call)


def test_node_that_has_never_spoken_is_promised_to_nobody(tmp_path: Path) -> None:
    site = WithNewcomer(tmp_path, nodes=2)
    begun_s = site.now_s
    before = reserve(site, nodes=2, start="now+1hours")
    took_s = site.now_s - begun_s
    alone = reserve(site, nodes=1, start="now+1hours")
    site.is_there = True
    site.sleep(121)
    after = reserve(site, name="both", nodes=2, start="now+3hours")
    site.close()

    assert (before.result, alone.result, alone.nodes, after.result) == (
        "refused",
        "accepted",
        "n1",
        "accepted",
    )
    assert took_s <= 30


def test_what_is_kept_for_a_request_that_is_refused_is_given_back(tmp_path: Path) -> None:
    site = small(tmp_path, nodes=1)
    leave_all_to_users(site)
    users_take(site, LIMIT, 6 * HOUR_S)

    refused = reserve(site, start="now+2hours")
    site.sleep(300)
    kept = site.pools["n1"].promised[0]
    site.close()

    assert (refused.result, kept) == ("refused", 0)


def test_nodes_that_were_written_down_before_rooms_were_are_read() -> None:
    report = '{"version":1,"capacity":{"cpus":8},"state":"up","limit_bytes":5}'
    older = NodeRecord(name="n1", reported_s=1, is_available=True, report=report)
    held = HeldBytes(size_bytes=3, until_s=9, digest=digest_of("ubuntu"))
    room = NodeRoom(capacity_bytes=4, held=(held,), users_bytes=2)

    read = node_list.read_roster([older])["n1"]
    again = node_list.read_roster([node_list.record_of(replace(read, room=room), 2)])["n1"]

    assert (read.limit_bytes, read.room) == (5, None)
    assert again.room == replace(room, users_bytes=0)
