"""Switches of a whole site, carried out on a twin whose saved machines can move: swaps, drains, crashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsNode, Sight, Unavailable
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reply import Trouble
from outrider.service.daemon.threads.planning import planned
from outrider.service.desk.batch.job_effects import is_move, machine_of, moved_by
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.state.site import Site
from outrider.service.desk.switch import switching
from outrider.service.desk.switch.decision import DecidedStep, SwitchDecision, read_switch, write_switch
from outrider.service.desk.switch.steps import order_step
from outrider.service.ports import Call, Carry, Finished, PlanMoves
from outrider.service.requests import Asked, DecideSwitch, MigrateJob, ResumeJob, ShowSwitch, SuspendJob
from outrider.store.errors import Damaged
from outrider.store.records import Effect
from tests.amount import examples
from tests.unit.service.desk.jobs.yielding_site import SETTINGS, SETTLED_S, happened
from tests.unit.service.desk.sandbox import ADMIN, RATE, Pool
from tests.unit.service.desk.switch.halls import HALF_MIB, WHOLE_MIB, Halls, made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Halls]:
    yield from made(tmp_path, SETTINGS)


def swap_of(site: Halls) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Two machines, each of which fills its node, and where they are to be."""
    one, other = site.machine(WHOLE_MIB), site.machine(WHOLE_MIB)
    return one, other, ((one, site.at(other)[0]), (other, site.at(one)[0]))


def test_two_machines_of_full_nodes_change_places(site: Halls) -> None:
    one, other, fences = swap_of(site)
    before = site.at(one), site.at(other)

    planned = site.switch(DecideSwitch(fences=fences))
    site.sleep(60)
    assert (site.at(one), site.at(other)) == before, "a plan does nothing"
    site.switch(DecideSwitch(is_plan=False, fences=fences))
    site.sleep(300)

    kinds = [(each.stage, each.kind) for each in planned.steps]
    assert kinds == [(1, "suspend"), (2, "migrate"), (3, "resume")], "there is no third node"
    # 64 GiB saved, migrated, and read from another node, which counts twice; stages before are added.
    assert planned.cost_mib == WHOLE_MIB * (1 + (1 + 1) + (2 + 2))
    shown = site.switch(ShowSwitch())
    assert (shown.state, {each.state for each in shown.steps}) == ("done", {"done"}), shown
    assert (site.at(one), site.at(other)) == (before[1], before[0])
    assert (site.starts(one), site.starts(other)) == (2, 2), "each was suspended once"


def test_drained_node_is_emptied_and_each_machine_is_named_with_its_pause(site: Halls) -> None:
    key = site.machine(HALF_MIB)
    node = site.at(key)[0]
    other = next(name for name in site.pools if name != node)

    refused = site.ask(DecideSwitch(is_plan=False, drained=(node,)), ADMIN)
    site.rms.outside.drain(node)
    site.sleep(30)
    begun = site.switch(DecideSwitch(is_plan=False, drained=(node,)))
    site.sleep(300)

    assert isinstance(refused, Trouble)
    assert "takes jobs: drain it in the batch system first" in refused.message
    (step,) = begun.steps
    assert (step.kind, step.source, step.target) == ("migrate", node, other)
    # Saved and read with 64 MiB/s, 5 s spare each time, and carried with a tenth of the link.
    assert step.pause_s == 2 * (5 + 512) + -(-(HALF_MIB << 20) // (RATE // 10))
    assert site.at(key) == (other,)
    assert site.switch(ShowSwitch()).state == "done"


def test_memory_that_a_node_tells_apart_is_counted_and_machines_of_other_nodes_are_left_out(
    site: Halls,
) -> None:
    """As with Grid Engine, which promises slots, and shows jobs on nodes that the service does not lead."""
    inside, outside = site.machine(HALF_MIB), site.machine(HALF_MIB)
    look = site.rms.look

    def seen() -> Sight:
        sight = look()
        nodes = [
            replace(each, capacity=Resources.of(cpus=8), memory_bytes=WHOLE_MIB << 20) for each in sight.nodes
        ]
        jobs = [replace(job, nodes=("away",)) if job.key == outside else job for job in sight.jobs]
        return replace(sight, nodes=tuple(nodes), jobs=tuple(jobs))

    site.rms.look = seen  # type: ignore[method-assign]
    site.sleep(30)
    target = next(name for name in site.pools if name != site.at(inside)[0])
    planned = site.switch(DecideSwitch(fences=((inside, target),)))
    refused = site.ask(DecideSwitch(fences=((outside, target),)), ADMIN)

    assert [(step.kind, step.job, step.target) for step in planned.steps] == [("migrate", inside, target)]
    assert isinstance(refused, Trouble)
    words = f"job {outside} is not moved: it is on nodes that are not this service's"
    assert words in refused.message
    assert planned.kept == (words.replace(" is not moved", ""),)


def test_machine_that_is_moved_just_as_it_was_let_go_on_does_not_go_on_where_it_was(
    site: Halls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look has not shown yet that it waits: its state is on its way when that comes."""
    key = site.machine(HALF_MIB)
    (node,), others, asked = site.at(key), site._others, 0

    def slowly(call: Call) -> object:
        nonlocal asked
        if not isinstance(call, Carry) or not is_move(call.effect):
            return others(call)
        asked += 1
        if asked < 4:
            return Unavailable("its machine is on its way")
        site.rms.move(key, tuple(moved_by(call.effect)["targets"]))
        return None

    monkeypatch.setattr(site, "_carry_out", slowly)
    site.ask(SuspendJob(job=key))
    site.sleep(60)
    site.ask(ResumeJob(job=key))
    answer = site.ask(MigrateJob(job=key))
    site.sleep(120)

    assert isinstance(answer, JobDetails), answer
    assert site.at(key) not in ((), (node,))
    assert site.starts(key) == 2


def test_machine_goes_where_its_image_is(tmp_path: Path) -> None:
    """Two nodes have as much room; the first of them lacks the image."""
    site = Halls(tmp_path, nodes=3, settings=SETTINGS)
    site.pools["n2"].images.clear()
    site.sleep(SETTLED_S)
    key = site.machine(HALF_MIB)
    assert site.at(key) == ("n1",)
    site.pools["n2"].images.clear()
    site.rms.outside.drain("n1")
    site.sleep(30)

    planned = site.switch(DecideSwitch(drained=("n1",), explain=key))

    assert [each.target for each in planned.steps] == ["n3"]
    assert any(each.startswith("image: n3 has ") for each in planned.explanation)
    site.close()


def test_what_cannot_leave_a_drained_node_is_named(site: Halls) -> None:
    key = site.machine(HALF_MIB)
    node = site.at(key)[0]
    site.machine(HALF_MIB)
    site.ask(SuspendJob(job=key), ADMIN)
    site.sleep(60)
    site.rms.outside.drain(node)
    site.sleep(30)

    answer = site.ask(DecideSwitch(drained=(node,), explain=key), ADMIN)
    planned = site.switch(DecideSwitch(drained=(node,)))

    assert isinstance(answer, Trouble)
    assert f"job {key} is not moved: it was suspended by hand on {node}" in answer.message
    assert any(each.startswith(f"job {key}: it was suspended by hand") for each in planned.kept)


def carried_to_its_end(site: Halls, kills_s: Iterable[int]) -> tuple[str, bool, tuple[int, int]]:
    """The service is killed after each of these times, and started again: how the switch ended, whether two
    machines have changed places, and how often each has started."""
    one, other, fences = swap_of(site)
    before = site.at(one), site.at(other)

    site.switch(DecideSwitch(is_plan=False, fences=fences))
    for after_s in kills_s:
        site.sleep(after_s)
        site.restart()
    site.sleep(600)

    has_changed = (site.at(one), site.at(other)) == (before[1], before[0])
    return site.switch(ShowSwitch()).state, has_changed, (site.starts(one), site.starts(other))


@pytest.mark.parametrize("killed_after_s", [1, 2, 4, 6, 8, 10, 15, 20, 30, 40])
def test_switch_of_a_killed_service_is_carried_to_its_end(site: Halls, killed_after_s: int) -> None:
    # No machine was suspended twice.
    assert carried_to_its_end(site, [killed_after_s] * 3) == ("done", True, (2, 2))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(100)))
def test_switch_is_carried_to_its_end_whenever_the_service_is_killed(site: Halls, seed: int) -> None:
    random = Random(seed)
    kills_s = [random.randint(0, 20) for _ in range(random.randint(1, 8))]

    assert carried_to_its_end(site, kills_s) == ("done", True, (2, 2))


def test_step_that_fails_leads_to_a_new_plan_from_there(site: Halls) -> None:
    one, other, fences = swap_of(site)
    before = site.at(one), site.at(other)
    site.refuses = [one, other]

    site.switch(DecideSwitch(is_plan=False, fences=fences))
    site.sleep(900)

    shown = site.switch(ShowSwitch())
    assert shown.state == "done", shown
    assert shown.number > 1
    assert "planned anew: job" in shown.words
    assert (site.at(one), site.at(other)) == (before[1], before[0])


def test_switch_that_fails_again_and_again_ends(site: Halls) -> None:
    one, other, fences = swap_of(site)
    site.refuses = [one, other] * 20

    site.switch(DecideSwitch(is_plan=False, fences=fences))
    site.sleep(2_000)

    shown = site.switch(ShowSwitch())
    assert shown.state == "failed"
    assert "is not so" in shown.words
    assert shown.number == 3
    # What it had suspended has gone on where it was.
    assert [len(site.at(key)) for key in (one, other)] == [1, 1]
    assert shown.asleep == ()


def test_machine_of_whose_move_nothing_is_known_any_more_goes_on_all_the_same(site: Halls) -> None:
    one, other, fences = swap_of(site)
    site.switch(DecideSwitch(is_plan=False, fences=fences))
    moves = list[Effect]()
    while not moves:
        site.sleep(1)
        waiting = [each for key in (one, other) for each in site.store.waiting_effects(machine_of(key))]
        suspended = {job.key for job in site.rms.look().jobs if job.state is JobState.SUSPENDED}
        moves = [each for each in waiting if is_move(each) and moved_by(each)["job"] in suspended]
    job = moved_by(moves[0])["job"]
    with site.store.progress() as progress:
        for each in site.store.waiting_effects(machine_of(job)):
            progress.finish_effect(each.identity, site.now_s)
    site.sleep(900)

    assert site.switch(ShowSwitch()).state == "done"
    assert [len(site.at(key)) for key in (one, other)] == [1, 1]


def test_machine_for_which_there_was_no_room_goes_on_when_there_is_some(site: Halls) -> None:
    one, other = site.machine(WHOLE_MIB), site.machine(WHOLE_MIB)
    (left,), (full,) = site.at(one), site.at(other)
    site.rms.outside.drain(left)
    site.sleep(30)
    site.may_go_last = True

    site.switch(DecideSwitch(is_plan=False, drained=(left,)))
    site.sleep(300)
    # The one that was submitted first has the room.
    meanwhile = site.at(one), site.at(other)
    site.rms.cancel(one, "test")
    site.sleep(300)

    assert site.switch(ShowSwitch()).state == "done"
    assert meanwhile == ((full,), ())
    assert site.at(other) == (full,)


CONSOLIDATING = replace(SETTINGS, consolidates=True, consolidate_every_s=30, consolidate_actions=2)


def halved(site: Halls) -> tuple[str, str, str]:
    """Two machines of half a node, each on a node of its own, and one that waits for a whole node."""
    keys = [site.machine(HALF_MIB) for _ in range(4)]
    by_node = {node: [key for key in keys if site.at(key) == (node,)] for node in site.pools}
    for pair in by_node.values():
        assert len(pair) == 2
        site.rms.cancel(pair[0], "test")
    left = [pair[1] for pair in by_node.values()]
    return left[0], left[1], site.machine(WHOLE_MIB, wanted=JobState.PENDING)


def test_machines_move_together_so_that_a_job_starts_that_waits(tmp_path: Path) -> None:
    for site in made(tmp_path, CONSOLIDATING):
        one, other, waiting = halved(site)
        site.sleep(600)

        assert site.at(one) == site.at(other) != ()
        assert len(site.at(waiting)) == 1
        assert site.starts(one) + site.starts(other) == 3, "one of them moved, once"
        shown = site.switch(ShowSwitch())
        assert (shown.state, shown.by, shown.is_consolidating) == ("done", "outrider", True)
        assert shown.actions_left == 1


def test_service_that_does_not_consolidate_moves_nothing(tmp_path: Path) -> None:
    for site in made(tmp_path, SETTINGS):
        one, other, waiting = halved(site)
        site.sleep(600)

        assert site.at(waiting) == ()
        assert site.starts(one) + site.starts(other) == 2
        planned = site.switch(DecideSwitch(explain=waiting))
        assert [each.kind for each in planned.steps] == ["migrate", "run"]
        assert planned.explanation[0].startswith(f"{waiting} is started on ")


def test_budget_of_an_hour_is_kept(tmp_path: Path) -> None:
    for site in made(tmp_path, replace(CONSOLIDATING, consolidate_actions=1)):
        halved(site)
        site.sleep(600)
        assert site.switch(ShowSwitch()).actions_left == 0
        before = len(site.carried)
        for key in [job.key for job in site.rms.look().jobs if job.state is JobState.RUNNING]:
            site.rms.cancel(key, "test")
        site.sleep(10)
        halved(site)
        site.sleep(600)

        assert len(site.carried) == before == 1


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda key: DecideSwitch(fences=(("99", "n1"),)), "job 99 has no machine that can be saved"),
        (lambda key: DecideSwitch(fences=((key, "n9"),)), "there is no node n9"),
        (lambda key: DecideSwitch(drained=("n9",)), "there is no node n9"),
        (lambda key: DecideSwitch(explain="99"), "job 99 has no machine that can be saved"),
        (lambda key: DecideSwitch(drained=("n1", "n2")), "machine"),
    ],
)
def test_what_cannot_be_planned_is_said(site: Halls, request_of: object, words: str) -> None:
    key = site.machine(HALF_MIB)

    answer = site.ask(request_of(key), ADMIN)  # type: ignore[operator]

    assert isinstance(answer, Trouble)
    assert words in answer.message


def test_site_without_machines_has_no_switch(site: Halls) -> None:
    answer = site.ask(DecideSwitch(), ADMIN)

    assert isinstance(answer, Trouble)
    assert "no job runs in a virtual machine" in answer.message
    assert site.switch(ShowSwitch()).state == "none"


def test_nobody_waits_while_a_switch_is_planned(site: Halls) -> None:
    site.machine(HALF_MIB)

    asked = site.desk.handle(Asked(ticket=900, caller=ADMIN, request=DecideSwitch()), site.now_s)
    (call,) = [each for each in asked.calls if isinstance(each, PlanMoves)]
    meanwhile = site.switch(ShowSwitch())
    planned_by = Finished(call=call, result=planned(call))
    answered = site.desk.handle(planned_by, site.now_s)
    again = site.desk.handle(planned_by, site.now_s)

    assert asked.replies == again.replies == ()
    assert meanwhile.state == "none"
    ((ticket, answer),) = [(each.ticket, each.answer) for each in answered.replies]
    assert (ticket, getattr(answer, "state", answer)) == (900, "planned")


def test_whoever_asked_is_told_if_the_site_changes_while_it_is_planned(site: Halls) -> None:
    site.machine(HALF_MIB)
    asked = site.desk.handle(Asked(ticket=900, caller=ADMIN, request=DecideSwitch()), site.now_s)
    (call,) = [each for each in asked.calls if isinstance(each, PlanMoves)]

    site.rms.world.nodes["n9"] = RmsNode(name="n9", capacity=Resources.of(cpus=8, memory_mib=WHOLE_MIB))
    site.pools["n9"] = Pool()
    site.sleep(30)
    late = site.desk.handle(Finished(call=call, result=planned(call)), site.now_s)

    answer = site.answers[900]
    assert isinstance(answer, Trouble)
    assert "loaded anew" in answer.message
    assert late.replies == ()


def test_machine_that_takes_its_disks_time_to_be_saved_has_not_failed(tmp_path: Path) -> None:
    for site in made(tmp_path, SETTINGS):
        one, other, fences = swap_of(site)
        # 64 GiB with 64 MiB/s take 1024 s.
        site.rms.world.rules = replace(site.rms.world.rules, save_s=1_000)

        site.switch(DecideSwitch(is_plan=False, fences=fences))
        site.sleep(4_000)

        shown = site.switch(ShowSwitch())
        assert (shown.state, shown.number) == ("done", 1), shown
        assert (site.starts(one), site.starts(other)) == (2, 2)


def test_switch_goes_on_until_what_it_has_moved_runs_again(site: Halls) -> None:
    key = site.machine(HALF_MIB)
    site.rms.outside.drain(site.at(key)[0])
    site.sleep(30)

    site.switch(DecideSwitch(is_plan=False, drained=site.at(key)))
    site.sleep(300)

    shown = site.switch(ShowSwitch())
    (step,) = shown.steps
    began = happened(site, key, "running")[-1]
    assert None not in (step.asked_s, step.done_s, step.back_s, shown.ended_s)
    assert shown.begun_s == step.asked_s < step.done_s <= began <= step.back_s <= shown.ended_s  # type: ignore[operator]


def test_decision_is_read_as_it_was_written() -> None:
    decision = SwitchDecision(number=3, fences={"1": "n2"}, moved={"1": 5}, acted=(5, 6), words="ä")

    assert read_switch(write_switch(decision)) == decision
    assert read_switch(None) == SwitchDecision()
    with pytest.raises(Damaged, match="a switch cannot be read"):
        read_switch("{}")


@pytest.mark.parametrize("save_s", [3, 900])
def test_machine_that_a_failed_switch_has_had_saved_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_s: int
) -> None:
    """Of two that one stage suspends the second cannot be asked; the first is saved by then, or not."""
    asked: list[str] = []

    def one_alone(site: Site, entries: Mapping[str, JobEntry], step: DecidedStep, who: str) -> str:
        asked.append(step.job)
        return order_step(site, entries, step, who) if step.job == asked[0] else "it cannot be asked"

    monkeypatch.setattr(switching, "order_step", one_alone)
    for site in made(tmp_path, SETTINGS):
        full, *halves = site.machine(WHOLE_MIB), site.machine(HALF_MIB), site.machine(HALF_MIB)
        (left,) = site.at(halves[0])
        site.rms.world.rules = replace(site.rms.world.rules, save_s=save_s)
        site.rms.outside.drain(left)
        site.sleep(30)
        site.may_go_last = True

        site.switch(DecideSwitch(is_plan=False, drained=(left,)))
        site.sleep(300)
        shown = site.switch(ShowSwitch())
        site.rms.outside.repair(left)
        site.sleep(1_500)
        # One that was saved in time was brought where it waits for this one.
        site.rms.cancel(full, "test")
        site.sleep(300)

        assert set(asked) == {*halves}
        assert shown.state == "failed"
        assert site.switch(ShowSwitch()).asleep == ()
        assert [len(site.at(key)) for key in halves] == [1, 1]
