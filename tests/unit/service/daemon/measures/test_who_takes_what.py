"""Shares of everything that users share: counted in several places, put together, with an end to it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from cachemgr.base.shares import Share, Shares
from outrider.service.answers.site import ShareList
from outrider.service.daemon.measures import recent
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.measures.nodeshares import MOST_OF_NODE, STALE_S, NodeShares
from outrider.service.daemon.measures.recent import MOST_USERS, THING, RecentRequests
from outrider.service.daemon.measures.sharing import FRESH_S, NO_DESK, SHOW_S, ShareBook
from outrider.service.front import WantedShares
from outrider.service.ports import NodeReport
from outrider.service.requests import Caller
from outrider.service.web.identity import name_of
from tests.unit.service.daemon.conftest import Running
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually

ADMIN = Caller(uid=0, user="root", is_admin=True)
# Numbers that no user of this machine has.
EVE, ADA = 4_000_000_001, 4_000_000_002
EVERYTHING = WantedShares()
Make = Callable[..., Running]


@dataclass
class Clock:
    at_s: int = 1_000

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@dataclass
class Site:
    """A book over a desk that says what it is told to, or nothing."""

    clock: Clock = field(default_factory=Clock)
    nodes: NodeShares = field(default_factory=NodeShares)
    metrics: Metrics = field(default_factory=Metrics)
    of_desk: list[Share] | None = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        self.book = ShareBook(self.desk, self.nodes, self.metrics, self.clock, desk_s=0)

    def desk(self) -> Future[list[Share]]:
        self.asked += 1
        future: Future[list[Share]] = Future()
        if self.of_desk is not None:
            future.set_result(self.of_desk)
        return future

    def report(self, node: str, *shares: Share) -> None:
        self.nodes.note(
            NodeReport(node=node, at_s=self.clock.at_s, limit_bytes=1, used_bytes=0, shares=shares)
        )

    def listed(self, wanted: WantedShares = EVERYTHING, caller: Caller = ADMIN) -> ShareList:
        self.clock.at_s += int(FRESH_S)
        return self.book.listed(caller, wanted)


def transfers(user: int, held: int, refused: int = 0) -> Share:
    return Share("transfers", "places", str(user), held, 8, refused)


def told(found: ShareList) -> list[tuple[str, str, str, int, int]]:
    return [(each.user, each.thing, each.where, each.held, each.held_in_all) for each in found.shares]


def test_largest_share_of_a_limit_comes_first_whatever_it_is_a_share_of() -> None:
    site = Site(of_desk=[Share("reservations", "reservations", str(ADA), 900, 0, 0)])
    requests = Shares("requests", most=100, most_of_one=10)
    for _ in range(9):
        requests.take(f"uid {EVE}")
    site.book.learn("api", requests)
    site.report("n1", transfers(ADA, 4))

    assert told(site.listed()) == [
        (str(EVE), "requests", "head", 9, 9),
        (str(ADA), "transfers", "n1", 4, 4),
        (str(ADA), "reservations", "head", 900, 900),
    ]


def test_nodes_are_one_row_for_each_user_and_thing_that_names_the_worst_of_them() -> None:
    site = Site()
    site.report("n1", transfers(EVE, 2, refused=1), transfers(ADA, 1))
    site.report("n2", transfers(EVE, 8, refused=30))
    site.report("n3", transfers(EVE, 0, refused=4))
    first, second = site.listed().shares

    assert (first.user, first.where, first.held, first.most) == (str(EVE), "n2", 8, 8)
    assert (first.refused, first.nodes, first.held_in_all) == (35, 2, 10)
    assert (second.user, second.where, second.held) == (str(ADA), "n1", 1)


def test_named_nodes_are_shown_one_by_one_and_the_head_is_not() -> None:
    site = Site(of_desk=[Share("reservations", "reservations", str(EVE), 1, 0, 0)])
    for node, held in (("n1", 2), ("n2", 8), ("n3", 4)):
        site.report(node, transfers(EVE, held))
    found = site.listed(WantedShares(nodes=("n1", "n3")))

    assert [(each.where, each.held, each.nodes) for each in found.shares] == [("n3", 4, 1), ("n1", 2, 1)]


def test_user_sees_nothing_but_their_own() -> None:
    site = Site(of_desk=[Share("reservations", "reservations", str(user), 1, 0, 0) for user in (EVE, ADA)])
    site.report("n1", transfers(EVE, 8), transfers(ADA, 1))
    ada = Caller(uid=ADA, user="ada")
    found, others = site.listed(caller=ada), site.listed(WantedShares(user=str(EVE)), ada)

    assert {each.user for each in found.shares} == {str(ADA)}
    assert (len(found.shares), found.is_of_all) == (2, False)
    assert others.shares == ()


@pytest.mark.parametrize(
    ("wanted", "things"),
    [
        (WantedShares(user="root"), ["reserved time on nodes"]),
        (WantedShares(user="0"), ["reserved time on nodes"]),
        (WantedShares(thing="transfers"), ["transfers"]),
        (WantedShares(thing="reserved_time_on_nodes"), ["reserved time on nodes"]),
        (WantedShares(user="nobody-of-that-name"), []),
        (WantedShares(most=1), ["transfers"]),
    ],
)
def test_rows_can_be_chosen_by_user_and_thing(wanted: WantedShares, things: list[str]) -> None:
    site = Site(of_desk=[Share("reserved time on nodes", "node-seconds", "0", 60, 0, 0)])
    site.report("n1", transfers(EVE, 1))
    found = site.listed(wanted)

    assert [each.thing for each in found.shares] == things
    assert found.is_complete == (wanted.most > 1)


def test_user_is_named_if_the_user_database_knows_a_name() -> None:
    site = Site(
        of_desk=[transfers(0, 1), transfers(EVE, 1), Share("connections", "places", "10.0.0.7", 1, 8, 0)]
    )

    assert {each.user for each in site.listed().shares} == {"root", str(EVE), "10.0.0.7"}


def test_desk_that_does_not_answer_costs_its_rows_alone() -> None:
    site = Site(of_desk=None)
    site.report("n1", transfers(EVE, 8))
    found = site.listed()

    assert found.missing == (NO_DESK,)
    assert [each.where for each in found.shares] == ["n1"]


def test_desk_is_asked_once_a_second_however_many_ask() -> None:
    site = Site()
    for _ in range(50):
        site.book.listed(ADMIN, EVERYTHING)
    at_once = site.asked
    site.listed()

    assert (at_once, site.asked) == (1, 2)


def test_thousands_of_nodes_cost_a_few_rows_each_and_silent_ones_none() -> None:
    site = Site()
    things = [f"thing {number}" for number in range(6)]
    full = [
        Share(thing, "places", str(EVE + number), 8 - number, 8, 0) for number in range(5) for thing in things
    ]
    for number in range(5_000):
        site.report(f"n{number}", *full)
    kept = site.nodes.rows(site.clock.at_s)
    found = site.listed(WantedShares(most=3))
    site.clock.at_s += STALE_S + 1

    assert len(kept) == 5_000 * MOST_OF_NODE
    assert {each.share.thing for each in kept} == set(things)
    assert (found.nodes, found.shares[0].nodes, found.shares[0].held_in_all) == (5_000, 5_000, 40_000)
    assert (site.listed().shares, site.nodes.count) == ((), 0)


def test_report_without_shares_leaves_what_was_known() -> None:
    site = Site()
    site.report("n1", transfers(EVE, 8))
    site.nodes.note(NodeReport(node="n1", at_s=site.clock.at_s, limit_bytes=1, used_bytes=0))

    assert len(site.listed().shares) == 1


def test_metrics_tell_of_things_and_of_no_user() -> None:
    site = Site()
    site.report("n1", transfers(EVE, 8, refused=5), transfers(ADA, 2))
    site.report("n2", transfers(EVE, 2, refused=1))
    site.book.show()
    before = site.metrics.value("outrider_shared_refused_total", "transfers", "nodes")
    site.clock.at_s += 60
    site.report("n1", transfers(EVE, 0, refused=7))
    is_due = site.book.is_due
    site.book.show()
    text = site.metrics.text()

    assert (before, is_due, site.book.is_due) == (6, True, False)
    assert site.metrics.value("outrider_shared_held", "transfers", "nodes") == 2
    assert site.metrics.value("outrider_shared_limit", "transfers", "nodes") == 8
    assert site.metrics.value("outrider_shared_most_ratio", "transfers", "nodes") == 0.25
    assert site.metrics.value("outrider_shared_refused_total", "transfers", "nodes") == 8
    assert str(EVE).encode() not in text
    assert SHOW_S < 60


def test_thing_that_nobody_has_any_more_is_none_in_the_metrics() -> None:
    site = Site(of_desk=[transfers(EVE, 8)])
    site.book.show()
    site.of_desk = []
    site.clock.at_s += 60
    site.book.show()

    assert site.metrics.value("outrider_shared_held", "transfers", "head") == 0
    assert site.metrics.value("outrider_shared_most_ratio", "transfers", "head") == 0


def test_requests_are_counted_for_minutes_and_of_so_many_users() -> None:
    clock = Clock(at_s=0)
    counted = RecentRequests(clock)
    for minute in range(recent.MINUTES):
        clock.at_s = 60 * minute
        counted.note(EVE)
    counted.note(ADA)
    most = {each.user: each.held for each in counted.shares()}
    clock.at_s += 60
    later = {each.user: each.held for each in counted.shares()}
    for uid in range(2 * MOST_USERS):
        counted.note(uid)

    assert most == {str(EVE): recent.MINUTES, str(ADA): 1}
    assert later == {str(EVE): recent.MINUTES - 1, str(ADA): 1}
    assert len(counted.shares()) <= MOST_USERS + 2


def test_service_counts_who_asks_and_what_its_desk_knows(running: Make) -> None:
    service: Running = running().start()
    service.fake.desks[0].held = [Share("reservations", "reservations", "0", 3, 0, 0)]
    service.ask("GET", "/v1/reservations/render-1")
    status, body = service.ask("GET", "/v1/shares")
    found = json.loads(body)

    assert status == 200, body
    assert {(each["thing"], each["user"], each["held"]) for each in found["shares"]} >= {
        (THING, name_of(str(os.geteuid())), 1),
        ("reservations", name_of("0"), 3),
    }
    assert found["missing"] == []


def test_administrator_is_answered_while_the_desk_hangs(running: Make) -> None:
    service: Running = running().start()
    asking = threading.Thread(target=service.ask, args=("GET", "/v1/reservations/stuck"))
    asking.start()
    eventually(lambda: "stuck" in service.fake.desks[0].heard, "being stuck", service.stream)
    status, body = service.ask("GET", "/v1/shares")
    service.fake.desks[0].go.set()
    asking.join(PATIENCE_S)
    found = json.loads(body)

    assert (status, found["missing"]) == (200, [NO_DESK])
    assert THING in {each["thing"] for each in found["shares"]}
