"""What goes wrong between a promise and its start: it is mended, or an alarm is raised in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import RmsReservation, Submission
from outrider.rms.twin import Fault
from outrider.service.answers.decision import Decision
from outrider.service.answers.nodes import Reconciled
from outrider.service.answers.records import Explanation
from outrider.service.answers.reply import Trouble
from outrider.service.requests import Caller, Explain, Modify, Reconcile
from outrider.service.settings import Settings
from outrider.store.errors import Full
from outrider.store.sqlite.store import SqliteStore
from tests.unit.service.desk.sandbox import ALICE, RATE, Sandbox, digest_of, reserve, show, wanted

ROOT = Caller(uid=0, user="root", is_admin=True)


def nodes_of(sandbox: Sandbox, name: str = "render-1") -> str:
    return show(sandbox, name).reservation.nodes


def test_a_node_that_goes_down_is_replaced_before_the_start(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, start="now+1hours")
    assert nodes_of(sandbox) == "n[1-2]"
    sandbox.rms.outside.fail("n1")
    sandbox.sleep(120)

    assert nodes_of(sandbox) == "n[2-3]"
    assert sandbox.rms.look().reservations[0].nodes == ("n2", "n3")
    sandbox.sleep(3600)
    assert show(sandbox, "render-1").reservation.state == "active"


def test_a_node_whose_pool_is_silent_is_replaced_before_the_start(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, start="now+1hours")
    sandbox.pools["n2"].is_away = True
    sandbox.sleep(3600)

    shown = show(sandbox, "render-1")
    assert shown.reservation.nodes == "n[1,3]"
    assert shown.reservation.state in ("ready", "active")


def test_why_a_pool_is_silent_is_told_with_the_reservation(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=4, start="now+1hours")
    sandbox.pools["n2"].is_away = True
    sandbox.sleep(600)

    assert "node n2 refuses ls: its pool is gone" in show(sandbox, "render-1").reservation.why


def test_a_node_that_cannot_bring_the_image_is_replaced(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1, start="now+10minutes")
    sandbox.settings = sandbox.settings
    sandbox.pools["n1"].broken = "image has the wrong bytes"
    sandbox.sleep(580)
    sandbox.sleep(30)

    shown = show(sandbox, "render-1")
    assert shown.reservation.nodes == "n2"


def test_a_node_that_never_got_the_image_is_not_taken_for_one_that_has_it(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1, start="now+10minutes")
    sandbox.pools["n1"].broken = "image has the wrong bytes"
    sandbox.sleep(580)
    assert nodes_of(sandbox) == "n2"
    plan = sandbox.ask(replace(wanted(sandbox, nodes=4, start="now+5hours"), is_plan=True))

    assert isinstance(plan, Decision)
    assert "n1" not in expand(plan.nodes_with_image)
    assert digest_of("ubuntu") in sandbox.pools["n2"].images
    assert sandbox.log.counts["outrider_link_bytes_total",] == 10 * RATE, "the one that arrived"
    assert any(line.startswith("transfer given up") for line in sandbox.log.lines)


SLACK = "outrider_slack_at_start_seconds"


def test_slack_is_counted_once_and_is_negative_for_what_came_late(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=4, start="now+10minutes")
    sandbox.pools["n1"].broken = "the server does not answer"
    sandbox.sleep(700)
    assert SLACK not in sandbox.log.observed
    sandbox.pools["n1"].broken = ""
    sandbox.sleep(600)
    assert show(sandbox, "render-1").reservation.state == "active"
    sandbox.sleep(4000)

    (slack_s,) = sandbox.log.observed[SLACK]
    assert -700 <= slack_s <= -90


def test_slack_of_what_never_came_is_negative_and_of_what_was_there_is_not(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=3, start="now+10minutes")
    sandbox.sleep(4500)
    assert reserve(sandbox, nodes=1, start="now").result == "accepted"
    sandbox.sleep(4500)
    good = list(sandbox.log.observed[SLACK])
    for pool in sandbox.pools.values():
        pool.images.clear()
        pool.broken = "the server does not answer"
    reserve(sandbox, nodes=4, start="now+10minutes", duration="10m", image="debian")
    sandbox.sleep(2000)

    assert len(good) == 2
    assert min(good) >= 0
    assert sandbox.log.observed[SLACK][2:] == [-600]


def test_without_another_node_an_alarm_is_raised_before_the_start(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=4, start="now+1hours")
    sandbox.rms.outside.fail("n1")
    sandbox.sleep(120)

    shown = show(sandbox, "render-1").reservation
    assert shown.state == "endangered"
    assert "n1" in shown.why
    sandbox.rms.outside.repair("n1")
    sandbox.sleep(120)
    assert show(sandbox, "render-1").reservation.state == "accepted"


def test_a_slow_node_raises_an_alarm_with_odds_before_the_deadline(tmp_path: Path) -> None:
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, urgent_rate_bytes_per_s=3 * RATE)
    sandbox = Sandbox(tmp_path, settings=settings)
    sandbox.pools["n1"].rate_bytes_per_s = RATE // 10
    reserve(sandbox, nodes=1, size_bytes=200 * RATE, start="now+5minutes")
    sandbox.sleep(120)

    shown = show(sandbox, "render-1")
    assert shown.reservation.state == "endangered"
    assert shown.odds_percent == 0
    assert sandbox.pools["n1"].fetches[-1].rate_bytes_per_s == 3 * RATE
    explained = sandbox.ask(Explain(name="render-1"))
    sandbox.close()
    assert isinstance(explained, Explanation)
    assert any(each.kind == "alarm" for each in explained.decisions)


def test_a_slow_transfer_does_not_make_others_late(sandbox: Sandbox) -> None:
    sandbox.pools["n1"].rate_bytes_per_s = RATE // 20
    reserve(sandbox, nodes=1, size_bytes=100 * RATE, start="now+3minutes")
    reserve(sandbox, name="other", image="debian", nodes=1, size_bytes=100 * RATE, start="now+5minutes")
    sandbox.sleep(301)

    assert show(sandbox, "other-2").reservation.state == "active"
    assert show(sandbox, "render-1").reservation.state == "endangered"
    rates = [each.rate_bytes_per_s for each in sandbox.pools["n1"].fetches if each.owner == "render-1"]
    assert RATE // 10 in rates
    sandbox.restart()
    sandbox.sleep(2000)
    assert show(sandbox, "render-1").reservation.state == "active"
    sandbox.sleep(3600)
    receipt = show(sandbox, "render-1").receipt
    assert receipt is not None
    assert not receipt.is_met
    assert receipt.spare_s is not None
    assert receipt.spare_s < 0


def test_a_reservation_that_the_batch_system_lost_is_put_back_once(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+5hours")
    sandbox.rms.outside.delete_reservation("render-1")
    sandbox.sleep(200)
    assert [each.name for each in sandbox.rms.look().reservations] == ["render-1"]
    sandbox.rms.outside.delete_reservation("render-1")
    sandbox.sleep(200)

    assert sandbox.rms.look().reservations == ()
    assert show(sandbox, "render-1").reservation.state == "cancelled"


def test_a_job_that_runs_on_is_gone_round(sandbox: Sandbox) -> None:
    resources = Resources.of(cpus=8, memory_mib=1024)
    sandbox.rms.submit(
        Submission(user="carol", uid=1003, argv=("sleep",), nodes_wanted=2, resources=resources, limit_s=7200)
    )
    sandbox.sleep(60)
    busy = {node for job in sandbox.rms.look().jobs for node in job.nodes}
    assert len(busy) == 2
    decision = reserve(sandbox, nodes=2, start="now+1hours")
    refused = reserve(sandbox, nodes=3, start="now+1hours")

    assert decision.result == "accepted"
    assert not busy & {each.node for each in show(sandbox, "render-1").staging}
    assert refused.result == "refused"


def test_what_is_known_to_the_batch_system_alone_is_told_and_its_name_is_not_given_again(
    sandbox: Sandbox,
) -> None:
    start_s = sandbox.now_s + 3600
    sandbox.rms.reserve(
        RmsReservation(
            name="render-7",
            nodes=("n1", "n2"),
            start_s=start_s,
            end_s=start_s + 7200,
            users=("bob",),
            is_ours=True,
        )
    )
    sandbox.sleep(700)
    found = sandbox.ask(Reconcile(), ROOT)

    assert isinstance(found, Reconciled)
    assert len(found.findings) == 1
    assert "reservation render-7 is in the batch system, and nothing is known of it" in found.findings[0]
    assert "another outriderd" in found.findings[0]
    assert reserve(sandbox, nodes=2, start="now+1hours").name == "render-8"


def others_reserve(sandbox: Sandbox) -> None:
    """Two of the four nodes, in an hour."""
    start_s = sandbox.now_s + 3600
    sandbox.rms.outside.reserve(
        RmsReservation(
            name="maintenance",
            nodes=("n1", "n2"),
            start_s=start_s,
            end_s=start_s + 7200,
            users=("root",),
            is_ours=False,
        )
    )
    sandbox.sleep(60)


def test_what_others_reserve_is_respected(sandbox: Sandbox) -> None:
    others_reserve(sandbox)

    assert reserve(sandbox, nodes=3, start="now+1hours").result == "refused"
    assert reserve(sandbox, nodes=2, start="now+1hours").nodes == "n[3-4]"


def test_a_batch_system_that_is_away_gets_its_reservation_later(sandbox: Sandbox) -> None:
    sandbox.rms.faults.plan("reserve", Fault.UNREACHED)
    reserve(sandbox, start="now+1hours")
    assert not show(sandbox, "render-1").reservation.is_confirmed
    sandbox.sleep(30)

    assert show(sandbox, "render-1").reservation.is_confirmed
    assert len(sandbox.rms.look().reservations) == 1


def test_nothing_is_promised_when_the_batch_system_has_not_been_seen_for_long(sandbox: Sandbox) -> None:
    sandbox.rms.faults.be_unreachable_until(sandbox.now_s + 100_000)
    sandbox.sleep(sandbox.settings.most_sight_age_s + 60)
    answer = sandbox.ask(wanted(sandbox))

    assert isinstance(answer, Trouble)
    assert answer.code == "unavailable"
    assert "batch system" in answer.message


def test_a_store_that_cannot_be_written_makes_no_promise_and_loses_none(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(sandbox, nodes=1)
    shown = show(sandbox, "render-1")
    with monkeypatch.context() as patch:

        def full(self: SqliteStore) -> object:
            raise Full("store: its disk has no room: free some and try again")

        patch.setattr(SqliteStore, "promise", full)
        answer = sandbox.ask(wanted(sandbox, name="other"))
        assert isinstance(answer, Trouble)
        assert "no room" in answer.message
        sandbox.sleep(20)
        refused = sandbox.ask(replace(wanted(sandbox, name="other"), is_plan=True))
        assert isinstance(refused, Trouble)
    sandbox.sleep(20)

    assert show(sandbox, "render-1").reservation.nodes == shown.reservation.nodes
    assert reserve(sandbox, name="other").result == "accepted"
    assert len(sandbox.rms.look().reservations) == 2


def test_after_a_failure_of_the_store_nothing_is_promised_before_the_batch_system_was_seen(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have there went with the rest that was in memory."""
    others_reserve(sandbox)
    with monkeypatch.context() as patch:

        def full(self: SqliteStore) -> object:
            raise Full("store: its disk has no room: free some and try again")

        patch.setattr(SqliteStore, "promise", full)
        sandbox.ask(wanted(sandbox))
        sandbox.rms.faults.plan("look", *[Fault.UNREACHED] * 4)
    sandbox.sleep(20)
    unseen = sandbox.ask(wanted(sandbox, nodes=3, start="now+1hours"))
    sandbox.sleep(300)

    assert isinstance(unseen, Trouble)
    assert "has not been seen yet" in unseen.message
    assert reserve(sandbox, nodes=3, start="now+1hours").result == "refused"


PROGRAM = b"""
version: 1
rules: [{name: all}]
external: {command: [/bin/judge]}
"""


def test_the_site_s_program_is_asked_before_anything_is_promised(tmp_path: Path) -> None:
    from outrider.metadata.decision import Allowed, PolicyRefusal

    sandbox = Sandbox(tmp_path, policies=PROGRAM)
    sandbox.judge = lambda call: (
        PolicyRefusal(rule="external", sentence="the site's own policy: not today")
        if call.workspace.instances > 2
        else Allowed(rule="external")
    )
    refused = reserve(sandbox, nodes=3)
    accepted = reserve(sandbox, nodes=2)
    more = sandbox.ask(Modify(name="render-1", nodes=3))
    sandbox.close()

    assert (refused.result, refused.reason) == ("refused", "the site's own policy: not today")
    assert accepted.result == "accepted"
    assert isinstance(more, Decision)
    assert more.cause == "policy"
    assert ALICE.uid


def test_an_image_that_somebody_else_brought_need_not_be_brought(sandbox: Sandbox) -> None:
    from outrider.service.ports import NodeImage

    reserve(sandbox, nodes=1, start="now+3hours")
    digest = digest_of("ubuntu")
    sandbox.pools["n1"].images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE)
    sandbox.sleep(sandbox.settings.reconcile_every_s + 10)

    shown = show(sandbox, "render-1")
    assert shown.reservation.state == "ready"
    assert shown.transfers == ()
    sandbox.restart()
    sandbox.sleep(3 * 3600)
    assert show(sandbox, "render-1").reservation.state == "active"
    assert not sandbox.pools["n1"].fetches


def test_reservations_take_whole_nodes(sandbox: Sandbox) -> None:
    assert reserve(sandbox, nodes=3, cpus=1).nodes == "n[1-3]"
    refused = reserve(sandbox, nodes=2, cpus=1)
    too_many = reserve(sandbox, nodes=5, cpus=1)
    too_large = reserve(sandbox, nodes=1, cpus=9)

    assert refused.result == "refused"
    assert "1 of 2 nodes are free" in refused.reason
    assert "5 nodes" in too_many.reason
    assert too_many.earliest_start_s is None
    assert "the site has 0 such nodes" in too_large.reason


def test_a_restart_over_the_start_is_no_alarm(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2)
    while show(sandbox, "render-1").reservation.state != "ready":
        sandbox.sleep(5)
    start_s = show(sandbox, "render-1").reservation.start_s
    sandbox.store.close()
    sandbox.clock.at_s = start_s + 3
    sandbox.store = SqliteStore.open(sandbox.path, sandbox.now_s)
    sandbox.restart()
    assert show(sandbox, "render-1").reservation.state == "active"
    sandbox.sleep(4000)

    shown = show(sandbox, "render-1")
    assert shown.receipt is not None
    assert shown.receipt.is_met
    explained = sandbox.ask(Explain(name="render-1"))
    assert isinstance(explained, Explanation)
    assert not any(each.kind == "alarm" for each in explained.decisions)


def test_what_has_begun_goes_on_when_the_clock_is_set_back(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+10minutes")
    sandbox.sleep(610)
    begun = show(sandbox, "render-1").reservation.state
    sandbox.clock.at_s -= 300
    sandbox.restart()
    sandbox.sleep(60)

    assert begun == "active"
    assert show(sandbox, "render-1").reservation.state == "active"
    assert not [line for line in sandbox.log.lines if "store cannot be used" in line]


def test_pins_that_a_killed_service_has_left_are_taken_away(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1)
    sandbox.sleep(700)
    assert show(sandbox, "render-1").reservation.state == "active"
    digest = digest_of("ubuntu")
    sandbox.pools["n1"].pins[digest, "gone-7"] = sandbox.now_s + 80_000
    sandbox.sleep(sandbox.settings.reconcile_every_s + 10)

    assert [owner for _, owner in sandbox.pools["n1"].pins] == ["render-1"]


def test_pins_of_a_reservation_that_only_the_batch_system_knows_stay(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=1)
    sandbox.sleep(700)
    start_s = sandbox.now_s + 86_400
    sandbox.rms.reserve(
        RmsReservation(
            name="other-7",
            nodes=("n1",),
            start_s=start_s,
            end_s=start_s + 7200,
            users=("bob",),
            is_ours=True,
        )
    )
    sandbox.sleep(60)
    sandbox.pools["n1"].pins[digest_of("ubuntu"), "other-7"] = sandbox.now_s + 80_000
    sandbox.sleep(sandbox.settings.reconcile_every_s + 10)

    assert [owner for _, owner in sandbox.pools["n1"].pins] == ["render-1", "other-7"]
