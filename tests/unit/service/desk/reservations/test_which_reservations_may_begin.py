"""What the desk says unasked: in which reservations a job finds its image wherever it starts."""

from __future__ import annotations

from outrider.service.requests import Cancel
from tests.unit.service.desk.sandbox import Sandbox, reserve, show


def test_it_may_begin_when_its_image_is_on_all_of_its_nodes(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, start="now+1hours")
    before = set(sandbox.may_begin)
    sandbox.sleep(3600 - 30)
    ready = show(sandbox, "render-1").reservation.state
    at_ready = set(sandbox.may_begin)
    sandbox.sleep(60)

    assert before == set()
    assert (ready, at_ready) == ("ready", {"render-1"})
    assert (show(sandbox, "render-1").reservation.state, sandbox.may_begin) == ("active", {"render-1"})


def test_it_may_not_when_one_node_has_lost_it(sandbox: Sandbox) -> None:
    reserve(sandbox, nodes=2, start="now+1hours")
    sandbox.sleep(3600 + 30)
    assert sandbox.may_begin == {"render-1"}
    sandbox.pools["n2"].images.clear()
    losses = 0
    for _ in range(120):
        sandbox.sleep(5)
        losses += not sandbox.may_begin

    # Until it was brought there again.
    assert losses > 0
    assert sandbox.may_begin == {"render-1"}


def test_nothing_is_said_of_one_that_is_over(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+1hours")
    reserve(sandbox, name="later", start="now+1hours")
    sandbox.sleep(3600 + 30)
    assert sandbox.may_begin == {"render-1", "later-2"}
    sandbox.ask(Cancel(name="render-1"))
    assert sandbox.may_begin == {"later-2"}
    sandbox.sleep(24 * 3600)

    assert sandbox.may_begin == set()


def test_it_is_said_again_by_a_service_that_was_restarted(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+1hours")
    reserve(sandbox, name="later", image="debian", start="now+9hours")
    sandbox.sleep(3600 + 30)
    sandbox.may_begin.clear()
    sandbox.restart()
    sandbox.turn()

    assert sandbox.may_begin == {"render-1"}
