"""What the service follows of a policy file's part about leases, and what it refuses to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.core.leases.nodes import MOST, NodeState
from outrider.metadata import leases
from outrider.metadata.errors import FaultyFileError, MetadataError
from outrider.metadata.policies import parse_policies
from outrider.service.answers.decision import Decision
from outrider.service.answers.records import Explanation
from outrider.service.daemon.configuration.policies import PolicyBook
from outrider.service.ports import NodeImage
from outrider.service.requests import Explain, Modify
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of, show, wanted

HOUR_S = 3600
HALF = b"version: 1\nrules: [{name: all}]\nleases: {hour_share: 50%}\n"


def reserve(sandbox: Sandbox, nodes: int, hours_ahead: int, duration: str = "1h") -> Decision:
    """From a full hour of the clock on."""
    first_s = (sandbox.now_s // HOUR_S + 1 + hours_ahead) * HOUR_S
    request = wanted(sandbox, nodes=nodes, start=f"now+{first_s - sandbox.now_s}", duration=duration)
    answer = sandbox.ask(request, ALICE)
    assert isinstance(answer, Decision)
    return answer


def test_reservations_have_at_most_their_share_of_each_hour(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=HALF)
    sandbox.sleep(10)

    first = reserve(sandbox, 2, 1)
    same_hour = reserve(sandbox, 1, 1)
    across = reserve(sandbox, 1, 0, "2h")
    next_hour = reserve(sandbox, 2, 2)

    assert [each.result for each in (first, same_hour, across, next_hour)] == [
        "accepted",
        "refused",
        "refused",
        "accepted",
    ]
    assert same_hour.cause == "policy"
    assert "50 % of an hour" in same_hour.reason


def test_a_change_does_not_count_what_it_replaces_and_is_refused_beyond_the_share(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=HALF)
    sandbox.sleep(10)
    name = reserve(sandbox, 2, 1).name

    smaller = sandbox.ask(Modify(name=name, nodes=1), ALICE)
    larger = sandbox.ask(Modify(name=name, nodes=3), ALICE)
    as_before = sandbox.ask(Modify(name=name, nodes=2), ALICE)

    results = [each.result for each in (smaller, larger, as_before) if isinstance(each, Decision)]
    assert results == ["accepted", "refused", "accepted"]


def test_where_nothing_is_accepted_nothing_is(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=b"version: 1\nrules: [{name: all}]\nleases: {accept: none}\n")
    sandbox.sleep(10)

    answer = sandbox.ask(wanted(sandbox, start="now+2h"), BOB)

    assert isinstance(answer, Decision)
    assert (answer.result, answer.cause) == ("refused", "policy")


PROTECTING = b"version: 1\nrules: [{name: all}]\nleases: {most_slowdown: 200}\n"
"""Twice as long as it takes, on the mean."""


def test_best_effort_that_waits_is_not_slowed_down_beyond_the_bound(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=PROTECTING)
    # One job has the whole site for an hour, and one of all four nodes waits for it.
    sandbox.submit(nodes=4, limit_s=HOUR_S, argv=("sleep", "7200"), is_held=False)
    sandbox.sleep(30)
    sandbox.submit(nodes=4, limit_s=HOUR_S, is_held=False)
    sandbox.sleep(60)

    # Without a reservation they take one and two hours: (1 + 2) / 2 = 1.5 times as long. One that begins when
    # the first job ends lets the second wait for so much longer: by half an hour it is (1 + 2.5) / 2 = 1.75,
    # by two hours (1 + 4) / 2 = 2.5.
    long = sandbox.ask(wanted(sandbox, nodes=1, start="now+61m", duration="2h"), ALICE)
    short = sandbox.ask(wanted(sandbox, nodes=1, start="now+61m", duration="30m"), ALICE)

    assert isinstance(long, Decision)
    assert isinstance(short, Decision)
    assert (long.result, long.cause, short.result) == ("refused", "policy", "accepted")
    assert "best effort would be slowed down 2.5" in long.reason


def test_reservations_fit_into_a_share_with_what_runs_and_what_waits(tmp_path: Path) -> None:
    """Four nodes, of which reservations and jobs are to have three."""
    policies = b"version: 1\nrules: [{name: all}]\nleases: {within_idle: 75%}\n"
    sandbox = Sandbox(tmp_path, policies=policies)
    sandbox.submit(nodes=1, limit_s=HOUR_S, argv=("sleep", "7200"), is_held=False)
    sandbox.sleep(60)

    large = sandbox.ask(wanted(sandbox, nodes=3, start="now+2h", duration="1h"), ALICE)
    small = sandbox.ask(wanted(sandbox, nodes=1, start="now+2h", duration="1h"), ALICE)
    beside = sandbox.ask(wanted(sandbox, nodes=2, start="now+150m", duration="1h"), ALICE)
    behind = sandbox.ask(wanted(sandbox, nodes=2, start="now+3h", duration="1h"), ALICE)
    sandbox.submit(nodes=4, limit_s=HOUR_S, is_held=False)
    sandbox.sleep(60)
    waiting = sandbox.ask(wanted(sandbox, nodes=1, start="now+6h", duration="1h"), ALICE)

    answers = (large, small, beside, behind, waiting)
    assert all(isinstance(each, Decision) for each in answers)
    results = [each.result for each in answers if isinstance(each, Decision)]
    assert results == ["refused", "accepted", "refused", "accepted", "refused"]
    assert isinstance(beside, Decision)
    assert "may fill 3 nodes or processors, and 2 are wanted" in beside.reason


def test_where_there_is_no_best_effort_none_is_protected(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=PROTECTING)
    sandbox.sleep(10)

    answer = sandbox.ask(wanted(sandbox, nodes=4, start="now+1h", duration="10h"), ALICE)

    assert isinstance(answer, Decision)
    assert answer.result == "accepted"


class WithoutImage:
    """A rule of a site's own: nodes that would have to fetch the image come first."""

    def score(self, node: NodeState) -> int:
        return MOST if node.has_image else 0


@pytest.mark.parametrize(("section", "node"), [("", "n2"), ("leases: {nodes: [{by: contrary}]}", "n1")])
def test_nodes_are_taken_in_the_sites_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, node: str
) -> None:
    monkeypatch.setitem(leases._NODE_RULES, "contrary", WithoutImage)
    sandbox = Sandbox(tmp_path, nodes=2, policies=f"version: 1\nrules: [{{name: all}}]\n{section}\n".encode())
    digest = digest_of("ubuntu")
    sandbox.pools["n2"].images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    sandbox.sleep(320)

    answer = sandbox.ask(wanted(sandbox, start="now+2h"), ALICE)

    assert isinstance(answer, Decision)
    assert answer.nodes == node


ADAPTIVE = b"""version: 1
rules: [{name: all}]
leases: {adaptive: {booked: 1000, waiting: 1000, start: 50%, step: 25%, every: 10m, memory: 10m}}
"""


SELDOM = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=120, reconcile_every_s=1_200)
"""Days are simulated."""


def test_the_share_falls_while_jobs_wait_and_says_so(tmp_path: Path) -> None:
    """On four nodes eight jobs are held up by a quarter of an hour each, for an hour that is worth one.

    That is known some minutes later; until then the share has risen.
    """
    sandbox = Sandbox(tmp_path, policies=ADAPTIVE, settings=SELDOM)
    sandbox.sleep(10)
    kept = reserve(sandbox, 2, 42)
    assert kept.result == "accepted"
    sandbox.submit(nodes=4, limit_s=40 * HOUR_S, argv=("sleep", "144000"), is_held=False)
    sandbox.sleep(30)
    for _ in range(8):
        sandbox.submit(nodes=4, limit_s=HOUR_S, is_held=False)
    sandbox.sleep(26 * HOUR_S)

    refused = reserve(sandbox, 2, 42)
    explained = sandbox.ask(Explain(name=kept.name), ALICE)

    assert (refused.result, refused.cause) == ("refused", "policy")
    assert "reservations have at most 0 % of an hour" in refused.reason
    assert "their share went from 25 to 0 %, because" in refused.reason
    assert isinstance(explained, Explanation)
    assert "of reservations in general: their share went from 25 to 0 %" in explained.sentences[-1]
    # What was promised before stays promised: its image is there by now.
    assert show(sandbox, kept.name).reservation.state == "ready"


def test_the_share_rises_while_nobody_waits(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, policies=ADAPTIVE)
    sandbox.sleep(10)
    before = reserve(sandbox, 3, 3)
    sandbox.sleep(1300)

    after = reserve(sandbox, 4, 3)

    assert (before.result, after.result) == ("refused", "accepted")


def test_reservations_without_jobs_make_room_for_more_bookings(tmp_path: Path) -> None:
    """Twelve that nobody uses: no more than half of what is booked is believed to be used."""
    sandbox = Sandbox(tmp_path, policies=ADAPTIVE.replace(b"every: 10m", b"every: 30d"), settings=SELDOM)
    sandbox.sleep(10)
    assert reserve(sandbox, 3, 30).result == "refused"
    for hour in range(12):
        assert reserve(sandbox, 1, hour + 1, "10m").result == "accepted"
    sandbox.sleep(14 * HOUR_S)

    assert reserve(sandbox, 4, 3).result == "accepted"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{lowest: 10%}", "without a price nothing is steered to"),
        ("{booked: 1, start: 50%, highest: 40%}", "lowest, start and highest do not rise"),
        ("{booked: 1, step: 0%}", "a step of nothing never moves it"),
        ("{booked: 1, overbook: 5%}", "overbook"),
    ],
)
def test_a_share_that_cannot_adapt_is_refused(section: str, words: str) -> None:
    text = f"version: 1\nrules: [{{name: all}}]\nleases: {{adaptive: {section}}}\n"

    with pytest.raises(FaultyFileError) as found:
        parse_policies(text.encode(), file="policies.yaml")
    assert any(words in str(each) for each in found.value.problems)


def test_a_first_slice_is_refused_by_the_service_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text("version: 1\nrules: [{name: all}]\nleases: {first_slice: 2m}\n")

    with pytest.raises(MetadataError, match=r"first_slice: the service suspends jobs .*: leave it out"):
        PolicyBook(str(path))
