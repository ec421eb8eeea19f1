"""What the service follows of a policy file's part about leases, and what it refuses to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.core.leases.nodes import MOST, NodeState
from outrider.metadata import leases
from outrider.metadata.errors import MetadataError
from outrider.service.answers import Decision
from outrider.service.daemon.threads.reception import PolicyBook
from outrider.service.ports import NodeImage
from outrider.service.requests import Modify
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of, wanted

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


@pytest.mark.parametrize("key", ["most_slowdown: 300", "pricing: {rate: 1}"])
def test_what_simulations_alone_follow_is_refused_and_not_ignored(tmp_path: Path, key: str) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(f"version: 1\nrules: [{{name: all}}]\nleases: {{{key}}}\n")

    with pytest.raises(
        MetadataError, match=f"leases.{key.partition(':')[0]} has an effect in simulations only"
    ):
        PolicyBook(str(path))


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
