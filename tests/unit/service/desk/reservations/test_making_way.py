"""Leases with a deadline move for others until they begin, and reservations that may yield do, by policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import JobState, RmsReservation, Submission
from outrider.rms.twin import Fault
from outrider.service.answers.decision import Decision
from outrider.service.answers.records import Explanation
from outrider.service.requests import Accept, Asked, Caller, Cancel, Explain
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ALICE, BOB, FREE, RATE, Sandbox, digest_of, reserve, show, wanted

SETTINGS = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=5)
YIELDING = b"version: 1\nrules: [{name: all}]\nleases: {preemption: {}}\n"
RANKED = b"""
version: 1
rules: [{name: guests, users: [bob]}, {name: staff}]
leases: {preemption: {ranks: [staff, guests]}}
"""
SPARED = b"version: 1\nrules: [{name: all}]\nleases: {preemption: {spare_users: [bob]}}\n"


def made(folder: Path, *, nodes: int = 1, policies: bytes = FREE) -> Iterator[Sandbox]:
    site = Sandbox(folder, nodes=nodes, settings=SETTINGS, policies=policies)
    site.sleep(320)
    yield site
    site.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    yield from made(tmp_path)


def floating(site: Sandbox, start_s: int, finish_s: int, duration_s: int, **values: object) -> Decision:
    when = f"start: now+{start_s}s, finish_by: now+{finish_s}s"
    return reserve(site, when=when, duration=f"{duration_s}s", **values)  # type: ignore[arg-type]


def fixed(site: Sandbox, start_s: int, duration_s: int, **values: object) -> Decision:
    return reserve(site, start=f"now+{start_s}s", duration=f"{duration_s}s", **values)  # type: ignore[arg-type]


def booked(site: Sandbox) -> list[RmsReservation]:
    return sorted(site.rms.look().reservations, key=lambda each: each.name)


def place(site: Sandbox, name: str) -> tuple[str, int, int]:
    view = show(site, name).reservation
    return view.nodes, view.start_s, view.end_s


def agrees(site: Sandbox, name: str) -> bool:
    """Whether the batch system has it as it was promised."""
    (found,) = (each for each in booked(site) if each.name == name)
    nodes, start_s, end_s = place(site, name)
    return (fold(found.nodes), found.start_s, found.end_s) == (nodes, start_s, end_s)


def test_lease_with_a_deadline_goes_elsewhere_for_one_that_cannot(site: Sandbox) -> None:
    now_s = site.now_s
    loose = floating(site, 600, 7200, 1800).name

    firm = fixed(site, 900, 1800)
    site.sleep(5)

    assert firm.result == "accepted"
    assert f"{loose} is moved" in firm.reason
    assert place(site, firm.name)[1:] == (now_s + 900, now_s + 2700)
    assert place(site, loose)[1:] == (now_s + 2700, now_s + 4500)
    assert agrees(site, loose)
    assert agrees(site, firm.name)


def test_owner_of_a_moved_lease_is_told_and_its_receipt_says_so(site: Sandbox) -> None:
    loose = floating(site, 600, 7200, 1800).name
    firm = fixed(site, 900, 1800, caller=BOB).name
    why = show(site, loose).reservation.why
    explained = site.ask(Explain(name=loose))
    site.sleep(5000)

    receipt = show(site, loose).receipt

    assert why == f"it was moved for reservation {firm}, which its deadline allows"
    assert isinstance(explained, Explanation)
    assert ("move", "moved") in [(each.kind, each.outcome) for each in explained.decisions]
    assert receipt is not None
    assert receipt.is_met
    assert "it was moved 1 times for others before it began" in receipt.words


def test_refused_request_moves_nobody(site: Sandbox) -> None:
    loose = floating(site, 600, 2700, 1800).name
    before, version = place(site, loose), site.desk._parts.site.live[loose].record.version  # type: ignore[union-attr]

    firm = fixed(site, 900, 1800)

    assert firm.result == "refused"
    assert place(site, loose) == before
    assert site.desk._parts.site.live[loose].record.version == version  # type: ignore[union-attr]


def test_plan_moves_nobody(site: Sandbox) -> None:
    loose = floating(site, 600, 7200, 1800).name
    before = place(site, loose)

    answer = site.ask(replace(wanted(site, start="now+900s", duration="1800s"), is_plan=True))

    assert isinstance(answer, Decision)
    assert answer.result == "accepted"
    assert place(site, loose) == before


def test_lease_that_is_about_to_begin_stays(site: Sandbox) -> None:
    loose = floating(site, 300, 7200, 1800).name
    site.sleep(200)
    before = place(site, loose)

    firm = fixed(site, 600, 900)

    assert firm.result == "refused"
    assert place(site, loose) == before


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_service_that_is_killed_while_it_moves_leases_goes_on(site: Sandbox, lost: int) -> None:
    loose = floating(site, 600, 7200, 1800).name
    site.sleep(5)
    site.rms.faults.plan("reserve", *[Fault.UNREACHED] * lost)

    firm = fixed(site, 900, 1800).name
    moved = place(site, loose)
    site.restart()
    site.sleep(60)

    assert place(site, loose) == moved
    assert agrees(site, loose)
    assert agrees(site, firm)


def test_leases_that_change_places_both_come_to_be(tmp_path: Path) -> None:
    for site in made(tmp_path, nodes=2):
        first = floating(site, 600, 7200, 1800, nodes=2).name
        second = floating(site, 600, 7200, 3600).name

        firm = fixed(site, 900, 900, nodes=2)
        site.sleep(60)

        assert firm.result == "accepted"
        assert all(agrees(site, name) for name in (first, second, firm.name))
        assert not any(show(site, name).odds_percent for name in (first, second, firm.name))
        assert "endangered" not in {show(site, each).reservation.state for each in (first, second)}


def yielding(site: Sandbox, start_s: int, duration_s: int, **values: object) -> Decision:
    when = f"start: now+{start_s}s, preemptible: true"
    return reserve(site, when=when, duration=f"{duration_s}s", **values)  # type: ignore[arg-type]


def test_reservation_that_may_yield_does_so_before_it_begins(tmp_path: Path) -> None:
    for site in made(tmp_path, policies=YIELDING):
        cheap = yielding(site, 600, 3600).name
        site.sleep(5)

        firm = fixed(site, 900, 1800, caller=BOB)
        site.sleep(5)
        found = show(site, cheap)

        assert firm.result == "accepted"
        assert found.reservation.state == "cancelled"
        assert found.receipt is not None
        assert found.receipt.words == f"it yielded to reservation {firm.name}, as it may"
        assert [each.name for each in booked(site)] == [firm.name]
        assert agrees(site, firm.name)
        assert not any("WARNING" in line for line in site.log.lines)


def test_one_that_is_accepted_and_yields_in_one_event_is_over(tmp_path: Path) -> None:
    """Both have waited long enough for the same node. The first transfer is planned, and never begins."""
    for site in made(tmp_path, policies=YIELDING):
        site.pools["n1"].users_percent = 100
        site.sleep(SETTINGS.reconcile_every_s + 10)
        requests = [
            wanted(site, when="start: now+600s, preemptible: true", duration="1h"),
            wanted(site, start="now+900s", duration="30m"),
        ]
        for ticket, (caller, request) in enumerate(zip((ALICE, BOB), requests, strict=True), 1_000):
            site.desk.handle(Asked(ticket=ticket, caller=caller, request=request), site.now_s)
        site.clock.at_s += 10
        site.turn()
        answers = [site.answers[ticket] for ticket in (1_000, 1_001)]
        site.sleep(10)

        assert [each.result for each in answers if isinstance(each, Decision)] == ["accepted", "accepted"]
        assert show(site, "render-1").reservation.state == "cancelled"
        assert show(site, "render-2").reservation.state == "accepted"
        assert not any("store cannot be used" in line for line in site.log.lines)


def test_one_that_has_begun_ends_when_the_other_starts(tmp_path: Path) -> None:
    for site in made(tmp_path, policies=YIELDING):
        cheap = yielding(site, 600, 7200).name
        key = site.rms.outside.submit(
            Submission(
                user=ALICE.user,
                uid=ALICE.uid,
                argv=("work",),
                nodes_wanted=1,
                resources=Resources.of(cpus=8),
                limit_s=7000,
                reservation=cheap,
            )
        )
        site.sleep(700)
        began_s = show(site, cheap).reservation.start_s

        firm = fixed(site, 600, 1800, caller=BOB).name
        starts_s = show(site, firm).reservation.start_s
        still = site.job(key)
        site.sleep(602)
        found = show(site, cheap)

        assert still is not None
        assert still.state is JobState.RUNNING
        assert site.job(key) is None
        assert (found.reservation.start_s, found.reservation.end_s) == (began_s, starts_s)
        assert found.reservation.state == "ended"
        assert found.receipt is not None
        assert found.receipt.words.endswith(f"it ended early, for reservation {firm}")
        assert show(site, firm).reservation.state == "active"


def test_one_that_has_begun_yields_to_nobody_who_comes_at_once(tmp_path: Path) -> None:
    for site in made(tmp_path, policies=YIELDING):
        cheap = yielding(site, 600, 7200).name
        site.sleep(700)

        assert fixed(site, 60, 1800, caller=BOB).result == "refused"
        assert show(site, cheap).reservation.state == "active"


@pytest.mark.parametrize(
    ("policies", "owner", "other", "result"),
    [
        (FREE, BOB, ALICE, "refused"),
        (SPARED, BOB, ALICE, "refused"),
        (SPARED, ALICE, BOB, "accepted"),
        (RANKED, BOB, ALICE, "accepted"),
        (RANKED, ALICE, BOB, "refused"),
    ],
)
def test_policy_says_who_yields_to_whom_after_a_restart_too(
    tmp_path: Path, policies: bytes, owner: Caller, other: Caller, result: str
) -> None:
    for site in made(tmp_path, policies=policies):
        yielding(site, 600, 3600, caller=owner)
        site.restart()
        site.sleep(10)

        assert fixed(site, 900, 1800, caller=other).result == result


def test_one_that_may_not_yield_never_does(tmp_path: Path) -> None:
    for site in made(tmp_path, policies=YIELDING):
        firm = fixed(site, 600, 3600).name

        assert fixed(site, 900, 1800, caller=BOB).result == "refused"
        assert yielding(site, 900, 1800, caller=BOB).result == "refused"
        assert show(site, firm).reservation.state != "cancelled"


def test_lease_moves_for_another_beside_what_a_third_was_offered(tmp_path: Path) -> None:
    """Both nodes from 4200 s on are offered to alice; a lease moves to before that, where there is room."""
    for site in made(tmp_path, nodes=2):
        fixed(site, 600, 3600, caller=BOB, name="crowd")
        first = fixed(site, 600, 1800, caller=BOB, name="first").name
        loose = floating(site, 600, 20_000, 1800, caller=BOB, name="loose").name
        site.ask(Cancel(name=first), BOB)
        refused = fixed(site, 2500, 3600, caller=ALICE, nodes=2)
        offer = next(each for each in refused.offers if each.kind == "later")
        firm = fixed(site, 3000, 1200, caller=BOB, name="firm")
        accepted = site.ask(Accept(name=offer.name))

        assert (firm.result, firm.start_s) == ("accepted", site.now_s + 3000)
        assert place(site, loose)[1] == site.now_s + 600
        assert isinstance(accepted, Decision)
        assert (accepted.result, accepted.start_s, accepted.node_count) == ("accepted", site.now_s + 4200, 2)


def test_copy_of_one_that_is_moved_gives_its_room_back_until_it_is_brought_again(tmp_path: Path) -> None:
    site = Sandbox(tmp_path, nodes=2, settings=SETTINGS)
    for pool in site.pools.values():
        pool.limit_bytes = 35 * RATE
    site.sleep(SETTINGS.reconcile_every_s)
    pins = site.pools["n1"].pins
    fixed(site, 120, 300, name="first", size_bytes=30 * RATE)
    site.sleep(130)
    moved = floating(site, 1100, 3000, 300, name="moved", size_bytes=30 * RATE)
    site.sleep(5)
    before = show(site, moved.name).reservation
    pinned_before = (digest_of("ubuntu"), moved.name) in pins
    other = floating(site, 740, 1300, 30, name="other", image="other", size_bytes=10 * RATE, nodes=2)
    site.sleep(5)
    after = show(site, moved.name).reservation
    pinned_after = (digest_of("ubuntu"), moved.name) in pins
    site.sleep(735)
    active = show(site, other.name).reservation
    site.sleep(place(site, moved.name)[1] - site.now_s)

    assert (before.nodes, after.nodes, active.nodes) == ("n1", "n1", "n[1-2]")
    assert (before.state, after.state, active.state) == ("ready", "preparing", "active")
    assert (pinned_before, pinned_after) == (True, False)
    assert show(site, moved.name).reservation.state == "active"
    assert (digest_of("ubuntu"), moved.name) in pins
