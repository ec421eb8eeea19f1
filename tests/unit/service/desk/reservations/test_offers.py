"""What is offered in the place of a refusal, how it is held, and that it keeps nobody else away for long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import Offer
from outrider.service.answers.reply import Trouble
from outrider.service.requests import Accept, Cancel
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ADMIN, BOB, RATE, Sandbox, reserve, show, wanted

HELD_S = 60


def crowded(sandbox: Sandbox) -> None:
    """Of four nodes three are taken from ten minutes from now on, for an hour."""
    reserve(sandbox, BOB, name="crowd", nodes=3, start="now+10minutes", duration="1h")
    sandbox.sleep(1)


def refused(sandbox: Sandbox, **values: object) -> Decision:
    terms: dict[str, object] = {"nodes": 2, "start": "now+15minutes", "duration": "1h", **values}
    decision = reserve(sandbox, **terms)  # type: ignore[arg-type]
    assert decision.result == "refused"
    return decision


def of_kind(decision: Decision, kind: str) -> Offer:
    return next(each for each in decision.offers if each.kind == kind)


def test_refusal_offers_later_and_fewer_nodes(sandbox: Sandbox) -> None:
    crowded(sandbox)

    decision = refused(sandbox)

    later, fewer = of_kind(decision, "later"), of_kind(decision, "fewer-nodes")
    crowd_ends_s = show(sandbox, "crowd", BOB).reservation.end_s
    assert (later.start_s, later.node_count) == (crowd_ends_s, 2)
    assert (fewer.start_s, fewer.node_count) == (decision.start_s, 1)
    assert decision.offers_until_s == sandbox.now_s + HELD_S


def test_shorter_time_is_offered_where_that_helps(sandbox: Sandbox) -> None:
    reserve(sandbox, BOB, name="crowd", nodes=4, start="now+60minutes", duration="1h")
    start_s = sandbox.now_s + 20 * 60

    decision = refused(sandbox, start="now+20minutes", duration="1h")

    shorter = of_kind(decision, "shorter")
    # Forty minutes are free; halving, in six steps from 59 minutes down to 15, finds at least 39 of them.
    assert shorter.start_s == start_s
    assert 39 * 60 <= shorter.end_s - shorter.start_s <= 40 * 60


@pytest.mark.parametrize("kind", ["later", "fewer-nodes"])
def test_offer_that_is_accepted_is_reserved_as_it_was_offered(sandbox: Sandbox, kind: str) -> None:
    crowded(sandbox)
    offer = of_kind(refused(sandbox), kind)

    accepted = sandbox.ask(Accept(name=offer.name))

    assert isinstance(accepted, Decision)
    assert (accepted.result, accepted.start_s, accepted.end_s, accepted.node_count) == (
        "accepted",
        offer.start_s,
        offer.end_s,
        offer.node_count,
    )
    view = show(sandbox, accepted.name).reservation
    assert (view.start_s, view.node_count) == (offer.start_s, offer.node_count)


def test_of_the_offers_of_one_answer_one_can_be_accepted(sandbox: Sandbox) -> None:
    crowded(sandbox)
    decision = refused(sandbox)
    sandbox.ask(Accept(name=decision.offers[0].name))

    again = sandbox.ask(Accept(name=decision.offers[1].name))

    assert isinstance(again, Trouble)
    assert again.code == "not-found"


def test_offers_end_with_their_time_with_a_restart_and_with_the_next_refusal(sandbox: Sandbox) -> None:
    crowded(sandbox)
    late = refused(sandbox).offers[0].name
    sandbox.sleep(HELD_S)
    restarted = refused(sandbox).offers[0].name
    answers = [sandbox.ask(Accept(name=late))]
    sandbox.restart()
    replaced = refused(sandbox).offers[0].name
    refused(sandbox)
    answers += [sandbox.ask(Accept(name=name)) for name in (restarted, replaced)]

    assert [each.code for each in answers if isinstance(each, Trouble)] == ["not-found"] * 3
    assert len({late, restarted, replaced}) == 3


def test_offer_is_nobody_elses(sandbox: Sandbox) -> None:
    crowded(sandbox)
    name = refused(sandbox).offers[0].name

    answers = [sandbox.ask(Accept(name=name), caller) for caller in (BOB, ADMIN)]

    assert [each.code for each in answers if isinstance(each, Trouble)] == ["not-found"] * 2


def test_plan_tells_offers_and_holds_none(sandbox: Sandbox) -> None:
    crowded(sandbox)
    request = replace(wanted(sandbox, nodes=2, start="now+15minutes"), is_plan=True)

    decision = sandbox.ask(request)

    assert isinstance(decision, Decision)
    assert {each.name for each in decision.offers} == {""}
    assert decision.offers_until_s is None


def test_protected_offer_keeps_its_place_until_its_time_is_over(sandbox: Sandbox) -> None:
    crowded(sandbox)
    decision = refused(sandbox)
    assert decision.are_offers_protected

    meanwhile = reserve(sandbox, BOB, name="other", nodes=1, start="now+15minutes")
    sandbox.sleep(HELD_S)
    after = reserve(sandbox, BOB, name="other", nodes=1, start="now+15minutes")

    assert (meanwhile.result, after.result) == ("refused", "accepted")
    assert "offered to another user" in meanwhile.reason


def test_what_leaves_room_for_the_offer_is_accepted(sandbox: Sandbox) -> None:
    crowded(sandbox)
    offer = of_kind(refused(sandbox), "later")

    beside = reserve(sandbox, BOB, name="other", nodes=2, start=f"uts{offer.start_s}", duration="10m")
    accepted = sandbox.ask(Accept(name=offer.name))

    assert beside.result == "accepted"
    assert isinstance(accepted, Decision)
    assert accepted.result == "accepted"


def test_whoever_is_refused_again_and_again_keeps_nobody_away(sandbox: Sandbox) -> None:
    crowded(sandbox)
    protected_s = 0
    for _ in range(30):
        refused(sandbox)
        other = reserve(sandbox, BOB, name="other", nodes=1, start="now+15minutes", duration="30m")
        if other.result == "refused":
            protected_s += 20
        else:
            cancelled = sandbox.ask(Cancel(name=other.name), BOB)
            assert not isinstance(cancelled, Trouble)
        sandbox.sleep(20)

    # Ten minutes have passed, and of ten times a minute one is protected.
    assert protected_s == HELD_S


def test_request_that_cannot_wait_is_not_refused_for_an_offer(sandbox: Sandbox) -> None:
    sandbox.sleep(1)
    reserve(sandbox, BOB, name="crowd", nodes=3, start="now+50s", duration="1h")
    sandbox.sleep(1)
    decision = refused(sandbox, start="now+80s")
    assert of_kind(decision, "fewer-nodes").node_count == 1

    urgent = reserve(sandbox, BOB, name="urgent", nodes=1, start="now+55s")

    assert urgent.result == "accepted"


def test_offers_are_held_to_so_many_users_and_no_more(tmp_path: Path) -> None:
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, most_offers=1)
    sandbox = Sandbox(tmp_path, settings=settings)
    crowded(sandbox)
    first = refused(sandbox)

    second = reserve(sandbox, BOB, nodes=2, start="now+15minutes")

    assert first.offers_until_s is not None
    assert (second.offers_until_s, {each.name for each in second.offers}) == (None, {""})


def test_offers_of_one_user_are_protected_at_a_time(sandbox: Sandbox) -> None:
    crowded(sandbox)
    first = refused(sandbox)

    second = reserve(sandbox, BOB, nodes=2, start="now+15minutes")
    accepted = sandbox.ask(Accept(name=of_kind(second, "later").name), BOB)

    assert (first.are_offers_protected, second.are_offers_protected) == (True, False)
    assert isinstance(accepted, Decision)
    assert accepted.result == "accepted"
