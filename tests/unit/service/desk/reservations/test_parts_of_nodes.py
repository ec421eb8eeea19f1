"""A reservation that names sizes has as much of its nodes, and others have the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.rms.base import JobState, Submission
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.state.node_list import SHARES, WHOLE, as_now, whole
from outrider.service.desk.state.wishes import taken
from outrider.service.requests import Caller, Cancel, Modify
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, reserve, show, wanted

SETTINGS = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=5, parts=("cpus", "memory_mib"))
CPUS = 8
START_S, LASTS_S = 600, 1200


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, nodes=2, cpus=CPUS, settings=SETTINGS)
    made.sleep(320)
    yield made
    made.close()


def half(site: Sandbox, caller: Caller = ALICE, *, cpus: int = CPUS // 2, nodes: int = 2) -> Decision:
    return reserve(site, caller, nodes=nodes, cpus=cpus, start=f"now+{START_S}s", duration=f"{LASTS_S}s")


def submit(site: Sandbox, caller: Caller, reservation: str | None, *, cpus: int, limit_s: int = 60) -> str:
    """A job on one node."""
    return site.rms.outside.submit(
        Submission(
            user=caller.user,
            uid=caller.uid,
            argv=("work",),
            nodes_wanted=1,
            resources=Resources.of(cpus=cpus),
            limit_s=limit_s,
            reservation=reservation,
        ),
        eligible=("n1",),
    )


def state(site: Sandbox, key: str) -> JobState | None:
    job = site.job(key)
    return None if job is None else job.state


def changed(site: Sandbox, name: str, **terms: int) -> Decision:
    answer = site.ask(Modify(name=name, **terms))  # type: ignore[arg-type]
    assert isinstance(answer, Decision), answer
    return answer


def test_two_users_have_halves_of_the_same_nodes_and_a_third_nothing(site: Sandbox) -> None:
    first, second = half(site), half(site, BOB)

    third = half(site, ADMIN)

    assert (first.result, second.result, third.result) == ("accepted", "accepted", "refused")
    assert first.nodes == second.nodes == "n[1-2]"
    assert third.cause == "slots"
    assert third.earliest_start_s == site.now_s + START_S + LASTS_S


def test_jobs_of_both_halves_run_at_the_same_time_and_no_more_than_that(site: Sandbox) -> None:
    first, second = half(site), half(site, BOB)
    jobs = [
        submit(site, ALICE, first.name, cpus=CPUS // 2, limit_s=900),
        submit(site, BOB, second.name, cpus=CPUS // 2, limit_s=900),
    ]
    beyond = submit(site, ALICE, first.name, cpus=1)
    outside = submit(site, BOB, None, cpus=1, limit_s=1500)

    site.sleep(START_S + 20)

    assert [state(site, job) for job in jobs] == [JobState.RUNNING] * 2
    assert [state(site, job) for job in (beyond, outside)] == [JobState.PENDING] * 2
    assert [show(site, each.name, ADMIN).reservation.state for each in (first, second)] == ["active"] * 2


def test_whole_nodes_and_parts_keep_off_each_other(site: Sandbox) -> None:
    half(site)
    request = wanted(site, nodes=1, start=f"now+{START_S}s")
    plain = f"""
version: 1
metadata: {{name: render, image: {{uri: "{request.workspace.metadata.image.uri}"}}}}
deployment: {{nodes: 1, duration: 1h, start: now+{START_S}s}}
"""
    file = parse_workspace(plain.encode(), Circumstances(now_s=site.now_s, zone=UTC), file="ws.yaml")

    answer = site.ask(replace(request, workspace=file), BOB)

    assert isinstance(answer, Decision)
    assert answer.result == "refused"


def test_jobs_of_others_beside_a_part_are_no_conflict(site: Sandbox) -> None:
    outside = submit(site, BOB, None, cpus=CPUS // 2, limit_s=3600)
    site.sleep(10)

    beside, too_much = half(site), half(site, BOB, cpus=CPUS // 2 + 1)
    site.sleep(START_S + 20)

    assert (beside.result, too_much.result) == ("accepted", "refused")
    assert beside.nodes == "n[1-2]"
    assert state(site, outside) is JobState.RUNNING
    assert show(site, beside.name).reservation.state == "active"


def test_parts_are_parts_after_a_restart(site: Sandbox) -> None:
    first = half(site)

    site.restart()
    site.sleep(10)

    assert half(site, BOB).nodes == first.nodes
    assert half(site, ADMIN).result == "refused"
    (seen,) = [each for each in site.rms.look().reservations if each.name == first.name]
    assert seen.size == Resources.of(cpus=CPUS // 2)


def test_reservations_of_earlier_versions_are_of_whole_nodes(site: Sandbox) -> None:
    name = half(site).name
    kept = site.store.live_reservations()[0].reservation
    workspace = kept.workspace
    before = replace(workspace, resources=Resources.of(cpus=1, node=1))
    old = replace(kept, workspace=before)

    assert kept.workspace.name == name
    assert as_now(old).workspace.resources == whole(Resources.of(cpus=1))
    assert as_now(kept) is kept


@pytest.mark.parametrize(
    ("settings", "amounts", "names", "cpus", "is_whole", "says"),
    [
        (Settings(parts=("cpus",)), {"cpus": 3}, {"cpus"}, 3, False, ""),
        (Settings(parts=("cpus",), cpus_at_once=2), {"cpus": 3}, {"cpus"}, 4, False, "4 processors"),
        (Settings(parts=("cpus",)), {"cpus": 3, "memory_mib": 9}, {"cpus", "memory_mib"}, 3, True, "memory"),
        (
            Settings(parts=("cpus",), memory_of_cpu_mib=2),
            {"cpus": 3, "memory_mib": 9},
            {"cpus", "memory_mib"},
            5,
            False,
            "5 processors",
        ),
        (Settings(parts=("cpus",), cpu_numbers=(1, 2, 4)), {"cpus": 3}, {"cpus"}, 4, False, "4 processors"),
        (Settings(parts=("cpus",), cpu_numbers=(1, 2)), {"cpus": 3}, {"cpus"}, 3, True, "environment"),
        (Settings(parts=("cpus",)), {"cpus": 1, "gpus": 1}, {"gpus"}, 1, True, "gpus"),
        (Settings(), {"cpus": 3}, {"cpus"}, 3, True, "processors"),
        (Settings(), {"cpus": 1}, set(), 1, True, ""),
    ],
)
def test_what_cannot_be_kept_apart_is_had_as_a_whole_and_told(
    settings: Settings, amounts: dict[str, int], names: set[str], cpus: int, is_whole: bool, says: str
) -> None:
    found, words = taken(Resources.from_mapping(amounts), frozenset(names), settings)

    assert found["cpus"] == cpus
    assert (found[WHOLE] == SHARES) is is_whole
    assert says in words
    assert bool(says) == bool(words)


def test_sizes_and_nodes_change_together_or_not_at_all(site: Sandbox) -> None:
    mine = half(site, nodes=1)
    half(site, BOB, cpus=CPUS // 2 + 1, nodes=1)
    before = site.rms.look().reservations

    refused = changed(site, mine.name, nodes=2, cpus=CPUS // 2)
    kept = site.rms.look().reservations
    accepted = changed(site, mine.name, nodes=2, cpus=CPUS // 2 - 1)
    site.sleep(5)

    assert (refused.result, accepted.result) == ("refused", "accepted")
    assert kept == before
    (seen,) = [each for each in site.rms.look().reservations if each.name == mine.name]
    assert (seen.nodes, seen.size) == (("n1", "n2"), Resources.of(cpus=CPUS // 2 - 1))


def test_reservation_that_has_begun_gives_back_the_node_without_its_job(site: Sandbox) -> None:
    mine = half(site)
    job = submit(site, ALICE, mine.name, cpus=1, limit_s=900)
    site.sleep(START_S + 20)

    more = site.ask(Modify(name=mine.name, cpus=1))
    fewer = changed(site, mine.name, nodes=1, duration_s=LASTS_S + 600)
    other = reserve(site, BOB, nodes=1, cpus=CPUS, start="now+60s", duration="10m")
    site.sleep(20)

    assert isinstance(more, Trouble)
    assert more.code == "conflict"
    assert (fewer.nodes, fewer.node_count) == ("n1", 1)
    assert other.nodes == "n2"
    assert state(site, job) is JobState.RUNNING
    (seen,) = [each for each in site.rms.look().reservations if each.name == mine.name]
    assert seen.nodes == ("n1",)
    site.restart()
    assert show(site, mine.name).reservation.nodes == "n1"


def test_reservation_whose_jobs_have_all_nodes_gives_none_back(site: Sandbox) -> None:
    mine = half(site)
    for node in ("n1", "n2"):
        site.rms.outside.submit(
            Submission(
                user=ALICE.user, uid=ALICE.uid, argv=("work",), nodes_wanted=1,
                resources=Resources.of(cpus=1), limit_s=900, reservation=mine.name,
            ),
            eligible=(node,),
        )  # fmt: skip
    site.sleep(START_S + 20)

    answer = site.ask(Modify(name=mine.name, nodes=1))

    assert isinstance(answer, Trouble)
    assert "its jobs run on n[1-2]" in answer.message
    assert show(site, mine.name).reservation.nodes == "n[1-2]"


@pytest.mark.parametrize("is_fixed", [False, True])
def test_what_is_free_at_each_instant_but_never_the_same_is_refused_where_that_counts(
    tmp_path: Path, is_fixed: bool
) -> None:
    site = Sandbox(tmp_path, nodes=1, cpus=4, settings=replace(SETTINGS, has_fixed_parts=is_fixed))
    site.sleep(320)
    at_s = site.now_s + START_S

    def asked(first_s: int, last_s: int) -> Decision:
        start, lasts = f"uts{at_s + first_s}", f"{last_s - first_s}s"
        return reserve(site, nodes=1, cpus=2, start=start, duration=lasts)

    # The first has processors 0 and 1, the second 2 and 3, and the third those of the first.
    through = asked(0, 1200)
    asked(0, 600)
    site.ask(Cancel(name=through.name))
    asked(600, 1200)

    answer = asked(0, 1200)

    assert answer.result == ("refused" if is_fixed else "accepted")
    assert ("not the same ones" in answer.reason) is is_fixed
    assert asked(600, 1200).result == ("accepted" if is_fixed else "refused")
    site.close()


def test_nothing_is_changed_under_jobs_where_the_batch_system_cannot(tmp_path: Path) -> None:
    site = Sandbox(tmp_path, nodes=2, cpus=CPUS, settings=replace(SETTINGS, moves_starts=False))
    site.sleep(320)
    mine = half(site)
    submit(site, ALICE, mine.name, cpus=1, limit_s=900)
    site.sleep(START_S + 20)
    before = site.rms.look().reservations

    answer = site.ask(Modify(name=mine.name, duration_s=LASTS_S + 600))
    site.sleep(20)

    assert isinstance(answer, Trouble)
    assert "in which jobs run" in answer.message
    assert site.rms.look().reservations == before
    site.close()
