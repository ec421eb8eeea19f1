"""A reservation that has begun gets more nodes, where its image is already and nobody else has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobState
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationList
from outrider.service.ports import NodeImage
from outrider.service.requests import ListReservations, Modify
from outrider.service.settings import Settings
from tests.amount import examples
from tests.unit.service.desk.sandbox import ADMIN, BOB, RATE, Sandbox, digest_of, reserve, show

NODES, LASTS_S, SETTLED_S = 4, 3600, 320
SETTINGS = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=5)


def site_of(
    folder: Path, settings: Settings = SETTINGS, have_it: tuple[str, ...] = ("n1", "n2", "n3")
) -> Iterator[Sandbox]:
    made = Sandbox(folder, nodes=NODES, settings=settings)
    for name in have_it:
        digest = digest_of("ubuntu")
        made.pools[name].images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.sleep(SETTLED_S)
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Four nodes, of which three have the image."""
    yield from site_of(tmp_path)


def begun(site: Sandbox, nodes: int = 1) -> str:
    answer = reserve(site, nodes=nodes, start="now+60s", duration=f"{LASTS_S}s")
    assert answer.result == "accepted", answer.reason
    site.sleep(70)
    assert show(site, answer.name).reservation.state == "active"
    return answer.name


def changed(site: Sandbox, name: str, nodes: int, *, is_plan: bool = False) -> Decision:
    answer = site.ask(Modify(name=name, nodes=nodes, is_plan=is_plan))
    assert isinstance(answer, Decision), answer
    return answer


def in_batch(site: Sandbox, name: str) -> tuple[str, ...]:
    return next(each.nodes for each in site.rms.look().reservations if each.name == name)


def test_it_has_them_at_once_and_after_a_restart_and_they_are_pinned(site: Sandbox) -> None:
    name = begun(site)

    answer = changed(site, name, 3)
    site.sleep(10)
    key = site.submit(nodes=3, is_held=False, reservation=name, limit_s=600)
    site.sleep(30)
    job = site.job(key)
    others = reserve(site, BOB, name="other", nodes=2, start="now+10m", duration="10m")

    assert (answer.result, answer.nodes, answer.node_count) == ("accepted", "n[1-3]", 3)
    assert answer.transfers == ()
    assert in_batch(site, name) == ("n1", "n2", "n3")
    assert others.result == "refused"
    for node in ("n1", "n2", "n3"):
        owners = {owner for digest, owner in site.pools[node].pins if digest == digest_of("ubuntu")}
        assert name in {owner.removeprefix("reservation:") for owner in owners}
    assert job is not None
    assert job.state is JobState.RUNNING
    site.restart()
    site.sleep(60)
    view = show(site, name).reservation
    assert (view.nodes, view.state) == ("n[1-3]", "active")


def test_a_node_without_the_image_or_with_somebody_elses_promise_is_none_of_them(site: Sandbox) -> None:
    name = begun(site)

    lacks = changed(site, name, 4)
    reserve(site, BOB, image="ubuntu", name="other", nodes=3, start="now+30m", duration="1h")
    promised = changed(site, name, 2)

    assert (lacks.result, promised.result) == ("refused", "refused")
    assert in_batch(site, name) == ("n1",)
    assert show(site, name).reservation.nodes == "n1"


def test_a_plan_changes_nothing(site: Sandbox) -> None:
    name = begun(site)

    planned = changed(site, name, 2, is_plan=True)
    site.sleep(10)
    accepted = changed(site, name, 2)

    assert (planned.result, planned.nodes) == ("accepted", accepted.nodes)
    assert accepted.result == "accepted"


def test_what_it_got_it_can_give_back(site: Sandbox) -> None:
    name = begun(site)
    changed(site, name, 3)
    site.sleep(10)

    fewer = changed(site, name, 1)
    site.sleep(10)
    other = reserve(site, BOB, name="other", nodes=3, start="now+10m", duration="10m")

    assert fewer.result == other.result == "accepted"
    assert len(in_batch(site, name)) == 1


def test_where_the_batch_system_cannot_it_is_said(tmp_path: Path) -> None:
    for site in site_of(tmp_path, replace(SETTINGS, moves_starts=False)):
        name = begun(site)

        answer = site.ask(Modify(name=name, nodes=2))

        assert isinstance(answer, Trouble)
        assert "cannot change its nodes" in answer.message


@pytest.mark.parametrize("terms", [{}, {"nodes": 2}, {"nodes": 1}])
@pytest.mark.parametrize("is_plan", [False, True])
def test_one_that_has_just_ended_is_over(site: Sandbox, terms: dict[str, int], *, is_plan: bool) -> None:
    """A service that was away is asked before it has looked what is over by now."""
    name = begun(site, nodes=2)
    site.sleep(LASTS_S - 12)
    site.clock.at_s += 3

    answer = site.ask(Modify(name=name, is_plan=is_plan, duration_s=2 * LASTS_S, **terms))  # type: ignore[arg-type]

    assert isinstance(answer, Trouble), answer
    assert (answer.code, answer.message) == ("conflict", f"reservation {name} is over: its time has passed")


def test_one_that_has_begun_stays_so_where_the_clock_was_set_back_before_its_start(site: Sandbox) -> None:
    name = begun(site, nodes=2)
    site.clock.at_s -= 30
    site.restart()

    answer = site.ask(Modify(name=name, nodes=1))

    assert isinstance(answer, Decision), answer
    assert (answer.result, show(site, name).reservation.state) == ("accepted", "active")


@pytest.mark.parametrize("seed", range(examples(45)))
def test_it_is_had_exactly_where_enough_nodes_are_free_and_have_the_image(tmp_path: Path, seed: int) -> None:
    """A naive look at every node says how many that are."""
    random = Random(seed)
    have_it = tuple(f"n{number}" for number in range(1, NODES + 1) if random.random() < 0.7 or number == 1)
    for site in site_of(tmp_path, have_it=have_it):
        name = begun(site)
        for number in range(3):
            start = random.randint(5, 90)
            reserve(site, BOB, name=f"r{number}", image="other", nodes=random.choice((1, 2)),
                    start=f"now+{start}m", duration=f"{random.randint(5, 30)}m")  # fmt: skip
        known = site.ask(ListReservations(), ADMIN)
        assert isinstance(known, ReservationList)
        (mine,) = [each for each in known.reservations if each.name == name]
        taken = {
            node for each in known.reservations if each.start_s < mine.end_s for node in expand(each.nodes)
        }
        free = [node for node in have_it if node not in taken]
        count = random.randint(1, NODES - 1)

        answer = changed(site, name, 1 + count)

        assert (answer.result == "accepted") == (count <= len(free)), (free, count, answer.reason)
        if answer.result == "accepted":
            assert set(expand(answer.nodes)) - {mine.nodes} <= set(free)
