"""Jobs of several nodes in a switch, on a twin whose saved machines can move: whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.rms.base import JobState
from outrider.service.answers.reply import Trouble
from outrider.service.requests import DecideSwitch, ShowSwitch, SuspendJob
from tests.amount import examples
from tests.unit.service.desk.jobs.yielding_site import SETTINGS, happened
from tests.unit.service.desk.sandbox import ADMIN, BOB, RATE, digest_of
from tests.unit.service.desk.switch.halls import HALF_MIB, WHOLE_MIB, Halls, made

CONSOLIDATING = replace(SETTINGS, consolidates=True, consolidate_every_s=30, consolidate_actions=2)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Halls]:
    yield from made(tmp_path, SETTINGS, 4)


def drained(site: Halls, *nodes: str) -> None:
    for node in nodes:
        site.rms.outside.drain(node)
    site.sleep(30)


def test_one_machine_leaves_a_drained_node_and_the_others_stay(site: Halls) -> None:
    key = site.machine(HALF_MIB, nodes=3)
    assert site.at(key) == ("n1", "n2", "n3")
    drained(site, "n2")

    begun = site.switch(DecideSwitch(is_plan=False, drained=("n2",), explain=key))
    site.sleep(400)

    (step,) = begun.steps
    assert (step.kind, step.source, step.target) == ("migrate", "n1,n2,n3", "n1,n4,n3")
    # All three are saved and read; the link is one machine's.
    assert begun.cost_mib == begun.bound_mib == 3 * HALF_MIB
    assert step.pause_s == 2 * (5 + 512) + -(-(HALF_MIB << 20) // (RATE // 10))
    words = "\n".join(begun.explanation)
    assert f"{key}.1 stays on n1" in words
    assert f"it is saved and read again there: {key}.2 of its job move" in words
    assert f"{key}.2 leaves n2 for n4" in words
    assert site.at(key) == ("n1", "n3", "n4")
    assert (site.carried, site.starts(key)) == ([f"{key} to n1,n4,n3"], 2)
    assert site.switch(ShowSwitch()).state == "done"


@pytest.mark.parametrize(
    ("count", "nodes", "target", "carried"),
    [
        (4, 2, "n3,n4", ["n3,n4"]),
        (3, 2, "n2,n3", ["n1,n3", "n2,n3"]),
        (4, 3, "n2,n4,n3", ["n1,n4,n3", "n2,n4,n3"]),
    ],
)
def test_first_machine_takes_the_place_of_another_if_there_is_none_before(
    tmp_path: Path, count: int, nodes: int, target: str, carried: list[str]
) -> None:
    """Where its node is drained. The other one is brought away before, since a node has one of a job's."""
    for site in made(tmp_path, SETTINGS, count):
        key = site.machine(WHOLE_MIB, nodes=nodes)
        drained(site, "n1")

        begun = site.switch(DecideSwitch(is_plan=False, drained=("n1",), explain=key))
        site.sleep(600)

        assert [each.target for each in begun.steps] == [target]
        assert any(
            "first one has to be on the first of the job's nodes" in each for each in begun.explanation
        )
        assert site.carried == [f"{key} to {each}" for each in carried]
        assert (site.at(key), site.starts(key)) == (tuple(sorted(target.split(","))), 2)


def test_why_a_job_cannot_leave_is_said(tmp_path: Path) -> None:
    for site in made(tmp_path, SETTINGS, 2):
        key, other = site.machine(HALF_MIB, nodes=2), site.machine(HALF_MIB)
        drained(site, "n1")
        words = "the batch system, its partition or its user's wishes allow it no other node"

        planned = site.switch(DecideSwitch(drained=("n1",)))
        answer = site.ask(DecideSwitch(drained=("n1",), explain=key), ADMIN)

        assert planned.kept == (f"job {key}: {words}",)
        assert [each.job for each in planned.steps] == [other]
        assert isinstance(answer, Trouble)
        assert "allow it no other node" in answer.message


def test_job_that_cannot_be_saved_is_named(site: Halls, monkeypatch: pytest.MonkeyPatch) -> None:
    other, key, shown = site.machine(8_192), site.machine(8_192, nodes=2), site.rms._shown
    monkeypatch.setattr(site.rms, "_shown", lambda job: replace(shown(job), can_save=job.key != key))
    drained(site, "n2")
    planned = site.switch(DecideSwitch(drained=("n2",)))
    fenced = site.ask(DecideSwitch(fences=((key, "n3,n4"),)), ADMIN)
    site.rms.cancel(other, "test")
    site.sleep(30)
    alone = site.ask(DecideSwitch(drained=("n2",)), ADMIN)

    assert planned.kept == (f"job {key}: the batch system cannot have it saved",)
    assert isinstance(fenced, Trouble)
    assert isinstance(alone, Trouble)
    assert (
        fenced.message
        == alone.message
        == f"no switch: job {key} is not moved: the batch system cannot have it saved"
    )


def test_all_machines_of_jobs_count_where_a_plan_would_take_too_long(
    site: Halls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.service.desk.switch.fleet.MOST_MACHINES", 2)
    site.machine(8_192, nodes=2)
    few = site.ask(DecideSwitch(), ADMIN)
    site.machine(8_192)
    many = site.ask(DecideSwitch(), ADMIN)

    assert not isinstance(few, Trouble)
    assert isinstance(many, Trouble)
    assert "jobs have 3 machines: a switch is planned for at most 2" in many.message


def test_job_suspended_by_hand_stays_and_is_named(site: Halls) -> None:
    key = site.machine(HALF_MIB, nodes=2)
    site.ask(SuspendJob(job=key), ADMIN)
    site.sleep(60)

    planned = site.switch(DecideSwitch())

    assert planned.kept == (
        f"job {key}: it was suspended by hand on n1, n2 (outrider migrate, outrider resume)",
    )


def test_job_goes_to_the_nodes_that_are_named_for_it(site: Halls) -> None:
    key = site.machine(HALF_MIB, nodes=2)

    few = site.ask(DecideSwitch(fences=((key, "n4"),)), ADMIN)
    site.switch(DecideSwitch(is_plan=False, fences=((key, "n1,n4"),)))
    site.sleep(400)

    assert isinstance(few, Trouble)
    assert f"job {key} has machines on 2 nodes: name as many" in few.message
    assert site.at(key) == ("n1", "n4")


def swapped(site: Halls) -> tuple[tuple[str, str], tuple[tuple[str, str], ...]]:
    """Two jobs of two nodes each, which fill all four, and where they are to be."""
    one, other = site.machine(WHOLE_MIB, nodes=2), site.machine(WHOLE_MIB, nodes=2)
    assert (site.at(one), site.at(other)) == (("n1", "n2"), ("n3", "n4"))
    return (one, other), ((one, "n3,n4"), (other, "n1,n2"))


def test_two_jobs_change_places_whole_on_full_nodes(site: Halls) -> None:
    (one, other), fences = swapped(site)

    planned = site.switch(DecideSwitch(fences=fences))
    site.switch(DecideSwitch(is_plan=False, fences=fences))
    site.sleep(900)

    kinds = [(each.stage, each.kind, each.source, each.target) for each in planned.steps]
    assert kinds == [
        (1, "suspend", "n1,n2", ""),
        (2, "migrate", "n3,n4", "n1,n2"),
        (3, "resume", "n1,n2", "n3,n4"),
    ]
    # Of two machines each, as in the switch of two jobs of one.
    assert planned.cost_mib == 2 * WHOLE_MIB * (1 + (1 + 1) + (2 + 2))
    assert (site.at(one), site.at(other)) == (("n3", "n4"), ("n1", "n2"))
    assert (site.starts(one), site.starts(other)) == (2, 2)
    assert site.switch(ShowSwitch()).state == "done"


@pytest.mark.parametrize("killed_after_s", [1, 4, 10, 20, 40])
def test_switch_of_a_killed_service_is_carried_to_its_end(site: Halls, killed_after_s: int) -> None:
    (one, other), fences = swapped(site)

    site.switch(DecideSwitch(is_plan=False, fences=fences))
    for _ in range(3):
        site.sleep(killed_after_s)
        site.restart()
    site.sleep(900)

    assert site.switch(ShowSwitch()).state == "done"
    assert (site.at(one), site.at(other)) == (("n3", "n4"), ("n1", "n2"))
    assert (site.starts(one), site.starts(other)) == (2, 2)


def test_job_whose_machines_cannot_be_brought_over_is_planned_anew(site: Halls) -> None:
    key = site.machine(HALF_MIB, nodes=2)
    site.refuses = [key]

    site.switch(DecideSwitch(is_plan=False, fences=((key, "n1,n4"),)))
    site.sleep(900)

    shown = site.switch(ShowSwitch())
    assert (shown.state, site.at(key)) == ("done", ("n1", "n4")), shown
    assert "planned anew" in shown.words


def on_halves(site: Halls) -> tuple[str, str]:
    """Two jobs of two nodes each, which have half of the memory of all four."""
    drained(site, "n3", "n4")
    one = site.machine(HALF_MIB, nodes=2)
    drained(site, "n1", "n2")
    for node in ("n3", "n4"):
        site.rms.outside.repair(node)
    other = site.machine(HALF_MIB, nodes=2)
    for node in ("n1", "n2"):
        site.rms.outside.repair(node)
    assert (site.at(one), site.at(other)) == (("n1", "n2"), ("n3", "n4"))
    return one, other


def test_jobs_move_together_so_that_a_job_of_two_whole_nodes_starts_that_waits(tmp_path: Path) -> None:
    for site in made(tmp_path, CONSOLIDATING, 4):
        one, other = on_halves(site)
        waiting = site.machine(WHOLE_MIB, nodes=2, wanted=JobState.PENDING)
        planned = site.switch(DecideSwitch(explain=waiting))
        site.sleep(900)

        # Both machines of a job are saved and brought; the batch system starts what waits on both nodes.
        assert [(each.kind, len(each.target.split(","))) for each in planned.steps] == [
            ("migrate", 2),
            ("run", 2),
        ]
        # Two of them, and each of the two starts waits for the longest of these.
        assert planned.cost_mib == 2 * HALF_MIB + 2 * HALF_MIB
        assert site.at(one) == site.at(other)
        assert {*site.at(waiting)} == {*site.pools} - {*site.at(one)}
        shown = site.switch(ShowSwitch())
        assert (shown.state, shown.by, shown.actions_left) == ("done", "outrider", 1)


def test_service_moves_no_job_beyond_its_budget(tmp_path: Path) -> None:
    for site in made(tmp_path, replace(CONSOLIDATING, consolidate_actions=0), 4):
        one, other = on_halves(site)
        site.machine(WHOLE_MIB, nodes=2, wanted=JobState.PENDING)
        site.sleep(900)

        assert (site.starts(one), site.starts(other)) == (1, 1)


@pytest.mark.parametrize(("left", "carried"), [("n2", ["n1,n3"]), ("n1", ["n1,n3", "n2,n3"])])
def test_saved_machine_leaves_a_drained_node_and_the_other_waits_for_it(
    site: Halls, left: str, carried: list[str]
) -> None:
    """What waits to go on on a node that is drained meanwhile moves by itself, and no more than that."""
    site.may_go_last = True
    key = site.machine(WHOLE_MIB, nodes=2)
    job = site.job(key)
    assert job is not None
    site.rms.save(key, job.start_s or 0, "makes way")
    site.rms.outside.drain(left)
    site.sleep(600)

    assert site.carried == [f"{key} to {each}" for each in carried]
    assert site.at(key) == tuple(carried[-1].split(","))


def test_saved_machine_waits_where_it_is_while_all_nodes_are_drained(site: Halls) -> None:
    """Nobody has room for it, and the service goes on."""
    site.may_go_last = True
    key = site.machine(WHOLE_MIB, nodes=2)
    job = site.job(key)
    assert job is not None
    site.rms.save(key, job.start_s or 0, "makes way")
    drained(site, *site.pools)
    site.sleep(120)
    meanwhile = list(site.carried)
    for node in site.pools:
        site.rms.outside.repair(node)
    site.sleep(300)

    assert meanwhile == []
    assert site.at(key) == ("n1", "n2")


def test_saved_machine_that_was_moved_while_it_waits_starts_when_its_image_is_there(site: Halls) -> None:
    site.may_go_last = True
    key = site.machine(WHOLE_MIB)
    job, digest = site.job(key), digest_of("ubuntu")
    assert job is not None
    assert site.at(key) == ("n1",)
    site.rms.save(key, job.start_s or 0, "makes way")
    site.submit(None, caller=BOB, argv=("sleep", "9000"), limit_s=9000, eligible=("n1",), is_held=False)
    site.sleep(60)
    waits = site.job(key)
    del site.pools["n2"].images[digest]
    site.rms.hold(key, "its machine moves")
    site.rms.move(key, ("n2",), goes_first=True)
    site.sleep(300)
    began_s = happened(site, key, "starting")[-1]

    assert waits is not None
    assert waits.saved_on == ("n1",)
    assert site.at(key) == ("n2",)
    assert site.pools["n2"].images[digest].added_s <= began_s


@pytest.mark.parametrize("seed", range(examples(40)))
def test_every_job_goes_on_whole_whatever_happens_in_a_switch(tmp_path: Path, seed: int) -> None:
    """Jobs of one to three nodes; nodes are drained, the service is killed, machines cannot be brought."""
    random = Random(seed)
    for site in made(tmp_path, SETTINGS, 5):
        site.may_go_last = True
        keys = [
            site.machine(random.choice((8_192, 16_384)), nodes=random.choice((1, 2, 2, 3)))
            for _ in range(random.randint(2, 5))
        ]
        for _ in range(random.randint(1, 3)):
            node = random.choice(sorted(site.pools))
            drained(site, node)
            site.refuses = random.sample(keys, random.randint(0, 1))
            before = {key: site.at(key) for key in keys}
            planned = site.switch(DecideSwitch(is_plan=False, drained=(node,)))
            for _ in range(random.randint(0, 4)):
                site.sleep(random.randint(0, 25))
                site.restart()
            site.sleep(900)

            shown = site.switch(ShowSwitch())
            assert shown.state == "done", shown
            stays = {each.split(":")[0].removeprefix("job ") for each in planned.kept}
            for key in keys:
                assert len(site.at(key)) == len(before[key]), (key, before[key], planned)
                assert node not in site.at(key) or key in stays, (key, planned)
            site.rms.outside.repair(node)
            site.sleep(30)
