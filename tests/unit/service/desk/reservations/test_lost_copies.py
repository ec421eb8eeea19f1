"""Copies that are gone from their nodes: brought again, and told if nobody knows that they were there."""

from __future__ import annotations

from pathlib import Path

from outrider.service.answers.records import Explanation
from outrider.service.desk.nodes.orders import LOST_CALL_S
from outrider.service.requests import Explain
from tests.unit.service.desk.sandbox import RATE, Sandbox, digest_of, reserve, show


def test_an_image_that_was_emptied_by_hand_is_brought_again(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+1hours")
    reserve(sandbox, name="later", start="now+5hours")
    sandbox.sleep(3600 + 60)
    assert show(sandbox, "render-1").reservation.state == "active"
    assert digest_of("ubuntu") in sandbox.pools["n1"].images
    sandbox.pools["n1"].images.clear()
    sandbox.sleep(4 * 3600)

    later = show(sandbox, "later-2")
    assert later.reservation.state == "active"
    assert digest_of("ubuntu") in sandbox.pools["n1"].images


def test_copy_lost_before_a_restart_is_not_called_ready_while_its_transfer_goes_on(sandbox: Sandbox) -> None:
    """The transfer, which has come to n1, goes on to slower nodes for another reservation."""
    for name in ("n2", "n3", "n4"):
        sandbox.pools[name].rate_bytes_per_s = RATE // 10
    reserve(sandbox, name="wide", nodes=4, start="now+15minutes", duration="5m")
    reserve(sandbox, name="narrow", start="now+1hours")
    narrow, at_first = "narrow-2", show(sandbox, "narrow-2").reservation.nodes
    sandbox.sleep(400)
    while show(sandbox, narrow).reservation.state != "ready":
        sandbox.sleep(5)
    goes_on = {node for node, pool in sandbox.pools.items() if pool.arriving}
    sandbox.pools["n1"].images.clear()
    sandbox.restart()
    sandbox.sleep(2)
    state = show(sandbox, narrow).reservation.state
    sandbox.sleep(3600)

    assert (at_first, state) == ("n1", "preparing")
    assert goes_on == {"n2", "n3", "n4"}
    assert show(sandbox, narrow).reservation.state == "active"
    assert digest_of("ubuntu") in sandbox.pools["n1"].images


def test_image_that_nobody_saw_at_the_start_keeps_no_promise(sandbox: Sandbox) -> None:
    """It was ready, and is gone when the service comes back after the start: it may have gone before."""
    reserve(sandbox, nodes=2, start="now+1hours")
    sandbox.sleep(3600 - 30)
    before = show(sandbox, "render-1").reservation.state
    sandbox.pools["n2"].images.clear()
    sandbox.clock.at_s += 60
    sandbox.restart()
    sandbox.sleep(4000)

    receipt = show(sandbox, "render-1").receipt
    assert before == "ready"
    assert receipt is not None
    assert not receipt.is_met
    assert "s after its start" in receipt.words


def test_image_that_nobody_saw_since_the_start_is_told_when_it_is_not_there(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+2minutes", duration="1h")
    sandbox.sleep(118)
    sandbox.silent.add("n1")
    sandbox.sleep(4)
    begun = show(sandbox, "render-1").reservation
    sandbox.silent.clear()
    sandbox.pools["n1"].images.clear()
    sandbox.sleep(LOST_CALL_S)
    explained = sandbox.ask(Explain(name="render-1"))

    assert begun.state == "active"
    assert isinstance(explained, Explanation)
    (why,) = [each.reason for each in explained.decisions if each.outcome == "endangered"]
    assert why.startswith(
        "nobody has seen image https://images.example.org/ubuntu on n1 since its start, and"
    )


def test_image_that_is_lost_after_the_start_has_kept_its_promise(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, start="now+1hours")
    sandbox.sleep(3600 + 3)
    sandbox.pools["n2"].images.clear()
    sandbox.restart()
    sandbox.sleep(600)
    brought = digest_of("ubuntu") in sandbox.pools["n2"].images
    sandbox.sleep(3600)

    receipt = show(sandbox, "render-1").receipt
    assert brought
    assert receipt is not None
    assert receipt.is_met


def test_copy_that_is_gone_for_one_reservation_is_gone_for_the_other(tmp_path: Path) -> None:
    """The service dies before the node is asked for the other, and is not answered until after its start."""
    site = Sandbox(tmp_path, nodes=1)
    reserve(site, name="early", duration="10m")
    reserve(site, name="first", start="now+2hours", duration="10m")
    site.sleep(1200)
    reserve(site, name="second", start="now+2hours", duration="10m")
    site.sleep(200)
    before = [show(site, name).reservation.state for name in ("first-2", "second-3")]
    site.pools["n1"].images.clear()
    while show(site, "first-2").reservation.state == "ready":
        site.sleep(1)
    site.restart()
    site.pools["n1"].is_away = True
    site.sleep(2 * 3600)
    site.pools["n1"].is_away = False
    site.sleep(900)
    receipts = [show(site, name).receipt for name in ("first-2", "second-3")]
    site.close()

    assert before == ["ready", "ready"]
    assert [receipt is not None and receipt.is_met for receipt in receipts] == [False, False]
