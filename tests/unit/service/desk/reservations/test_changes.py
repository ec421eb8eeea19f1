"""What a change promises is so now, and not by what was seen half a minute ago."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.answers.decision import Decision
from outrider.service.ports import NodeImage
from outrider.service.requests import Modify
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import BOB, RATE, Sandbox, digest_of, reserve, show

LOOK_S = 60


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Two nodes that have the image; the batch system is looked at once a minute."""
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=LOOK_S)
    made = Sandbox(tmp_path, nodes=2, settings=settings)
    for pool in made.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.sleep(320)
    yield made
    made.close()


def looked_s(site: Sandbox) -> int:
    parts = site.desk._parts
    assert parts is not None
    return parts.reconciler._seen_s


def begins_unseen(site: Sandbox, node: str) -> None:
    """A job that has begun since the last look, and goes on for twenty minutes."""
    while site.now_s - looked_s(site) < LOOK_S // 2:
        site.sleep(1)
    seen_s = looked_s(site)
    site.submit(None, caller=BOB, argv=("sleep", "1200"), limit_s=1200, eligible=(node,), is_held=False)
    site.sleep(5)
    assert looked_s(site) == seen_s


def changed(site: Sandbox, request: Modify) -> Decision:
    answer = site.ask(request)
    assert isinstance(answer, Decision), answer
    return answer


def test_reservation_does_not_begin_sooner_on_a_node_that_has_just_been_taken(site: Sandbox) -> None:
    name = reserve(site, nodes=2, start="now+1hours").name
    begins_unseen(site, "n1")

    answer = changed(site, Modify(name=name, start_s=site.now_s + 60))

    assert (answer.result, answer.cause) == ("refused", "slots")


def test_reservation_gets_no_more_nodes_of_those_that_have_just_been_taken(site: Sandbox) -> None:
    name = reserve(site, nodes=1, start="now+150s", duration="2h").name
    site.sleep(400)
    shown = show(site, name).reservation
    assert shown.state == "active"
    begins_unseen(site, "n2" if shown.nodes == "n1" else "n1")

    assert changed(site, Modify(name=name, nodes=2)).result == "refused"


def test_change_to_other_nodes_waits_until_these_keep_the_room(site: Sandbox) -> None:
    """Users have taken it since the node spoke."""
    for pool in site.pools.values():
        pool.limit_bytes, pool.users_percent = 25 * RATE, 100
        pool.images.clear()
    site.sleep(320)
    name = reserve(site, nodes=1, start="now+1hours", duration="10m").name
    other = next(node for node in site.pools if node != show(site, name).reservation.nodes)
    assert site.pools[other].user_holds("copy", 20 * RATE, site.now_s + 7200, site.now_s)

    answer = changed(site, Modify(name=name, nodes=2))

    assert (answer.result, answer.cause) == ("refused", "pool")
