"""Who takes what on a node, as its daemon says it: bounded, and nothing that the node's use depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest
from cachemgr.base.shares import Share
from outrider.service.nodes.agent import MOST_NAME, MOST_SHARES, tell_daemon
from outrider.service.ports import NodeReport, TellNode
from tests.unit.service.nodes.test_answers_of_a_daemon import EMPTY, Answering, SlowClock


class Knowing(Answering):
    """A daemon that is quick, and refuses verbs that it does not know."""

    def ask(
        self, verb: str, fields: Mapping[str, object] | None = None, *, timeout_s: float = 60.0
    ) -> dict[str, Any]:
        self.timeouts.append(timeout_s)
        if verb not in self._answers:
            raise BadRequest(f"there is no verb {verb}")
        return self._answers[verb]


def sharing(*rows: object, wants_images: bool = True) -> NodeReport:
    clock = SlowClock()
    answers = {**EMPTY, "instances": {"instances": []}, "shares": {"shares": list(rows)}}
    return tell_daemon(Knowing(answers, clock), TellNode(node="n1", wants_images=wants_images), clock=clock)


ROW = {"thing": "transfers", "unit": "places", "user": "1001", "held": 3, "most": 8, "refused": 2}


def test_full_report_says_who_takes_what() -> None:
    assert sharing(ROW).shares == (Share("transfers", "places", "1001", 3, 8, 2),)
    assert sharing(ROW, wants_images=False).shares is None


def test_shares_of_a_node_have_an_end() -> None:
    found = sharing(*[{**ROW, "thing": "x" * 10_000}] * 10_000).shares

    assert found is not None
    assert len(found) == MOST_SHARES
    assert len(found[0].thing) == MOST_NAME


def test_largest_shares_are_the_ones_that_are_told_on() -> None:
    rows = [{**ROW, "thing": f"a {number}", "held": number % 4} for number in range(500)]
    found = sharing(
        *rows, {**ROW, "thing": "z", "held": 8}, {**ROW, "thing": "z", "held": 1, "most": 0}
    ).shares

    assert found is not None
    assert (found[0].thing, found[0].held, len(found)) == ("z", 8, MOST_SHARES)
    assert {each.held for each in found[1:]} == {3}


def test_older_daemon_has_no_shares_and_is_as_good_as_any() -> None:
    clock = SlowClock()
    older = Knowing({**EMPTY, "instances": {"instances": []}}, clock)
    report = tell_daemon(older, TellNode(node="n1", wants_images=True), clock=clock)

    assert (report.shares, report.images, report.limit_bytes) == (None, (), 100)


@pytest.mark.parametrize("row", [7, {}, {**ROW, "held": "many"}, {**ROW, "most": -1}, {**ROW, "user": 5}])
def test_shares_of_another_form_make_no_node_useless(row: object) -> None:
    report = sharing(row)

    assert (report.shares, report.images) == (None, ())
