"""The way of a reservation: asked for, prepared, ready, begun, over."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationDetails, ReservationList
from outrider.service.answers.site import Status
from outrider.service.requests import (
    Cancel,
    ListReservations,
    Modify,
    Show,
    ShowStatus,
)
from tests.unit.service.desk.sandbox import (
    ADMIN,
    ALICE,
    BOB,
    GIB,
    RATE,
    Sandbox,
    digest_of,
    reserve,
    show,
    wanted,
)


def test_a_reservation_is_accepted_prepared_ready_begun_and_met(sandbox: Sandbox) -> None:
    decision = reserve(sandbox, nodes=2)
    assert decision.result == "accepted"
    assert decision.name == "render-1"
    states: list[str] = []
    for _ in range(1000):
        sandbox.sleep(5)
        shown = show(sandbox, "render-1")
        if not states or states[-1] != shown.reservation.state:
            states.append(shown.reservation.state)

    assert states == ["accepted", "preparing", "ready", "active", "ended"]
    assert shown.receipt is not None
    assert shown.receipt.is_met
    assert shown.receipt.transferred_bytes == 2 * 10 * RATE
    assert shown.receipt.spare_s is not None
    assert 0 < shown.receipt.spare_s <= 60 + 10
    assert sandbox.rms.look().reservations == ()
    assert all(not pool.pins for pool in sandbox.pools.values())


def test_who_asks_before_the_first_look_is_to_ask_again_in_a_moment(sandbox: Sandbox) -> None:
    sandbox.desk = sandbox._desk()
    early = sandbox.ask(wanted(sandbox))
    sandbox.turn()

    assert isinstance(early, Trouble)
    # Clients ask again by themselves when the service is busy.
    assert (early.code, "not been seen yet" in early.message) == ("busy", True)
    assert reserve(sandbox).result == "accepted"


def test_the_batch_system_has_the_reservation_for_its_owner_on_its_nodes(sandbox: Sandbox) -> None:
    decision = reserve(sandbox, nodes=2)

    (there,) = sandbox.rms.look().reservations
    assert (there.name, there.users) == (decision.name, ("alice",))
    assert (there.start_s, there.end_s) == (decision.start_s, decision.end_s)
    assert len(there.nodes) == 2


def test_a_plan_is_answered_as_the_reservation_is(sandbox: Sandbox) -> None:
    for nodes in (3, 4, 2):
        request = wanted(sandbox, nodes=nodes)
        plan = sandbox.ask(replace(request, is_plan=True))
        before = sandbox.ask(ListReservations())
        real = sandbox.ask(request)

        assert isinstance(plan, Decision)
        assert isinstance(real, Decision)
        assert isinstance(before, ReservationList)
        untold = tuple(replace(each, name="") for each in real.offers)
        held = {"offers_until_s": None, "are_offers_protected": False}
        assert replace(real, name="", offers=untold, **held) == plan  # type: ignore[arg-type]


def test_what_cannot_be_ready_in_time_is_refused_with_a_start_that_is_then_accepted(
    sandbox: Sandbox,
) -> None:
    refused = reserve(sandbox, size_bytes=1000 * RATE, start="now+5minutes")
    assert (refused.result, refused.cause) == ("refused", "link")
    assert refused.earliest_start_s == sandbox.now_s + 1000 + sandbox.settings.spread_s

    accepted = reserve(sandbox, size_bytes=1000 * RATE, start=f"now+{1000 + sandbox.settings.spread_s}")
    assert accepted.result == "accepted"
    assert accepted.start_s == refused.earliest_start_s


def test_nobody_gets_what_another_has(sandbox: Sandbox) -> None:
    assert reserve(sandbox, nodes=3).result == "accepted"
    refused = reserve(sandbox, nodes=2, image="debian")

    assert (refused.result, refused.cause) == ("refused", "slots")
    assert any("1 node" in each for each in refused.remedies)


def test_the_same_key_gets_the_same_answer_and_one_reservation(sandbox: Sandbox) -> None:
    request = replace(wanted(sandbox), key="k1", request_hash="a")
    first = sandbox.ask(request)
    sandbox.restart()
    again = sandbox.ask(request)
    other = sandbox.ask(replace(request, request_hash="b"))

    assert first == again
    assert isinstance(other, Trouble)
    assert other.code == "conflict"
    listed = sandbox.ask(ListReservations())
    assert isinstance(listed, ReservationList)
    assert [each.name for each in listed.reservations] == ["render-1"]


def test_a_restart_changes_nothing_that_was_promised(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2)
    reserve(sandbox, nodes=1, image="debian", start="now+20minutes")
    before = [show(sandbox, name) for name in ("render-1", "render-2")]
    sandbox.restart()
    after = [show(sandbox, name) for name in ("render-1", "render-2")]

    assert before == after
    sandbox.sleep(900)
    assert show(sandbox, "render-1").reservation.state == "active"


def test_a_transfer_goes_on_after_a_restart_in_its_midst(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, size_bytes=100 * RATE)
    while show(sandbox, "render-1").reservation.state != "preparing":
        sandbox.sleep(5)
    sandbox.sleep(20)
    sandbox.restart()
    sandbox.sleep(600)

    shown = show(sandbox, "render-1")
    assert shown.reservation.state == "active"
    assert len(sandbox.pools["n1"].images) == 1


def test_cancelling_gives_everything_back_and_is_for_the_owner_alone(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=4)
    refused = sandbox.ask(Cancel(name="render-1"), BOB)
    assert isinstance(refused, Trouble)
    assert refused.code == "not-allowed"
    assert reserve(sandbox, nodes=4, image="debian").result == "refused"

    gone = sandbox.ask(Cancel(name="render-1"))
    again = sandbox.ask(Cancel(name="render-1"))
    assert isinstance(gone, ReservationDetails)
    assert gone == again
    assert gone.reservation.state == "cancelled"
    assert sandbox.rms.look().reservations == ()
    assert reserve(sandbox, nodes=4, image="debian").result == "accepted"


def test_what_was_being_brought_for_a_cancelled_reservation_is_stopped(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE
    reserve(sandbox, nodes=2, size_bytes=300 * RATE, start="now+320")
    sandbox.sleep(30)
    assert sandbox.pools["n1"].arriving
    sandbox.ask(Cancel(name="render-1"))
    sandbox.sleep(5)

    assert not any(pool.arriving or pool.pins for pool in sandbox.pools.values())
    # The link is free for others at once.
    assert reserve(sandbox, image="debian", size_bytes=300 * RATE, start="now+320").result == "accepted"


def test_a_change_is_all_or_nothing(sandbox: Sandbox) -> None:
    first = reserve(sandbox, nodes=2)
    reserve(sandbox, nodes=2, image="debian")
    assert first.start_s is not None
    refused = sandbox.ask(Modify(name="render-1", nodes=3))
    assert isinstance(refused, Decision)
    assert refused.result == "refused"
    assert show(sandbox, "render-1").reservation.nodes == first.nodes

    later_s = first.start_s + 7200
    plan = sandbox.ask(Modify(name="render-1", nodes=3, start_s=later_s, is_plan=True))
    assert show(sandbox, "render-1").reservation.start_s == first.start_s
    changed = sandbox.ask(Modify(name="render-1", nodes=3, start_s=later_s))
    assert isinstance(changed, Decision)
    assert changed == plan
    shown = show(sandbox, "render-1").reservation
    assert (shown.start_s, shown.node_count) == (later_s, 3)
    there = {each.name: each for each in sandbox.rms.look().reservations}
    assert there["render-1"].start_s == later_s
    sandbox.restart()
    assert show(sandbox, "render-1").reservation == shown


def test_a_reservation_that_has_begun_can_be_made_longer(sandbox: Sandbox) -> None:
    first = reserve(sandbox, nodes=2)
    sandbox.sleep(700)
    assert show(sandbox, "render-1").reservation.state == "active"
    moved = sandbox.ask(Modify(name="render-1", start_s=sandbox.now_s + 5000))
    assert isinstance(moved, Trouble)
    longer = sandbox.ask(Modify(name="render-1", duration_s=7200))

    assert isinstance(longer, Decision)
    assert first.start_s is not None
    assert longer.end_s == first.start_s + 7200
    assert sandbox.rms.look().reservations[0].end_s == longer.end_s
    sandbox.restart()
    sandbox.sleep(3600)
    assert show(sandbox, "render-1").reservation.state == "active"


def test_an_image_that_is_there_is_not_brought_again(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1)
    sandbox.sleep(700)
    second = reserve(sandbox, nodes=2, start="now+2hours", duration="30m")

    assert second.nodes_with_image == "n1"
    assert second.saved_bytes == 10 * RATE
    sandbox.sleep(3 * 3600)
    receipt = show(sandbox, "render-2").receipt
    assert receipt is not None
    assert (receipt.transferred_bytes, receipt.saved_bytes) == (10 * RATE, 10 * RATE)


def test_others_see_nothing_of_a_private_image(sandbox: Sandbox) -> None:
    reserve(sandbox, is_private=True, image="secret")
    bobs = sandbox.ask(Show(name="render-1"), BOB)
    own = show(sandbox, "render-1")

    assert "secret" not in repr(bobs)
    assert digest_of("secret") not in repr(bobs)
    assert own.reservation.image.uri == "https://images.example.org/secret"
    sandbox.sleep(600)
    assert all(
        each.readers is not None and each.readers.uids == (ALICE.uid,) for each in sandbox.pools["n1"].fetches
    )


def test_the_status_counts(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2)
    reserve(sandbox, nodes=4, image="debian")
    status = sandbox.ask(ShowStatus(), BOB)

    assert isinstance(status, Status)
    assert status.is_promising
    assert (status.nodes, status.nodes_up, status.transfers_waiting) == (4, 4, 1)
    assert status.reservations["accepted"] == 1
    assert status.decisions == {"accepted": 1, "refused": 1}


def test_a_pool_that_is_too_small_is_gone_round(sandbox: Sandbox) -> None:
    sandbox.pools["n1"].limit_bytes = GIB // 2
    sandbox.sleep(400)
    decision = reserve(sandbox, nodes=3)
    refused = reserve(sandbox, nodes=4, start="now+10hours")

    assert decision.nodes == "n[2-4]"
    assert (refused.result, refused.cause) == ("refused", "pool")
    assert ADMIN.is_admin


def test_an_image_that_fits_into_no_pool_is_not_put_off_to_another_time(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.limit_bytes = GIB // 2
    sandbox.sleep(400)
    refused = reserve(sandbox, nodes=2, size_bytes=GIB)

    assert refused.result == "refused"
    assert "fits into the image pools of 0 nodes, and 2 are asked for" in refused.reason
    assert refused.earliest_start_s is None
    assert refused.remedies == ()


def test_an_image_that_was_given_back_a_second_ago_is_still_there(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1)
    sandbox.sleep(700)
    sandbox.ask(Cancel(name="render-1"))
    sandbox.clock.at_s += 1
    second = reserve(sandbox, nodes=1, start="now+1hour", duration="30m")

    assert (second.nodes_with_image, second.saved_bytes) == ("n1", 10 * RATE)
