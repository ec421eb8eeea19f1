"""A reservation with several options at the desk: which is taken, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.state.recorded_answers import read_decision, write_decision
from outrider.service.ports import FoundImage, NodeImage
from tests.unit.service.desk.sandbox import BOB, RATE, Sandbox, digest_of, reserve, show, wanted

TWO_WAYS = "options: [{nodes: 2, duration: 60m}, {nodes: 4, duration: 35m}]"


def asked(sandbox: Sandbox, until: str) -> Decision:
    return reserve(sandbox, nodes=1, duration="1m", when=f"finish_by: now+{until}, {TWO_WAYS}")


def test_option_that_takes_least_is_promised_and_the_other_is_named(sandbox: Sandbox) -> None:
    decision = asked(sandbox, "3hours")

    assert (decision.result, decision.node_count) == ("accepted", 2)
    assert [each.result for each in decision.options] == ["chosen", "possible"]


def test_larger_option_is_promised_when_only_it_keeps_the_deadline(sandbox: Sandbox) -> None:
    decision = asked(sandbox, "50minutes")

    assert (decision.result, decision.node_count) == ("accepted", 4)
    assert decision.start_s is not None
    assert decision.end_s == decision.start_s + 35 * 60
    assert [each.result for each in decision.options] == ["refused", "chosen"]
    assert "deadline" in decision.options[0].words


def test_refusal_names_what_stands_in_the_way_of_each_and_when_it_could_start(sandbox: Sandbox) -> None:
    crowd = reserve(sandbox, BOB, name="crowd", nodes=3, start="now+1minutes", duration="2h")
    sandbox.sleep(1)

    decision = asked(sandbox, "70minutes")

    assert (decision.result, decision.name) == ("refused", "")
    assert [each.result for each in decision.options] == ["refused", "refused"]
    assert all(each.words for each in decision.options)
    assert {each.earliest_start_s for each in decision.options} == {crowd.end_s}
    assert set(_names(sandbox)) == {crowd.name}


def test_plan_says_the_same_and_promises_nothing(sandbox: Sandbox) -> None:
    request = wanted(sandbox, when=f"finish_by: now+50minutes, {TWO_WAYS}")

    plan = sandbox.ask(replace(request, is_plan=True))

    assert isinstance(plan, Decision)
    assert _names(sandbox) == []
    real = sandbox.ask(request)
    assert isinstance(real, Decision)
    assert replace(real, name="") == plan
    assert _names(sandbox) == [real.name]


def test_request_with_options_that_recurs_is_refused(sandbox: Sandbox) -> None:
    request = replace(wanted(sandbox, when=f"start: now+1hour, {TWO_WAYS}"), starts=(1, 2))

    answer = sandbox.ask(request)

    assert isinstance(answer, Trouble)
    assert "recur" in answer.message


def test_recorded_answer_has_its_options(sandbox: Sandbox) -> None:
    decision = asked(sandbox, "50minutes")

    assert read_decision(write_decision(decision)).options == decision.options


LARGE, SMALL = "https://images.example.org/large", "https://images.example.org/small"
WITH_IMAGES = (
    f"options: [{{nodes: 2, duration: 60m, image: {{uri: '{LARGE}'}}}}, "
    f"{{nodes: 4, duration: 35m, image: {{uri: '{SMALL}'}}}}]"
)
TAKES_S = 900
"""How long the large image takes to come."""


def with_images(sandbox: Sandbox) -> Decision:
    request = wanted(sandbox, duration="1m", when=f"finish_by: now+3hours, {WITH_IMAGES}")
    found = (
        FoundImage(size_bytes=TAKES_S * RATE, digest=digest_of("large")),
        FoundImage(size_bytes=RATE, digest=digest_of("small")),
    )
    answer = sandbox.ask(replace(request, option_images=found))
    assert isinstance(answer, Decision), answer
    return answer


def test_option_whose_image_comes_sooner_wins_over_fewer_node_hours(sandbox: Sandbox) -> None:
    decision = with_images(sandbox)

    assert (decision.node_count, decision.image.uri) == (4, SMALL)
    assert [(each.result, each.image) for each in decision.options] == [
        ("possible", LARGE),
        ("chosen", SMALL),
    ]
    assert "image" in decision.options[1].words


def test_image_that_is_on_the_nodes_already_turns_the_choice(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.images[digest_of("large")] = NodeImage(
            digest=digest_of("large"), size_bytes=TAKES_S * RATE, uri=LARGE, added_s=sandbox.now_s
        )
    sandbox.sleep(700)

    decision = with_images(sandbox)
    sandbox.sleep(5)

    assert (decision.node_count, decision.image.uri) == (2, LARGE)
    assert decision.transfers == ()
    assert show(sandbox, decision.name).reservation.image.digest == digest_of("large")


def _names(sandbox: Sandbox) -> list[str]:
    parts = sandbox.desk._parts
    assert parts is not None
    return sorted(parts.site.live)
