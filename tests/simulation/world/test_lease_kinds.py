"""Leases that recur, have roles, or wait for an event: small ones by hand, random ones second by second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.setup import Setup
from outrider.sim.workload.formats.native import read_native, write_native
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation, SimulationResult
from tests.amount import examples

MIB = 1 << 20
IMAGE = Image(uri="i", size_bytes=100)
OTHER = Image(uri="o", size_bytes=300)


def workspace(name: str, duration_s: int, start_s: int | None = None, **more: object) -> Workspace:
    given: dict[str, object] = {"instances": 1, "resources": Resources.of(cpus=1), **more}
    return Workspace(name=name, duration_s=duration_s, start_s=start_s, **given)  # type: ignore[arg-type]


def handed_in(wanted: Workspace, at_s: int = 0, **more: object) -> TraceSubmission:
    run_s = more.pop("run_s", wanted.duration_s)
    return TraceSubmission(at_s=at_s, workspace=wanted, run_s=run_s, **more)  # type: ignore[arg-type]


def run(
    submissions: Sequence[TraceSubmission],
    *,
    nodes: int = 1,
    cpus: int = 1,
    suspension: SuspensionRules | None = None,
    **changes: object,
) -> SimulationResult:
    rules = suspension or SuspensionRules()
    setup = Setup(rate_bytes_per_s=10, suspension=rules, **changes)  # type: ignore[arg-type]
    capacity = Resources.of(cpus=cpus, memory_mib=cpus)
    site = tuple(Node(name=f"n{number}", capacity=capacity) for number in range(nodes))
    return Simulation(setup, site, Trace(name="kinds", submissions=submissions)).run()


def kept(outcome: SimulationResult) -> dict[str, tuple[int, int]]:
    return {each.workspace.name: (each.start_s, each.end_s) for each in outcome.kept}


def test_all_occurrences_of_a_lease_that_recurs_are_had_each_with_its_image() -> None:
    outcome = run([handed_in(workspace("w", 20, 50, image=IMAGE), every_s=100, times=3)])

    assert kept(outcome) == {"w": (50, 70), "w#2": (150, 170), "w#3": (250, 270)}
    assert not outcome.late
    # The image is kept from the first one to the last.
    assert outcome.transfers == 1


def test_where_one_occurrence_has_no_place_none_is_had() -> None:
    other = handed_in(workspace("other", 10, 155))
    lease = handed_in(workspace("w", 20, 50), every_s=100, times=3)

    outcome = run([other, lease])

    assert kept(outcome) == {"other": (155, 165)}
    assert [each.workspace.name for each, _ in outcome.refused] == ["w", "w#2", "w#3"]


def test_roles_of_other_sizes_and_images_begin_together_or_not_at_all() -> None:
    head = workspace("w", 20, 100, image=IMAGE)
    role = replace(head, name="w.big", instances=2, resources=Resources.of(cpus=2), image=OTHER)
    lease = handed_in(head, roles=(role,))

    enough = run([lease], nodes=3, cpus=2)
    few = run([lease], nodes=2, cpus=2)

    assert kept(enough) == {"w": (100, 120), "w.big": (100, 120)}
    assert not enough.late
    [head_kept, role_kept] = sorted(enough.kept, key=lambda each: each.workspace.name)
    assert not set(head_kept.nodes) & set(role_kept.nodes)
    assert kept(few) == {}
    assert [each.workspace.name for each, _ in few.refused] == ["w", "w.big"]


def test_roles_with_a_deadline_begin_at_the_first_instant_at_which_all_have_a_place() -> None:
    head = workspace("w", 20, 0, finish_by_s=200)
    role = replace(head, name="w.big", resources=Resources.of(cpus=2))
    blocks = [handed_in(workspace("one", 30, 0)), handed_in(workspace("two", 60, 0, instances=2))]

    outcome = run([*blocks, handed_in(head, roles=(role,))], nodes=2, cpus=2)

    assert {name: spans for name, spans in kept(outcome).items() if name.startswith("w")} == {
        "w": (60, 80),
        "w.big": (60, 80),
    }


def test_an_open_lease_begins_at_its_event_and_lends_its_node_until_then() -> None:
    lease = handed_in(workspace("w", 50, 100, image=IMAGE), open_until_s=300, within_s=0, trigger_s=200)

    outcome = run([lease, handed_in(workspace("work", 400), 1)])

    assert kept(outcome) == {"w": (200, 250)}
    assert outcome.event_delays_s == {"w": 0}
    assert not outcome.late
    [work] = outcome.done
    assert [(each.start_s, each.end_s) for each in work.segments] == [(1, 200), (250, 451)]


def test_an_open_lease_begins_when_memory_has_been_written_and_no_later_than_promised() -> None:
    """A node has 1 MiB, which its disk writes in 4 s; three turns of it are promised in 12 s."""
    rules = SuspensionRules(disk_bytes_per_s=MIB // 4)
    job = workspace("work", 400, resources=Resources.of(cpus=1, memory_mib=1))
    lease = handed_in(workspace("w", 50, 100), open_until_s=300, within_s=12, trigger_s=200)
    tight = replace(lease, within_s=11)

    lent = run([lease, handed_in(job, 1)], suspension=rules)
    kept_free = run([tight, handed_in(job, 1)], suspension=rules)

    assert lent.event_delays_s == {"w": 4}
    assert kept(lent) == {"w": (204, 254)}
    assert kept_free.event_delays_s == {"w": 0}
    assert all(not (each.start_s < 200 < each.end_s) for done in kept_free.done for each in done.segments)


def test_what_cannot_be_suspended_does_not_run_where_an_event_may_come() -> None:
    lease = handed_in(workspace("w", 50, 100), open_until_s=300, within_s=60, trigger_s=200)
    firm = handed_in(workspace("firm", 150, is_preemptible=False), 1)

    outcome = run([lease, firm])

    assert kept(outcome) == {"w": (200, 250)}
    [done] = outcome.done
    assert (done.start_s, done.end_s) == (250, 400)


def test_without_an_event_the_nodes_are_given_back() -> None:
    lease = handed_in(workspace("w", 50, 100), open_until_s=300, trigger_s=301)

    outcome = run([lease, handed_in(workspace("firm", 150, is_preemptible=False), 1)])

    assert outcome.without_event == ["w"]
    assert kept(outcome) == {}
    assert [done.start_s for done in outcome.done] == [300]


@pytest.mark.parametrize(
    "more",
    [
        {"every_s": 0, "times": 2},
        {"every_s": 5, "times": 0},
        {"every_s": 5, "open_until_s": 60},
        {"open_until_s": 49},
        {"open_until_s": 60, "within_s": -1},
    ],
)
def test_what_makes_no_sense_is_an_error(more: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="workspace w"):
        handed_in(workspace("w", 20, 50), **more)
    with pytest.raises(ValueError, match="workspace b"):
        handed_in(workspace("b", 20), open_until_s=60)


def test_each_kind_is_written_and_read_back(tmp_path: Path) -> None:
    head = workspace("roles", 20, 50, image=IMAGE, may_yield=True)
    role = replace(head, name="roles.big", instances=2, resources=Resources.of(cpus=2), image=OTHER)
    trace = Trace(
        name="kinds",
        submissions=(
            handed_in(workspace("series", 20, 50), every_s=100, times=3),
            handed_in(head, roles=(role, replace(role, name="roles.bare", image=None))),
            handed_in(workspace("open", 20, 50), open_until_s=70, within_s=5, trigger_s=60),
        ),
    )

    write_native(tmp_path / "kinds.jsonl", trace)

    assert read_native(tmp_path / "kinds.jsonl") == trace


def random_submission(chance: Random, number: int, at_s: int) -> TraceSubmission:
    duration_s, start_s = chance.randint(1, 40), at_s + chance.randint(0, 60)
    kind = chance.choice(
        ["work", "work", "work", "work", "firm", "fixed", "floating", "series", "roles", "open", "open"]
    )
    if kind == "work":
        duration_s *= 4
    wanted = workspace(
        f"w{number}",
        duration_s,
        None if kind in ("work", "firm") else start_s,
        instances=chance.randint(1, 2),
        resources=Resources.of(cpus=1, memory_mib=1),
        image=chance.choice([None, IMAGE, OTHER]),
        is_preemptible=kind != "firm",
        finish_by_s=start_s + duration_s + chance.randint(0, 60) if kind == "floating" else None,
        may_yield=kind == "floating" and chance.random() < 0.5,
    )
    run_s = chance.randint(0, duration_s)
    if kind == "series":
        return handed_in(wanted, at_s, run_s=run_s, every_s=chance.randint(1, 90), times=chance.randint(1, 3))
    if kind == "roles":
        role = replace(wanted, name=f"w{number}.b", instances=1, resources=Resources.of(cpus=2, memory_mib=2))
        return handed_in(wanted, at_s, run_s=run_s, roles=(role,))
    if kind == "open":
        until_s = start_s + chance.randint(0, 60)
        return handed_in(
            wanted,
            at_s,
            run_s=run_s,
            open_until_s=until_s,
            within_s=chance.choice([0, 6, 12, 18]),
            trigger_s=chance.choice([None, chance.randint(start_s, until_s)]),
        )
    return handed_in(wanted, at_s, run_s=run_s)


def test_every_kind_keeps_its_promise_and_nobody_is_lost() -> None:
    seen: Counter[str] = Counter()
    for seed in range(examples(300)):
        chance = Random(seed)
        at_s, jobs = 0, []
        for number in range(chance.randint(3, 14)):
            at_s += chance.choice([0, 3, 20])
            jobs.append(random_submission(chance, number, at_s))
        count, cpus = chance.randint(2, 3), 2
        rate = chance.choice([None, MIB // 2, MIB])
        outcome = run(
            jobs, nodes=count, cpus=cpus, suspension=SuspensionRules(disk_bytes_per_s=rate), push_back_s=0
        )
        check(outcome, jobs, seed, seen)
        check_units(outcome, count * cpus, seed)
    assert min(seen[key] for key in ("event", "lent", "series", "roles", "refused")) > examples(10), seen


def check(outcome: SimulationResult, jobs: list[TraceSubmission], seed: int, seen: Counter[str]) -> None:
    refused = {each.workspace.name for each, _ in outcome.refused}
    spans = {each.workspace.name: each for each in outcome.kept}
    done = {each.workspace: each for each in outcome.done}
    impossible = {each.workspace.name for each in outcome.impossible}
    assert not outcome.late, seed
    for job in jobs:
        names = {part.workspace.name for part in job.parts()}
        assert not names & refused or names <= refused, f"seed {seed}: {names} partly"
        seen["refused"] += bool(names & refused)
        name, start_s = job.workspace.name, job.workspace.start_s
        if start_s is None:
            assert name in impossible or name in done, f"seed {seed}: {name} is lost"
            if name in done and not job.workspace.is_preemptible:
                assert len(done[name].segments) == 1, f"seed {seed}: {name} was suspended"
        elif names & refused:
            continue
        elif job.open_until_s is not None:
            assert (name in outcome.without_event) == (job.trigger_s is None), f"seed {seed}: {name}"
            if job.trigger_s is not None:
                delay_s = outcome.event_delays_s[name]
                assert 0 <= delay_s <= job.within_s, f"seed {seed}: {name} begins {delay_s} s after its event"
                assert spans[name].start_s == job.trigger_s + delay_s, f"seed {seed}: {name}"
                seen["event"] += 1
                seen["lent"] += delay_s > 0
        else:
            for number, part in enumerate(job.parts()):
                reservation = spans[part.workspace.name]
                if job.workspace.finish_by_s is None:
                    assert reservation.start_s == part.workspace.start_s, (
                        f"seed {seed}: {part.workspace.name}"
                    )
                seen["series"] += job.every_s is not None and number > 0
                seen["roles"] += bool(job.roles)
            starts = {spans[name].start_s for name in names}
            assert not job.roles or len(starts) == 1, f"seed {seed}: {names} begin at {starts}"


def check_units(outcome: SimulationResult, units: int, seed: int) -> None:
    taken: Counter[int] = Counter()
    for each in outcome.kept:
        for start_s, end_s in each.spans:
            for at_s in range(start_s, end_s):
                taken[at_s] += each.workspace.instances * each.workspace.resources["cpus"]
    for done in outcome.done:
        for segment in done.segments:
            for at_s in range(segment.start_s, segment.end_s):
                taken[at_s] += sum(share.instances for share in segment.shares)
    assert max(taken.values(), default=0) <= units, seed
