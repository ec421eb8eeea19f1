"""Policies in files, and what follows from them for a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, Terms
from outrider.core.reservations.refusal import Cause
from outrider.metadata.decision import (
    Allowed,
    BookedUsage,
    PolicyRefusal,
    Requester,
    core_policy,
    decide,
)
from outrider.metadata.errors import FaultyFileError
from outrider.metadata.policies import Policies, parse_policies

NOW_S = 1_000_000
HOUR_S, DAY_S = 3600, 86_400
ADA = Requester(user="ada", groups=("staff",), account="physics")
REQUEST = Workspace(
    name="web",
    instances=10,
    resources=Resources.of(cpus=1),
    duration_s=HOUR_S,
    start_s=NOW_S + HOUR_S,
    image=Image(uri="web.qcow2", size_bytes=1000),
)
STANDING = BookedUsage(machine_nodes=100)


@pytest.fixture
def policies(policies_text: str) -> Policies:
    return parse_policies(policies_text.encode(), file="policies.yaml")


def sentence(answer: Allowed | PolicyRefusal) -> str:
    assert isinstance(answer, PolicyRefusal)
    return answer.sentence


def asked(
    policies: Policies, standing: BookedUsage = STANDING, request: Workspace = REQUEST, who: Requester = ADA
) -> Allowed | PolicyRefusal:
    return decide(policies, request, who, standing, now_s=NOW_S)


def as_user(user: str, groups: tuple[str, ...] = (), account: str = "") -> Requester:
    return Requester(user=user, groups=groups, account=account)


def test_request_within_its_rule_is_allowed(policies: Policies) -> None:
    assert asked(policies) == Allowed(rule="physics")


@pytest.mark.parametrize(
    ("who", "rule"),
    [
        (as_user("root", ("wheel",), "physics"), "operators"),
        (as_user("ada", (), "physics"), "physics"),
        (as_user("bob"), "everybody"),
        (as_user("bob", ("staff",), "biology"), "everybody"),
    ],
)
def test_first_rule_that_is_about_somebody_counts(policies: Policies, who: Requester, rule: str) -> None:
    assert asked(policies, who=who) == Allowed(rule=rule)


def test_denial_comes_before_every_rule(policies: Policies) -> None:
    by_name = asked(policies, who=as_user("mallory", ("wheel",)))
    by_group = asked(policies, who=as_user("root", ("wheel", "expired")))

    assert by_name == PolicyRefusal(
        rule="deny",
        sentence="mallory may not reserve: the account is closed, write to help@example.org",
    )
    assert isinstance(by_group, PolicyRefusal)


def test_those_whom_a_rule_bars_are_told_its_reason(policies: Policies) -> None:
    answer = asked(policies, who=as_user("guest"))

    assert answer == PolicyRefusal(
        rule="guests", sentence="rule guests lets nobody reserve: guests submit as best effort"
    )


def test_whom_no_rule_is_about_may_not_reserve() -> None:
    policies = parse_policies(b"version: 1\nrules: [{name: a, users: [ada]}]\n", file="p.yaml")

    assert isinstance(asked(policies), Allowed)
    assert sentence(asked(policies, who=as_user("bob"))).startswith("no policy lets bob reserve: ")


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"start_s": NOW_S + 15 * DAY_S}, STANDING,
         "its start is 15d ahead, and 14d are allowed: ask again in 1d, or for an earlier time"),
        ({"finish_by_s": NOW_S + 15 * DAY_S + HOUR_S}, STANDING, "its latest start is 15d ahead"),
        ({"duration_s": 2 * DAY_S + 1}, STANDING, "it lasts 2d1s: ask for 2d at most"),
        ({"image": Image(uri="big.qcow2", size_bytes=60 * 10**9)}, STANDING,
         "image big.qcow2 has 60.0 GB: use one of 50.0 GB at most"),
        ({}, replace(STANDING, reservations=3), "ada has 3 reservations, and 3 are allowed at once: cancel"),
        # 1000 node-hours less 995 leave 5 for 10 nodes: half an hour.
        ({}, replace(STANDING, node_seconds=995 * HOUR_S),
         "10 nodes for 1h are more than what ada has left of 1000 node-hours: ask for 30m"),
        ({}, replace(STANDING, node_seconds=1001 * HOUR_S), "cancel a reservation, or wait"),
        ({}, replace(STANDING, peak_nodes=71),
         "share of all reservations is 80 %, 80 of 100 nodes, and 71 are taken then: ask for 9 nodes"),
        ({}, replace(STANDING, peak_nodes=90), "90 are taken then: ask for another time"),
        ({}, replace(STANDING, peak_nodes_of_account=25), "share of account physics is 30 %, 30 of 100"),
    ],
)  # fmt: skip
def test_refusal_names_the_rule_the_limit_and_the_remedy(
    policies: Policies, change: dict[str, Any], standing: BookedUsage, words: str
) -> None:
    found = sentence(asked(policies, standing, replace(REQUEST, **change)))

    assert found.startswith("rule physics: ")
    assert words in found
    assert ";" not in found


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({"start_s": NOW_S + 14 * DAY_S}, STANDING),
        ({"finish_by_s": NOW_S + 14 * DAY_S + HOUR_S}, STANDING),
        ({"duration_s": 2 * DAY_S}, STANDING),
        ({"image": Image(uri="big.qcow2", size_bytes=50 * 10**9)}, STANDING),
        ({}, replace(STANDING, reservations=2)),
        ({}, replace(STANDING, node_seconds=990 * HOUR_S)),
        ({}, replace(STANDING, peak_nodes=70)),
        ({}, replace(STANDING, peak_nodes_of_account=20)),
    ],
)
def test_what_just_fits_is_allowed(policies: Policies, change: dict[str, Any], standing: BookedUsage) -> None:
    assert asked(policies, standing, replace(REQUEST, **change)) == Allowed(rule="physics")


def test_all_limits_that_are_passed_are_named_at_once(policies: Policies) -> None:
    request = replace(REQUEST, start_s=NOW_S + 30 * DAY_S, duration_s=3 * DAY_S)
    found = sentence(asked(policies, replace(STANDING, reservations=9), request))

    assert found.count("; ") == 2


def test_smaller_of_two_shares_of_the_machine_counts(policies: Policies) -> None:
    found = sentence(asked(policies, replace(STANDING, peak_nodes=31), who=as_user("bob")))

    assert "the share of all reservations is 40 %, 40 of 100 nodes, and 31 are taken then" in found


def test_share_is_rounded_down() -> None:
    text = b"version: 1\nmachine_share: 50%\nrules: [{name: a}]\n"
    policies = parse_policies(text, file="p.yaml")

    assert isinstance(asked(policies, BookedUsage(machine_nodes=21)), Allowed)
    assert "50 %, 9 of 19 nodes" in sentence(asked(policies, BookedUsage(machine_nodes=19)))


def test_nothing_limits_whom_a_rule_does_not_limit(policies: Policies) -> None:
    request, root = (
        replace(REQUEST, start_s=NOW_S + 900 * DAY_S, duration_s=90 * DAY_S),
        as_user("root", ("wheel",)),
    )
    standing = replace(STANDING, reservations=10**6, node_seconds=10**12, peak_nodes_of_account=100)

    assert asked(policies, standing, request, root) == Allowed(rule="operators")
    assert isinstance(asked(policies, replace(standing, peak_nodes=75), request, root), PolicyRefusal)


def test_core_refuses_with_the_policy_s_sentence(policies: Policies) -> None:
    nodes = tuple(Node(name=f"n{number}", capacity=Resources.of(cpus=2)) for number in range(20))
    book = Book(nodes, Terms(), links=ExclusiveLinks(rate_bytes_per_s=1000), pools=None)
    workspace = Workspace(
        name="web", instances=10, resources=Resources.of(cpus=1), duration_s=3 * DAY_S, start_s=NOW_S + 5,
        image=Image(uri="web.qcow2", size_bytes=1000),
    )  # fmt: skip
    seen: list[tuple[int, int]] = []

    def standing(from_s: int, until_s: int) -> BookedUsage:
        seen.append((from_s, until_s))
        return STANDING

    answer = assess(book, workspace, NOW_S, policy=core_policy(policies, ADA, standing))

    assert isinstance(answer, Rejected)
    assert answer.refusal.cause is Cause.POLICY
    assert answer.refusal.sentence() == "rule physics: it lasts 3d: ask for 2d at most"
    assert seen[0] == (NOW_S + 5, NOW_S + 5 + 3 * DAY_S)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("rules:", "rule:", "policies.yaml:7:1: rule: there is no such key; did you mean rules?"),
        ("ahead: 14d", "ahed: 14d", "rules[2].ahed: there is no such key; did you mean ahead?"),
        ("ahead: 14d", "ahead: soon", "rules[2].ahead: \"soon\" in \"soon\" is not a number with a unit"),
        ("account_share: 30%", "account_share: 300%", 'rules[2].account_share: "300%" is not a share'),
        ("node_hours: 1000", "node_hours: 0", "rules[2].node_hours: 0 is too small: 1 or more"),
        ("name: physics", "name: operators", "rules[2].name: operators is the name of a rule above"),
        ("    groups: [wheel]\n", "", "rules[1].name: is never looked at, since rule operators"),
        ("may_reserve: false", "may_reserve: true", "rules[1].because: is said to those only"),
        ("may_reserve: false", "may_reserve: false\n    ahead: 3d", "rules[1].ahead: has no effect"),
        ("users: [guest]", "users: [a b]", '"a b" is not the name of a user'),
        ("users: [guest]", "users: guest", "rules[1].users: \"guest\" is not a list"),
        ("because: the account", "because: |\n      the account", "deny[0].because: is not a sentence"),
        ("/usr/local/sbin/may-reserve", "may-reserve", "external.command[0]: \"may-reserve\" is no"),
        ("timeout: 5s", "timeout: 5", "external.timeout: is more than a minute"),
        ("when_it_fails: refuse", "when_it_fails: maybe", "write 'refuse' or 'allow'"),
        ("version: 1", "version: '1'", "version: \"1\" is not allowed here: write 1"),
    ],
)  # fmt: skip
def test_fault_of_policies_is_named(before: str, after: str, expected: str, policies_text: str) -> None:
    assert before in policies_text
    with pytest.raises(FaultyFileError) as caught:
        parse_policies(policies_text.replace(before, after, 1).encode(), file="policies.yaml")

    assert len(caught.value.problems) == 1
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\nrules: []\n", "p.yaml:2:8: rules: is too short: at least 1 items"),
        ("version: 1\ndeny: [{because: x}]\nrules: [{name: a}]\n", "p.yaml:2:8: deny[0]: names nobody"),
        ("version: 1\nrules: [{}]\n", "p.yaml:2:9: rules[0].name: is missing: what a refusal calls the rule"),
    ],
)
def test_policies_that_mean_nothing_are_refused(text: str, expected: str) -> None:
    with pytest.raises(FaultyFileError) as caught:
        parse_policies(text.encode(), file="p.yaml")

    assert expected in str(caught.value)
    assert len(caught.value.problems) == 1
