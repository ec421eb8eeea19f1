"""A site's policy file in a simulation: each policy changes what becomes of small workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.cli.simulate.runs.policies import with_policies
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import LeaseOwner, Node, Resources, Workspace
from outrider.metadata.errors import MetadataError
from outrider.metadata.policies import parse_policies
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation, SimulationResult
from tests.amount import examples

HEAD = "version: 1\nrules:\n- {name: all}\n"
HOUR_S = 3600


def submission(
    name: str,
    at_s: int,
    duration_s: int,
    start_s: int | None = None,
    *,
    instances: int = 1,
    run_s: int | None = None,
    may_yield: bool = False,
    is_preemptible: bool = True,
    finish_by_s: int | None = None,
    **owner: object,
) -> TraceSubmission:
    workspace = Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=1),
        duration_s=duration_s,
        start_s=start_s,
        finish_by_s=finish_by_s,
        may_yield=may_yield,
        is_preemptible=is_preemptible,
        owner=LeaseOwner(**owner),  # type: ignore[arg-type]
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=duration_s if run_s is None else run_s)


def run(
    policies: str, submissions: list[TraceSubmission], *, nodes: int = 1, cpus: int = 1, **changes: object
) -> SimulationResult:
    setup = Setup(suspension=SuspensionRules(), **changes)  # type: ignore[arg-type]
    setup = with_policies(setup, parse_policies(policies.encode(), file="policies.yaml"))
    site = tuple(Node(name=f"n{number}", capacity=Resources.of(cpus=cpus)) for number in range(nodes))
    return Simulation(setup, site, Trace(name="small", submissions=submissions)).run()


def refused(outcome: SimulationResult) -> dict[str, str]:
    return {each.workspace.name: rejected.refusal.message for each, rejected in outcome.refused}


def test_a_rule_of_the_file_limits_what_a_user_has_booked() -> None:
    policies = (
        "version: 1\nrules:\n- {name: few, users: [anna], reservations: 1, node_hours: 2}\n- {name: all}\n"
    )
    outcome = run(
        policies,
        [
            submission("a1", 0, HOUR_S, 100, user="anna"),
            submission("a2", 0, HOUR_S, 100, user="anna"),
            submission("b1", 0, HOUR_S, 100, user="ben"),
            submission("a3", 4000, 3 * HOUR_S, 5000, user="anna"),
        ],
        nodes=3,
    )

    assert refused(outcome).keys() == {"a2", "a3"}
    assert "few" in refused(outcome)["a2"]
    assert "2 node-hours" in refused(outcome)["a3"]


def test_no_reservations_a_share_of_each_hour_and_protected_best_effort() -> None:
    lease = submission("lease", 0, HOUR_S, 0)
    half = submission("half", 0, HOUR_S // 2, 0)
    work = submission("work", 0, 600)

    assert refused(run(HEAD + "leases: {accept: none}", [half])).keys() == {"half"}
    assert refused(run(HEAD + "leases: {hour_share: 50%}", [half, lease])).keys() == {"lease"}
    # It would end at 4200 instead of 600 s: 7 times its own time.
    protected = run(HEAD + "leases: {most_slowdown: 699}", [work, lease])
    allowed = run(HEAD + "leases: {most_slowdown: 700}", [work, lease])
    assert refused(protected).keys() == {"lease"}
    assert not refused(allowed)


def test_prices_are_charged_offers_refused_and_losses_counted() -> None:
    policies = HEAD + "leases: {pricing: {rate: 1000, notice: [{within: 1h, percent: 100}]}}"
    outcome = run(
        policies,
        [
            submission("cheap", 0, HOUR_S, 2 * HOUR_S, most_rate=1000),
            submission("dear", 0, HOUR_S, 600, most_rate=1999),
            submission("rich", 0, HOUR_S, 600, most_rate=2000),
            submission("late", 0, HOUR_S, 2 * HOUR_S),
        ],
    )

    assert {each.workspace: (each.price, each.is_accepted, each.is_too_dear) for each in outcome.offers} == {
        "cheap": (1000, True, False),
        "dear": (2000, False, True),
        "rich": (2000, True, False),
        "late": (1000, False, False),
    }
    from outrider.sim.results.report import Revenue, world_report

    report = world_report("w", outcome, [])
    assert report.reservations is not None
    assert report.reservations.revenue == Revenue(
        charged=3000, too_dear=1, lost_to_price=2000, lost_to_refusals=1000
    )


@pytest.mark.parametrize(
    ("order", "first"), [("youngest", "young"), ("lowest_value", "old"), ("shortest", "old")]
)
def test_the_order_of_preemption_decides_which_run_makes_way(order: str, first: str) -> None:
    policies = HEAD + f"leases: {{preemption: {{order: [{{by: {order}}}]}}}}"
    outcome = run(
        policies,
        [
            submission("old", 0, 2000, value=1),
            submission("young", 1, 3000, value=2),
            submission("lease", 10, 100, 500),
        ],
        nodes=2,
    )

    split = {done.workspace for done in outcome.done if len(done.segments) > 1}
    assert split == {first}


def test_a_class_that_is_spared_is_never_suspended() -> None:
    policies = HEAD + "leases: {preemption: {spare_classes: [urgent]}}"
    jobs = [
        submission("spared", 0, 2000, lease_class="urgent"),
        submission("lease", 10, 100, 500),
    ]

    outcome = run(policies, jobs)
    other = run(HEAD, jobs)

    assert refused(outcome).keys() == {"lease"}
    assert [len(done.segments) for done in outcome.done] == [1]
    assert not refused(other)
    assert [len(done.segments) for done in other.done] == [2]


@pytest.mark.parametrize(("rule", "nodes"), [("packing", {"n1"}), ("spreading", {"n0"}), ("energy", {"n1"})])
def test_the_order_of_nodes_decides_where_a_reservation_is(rule: str, nodes: set[str]) -> None:
    """The first takes half of n1, since n0 is taken at its time."""
    first = [
        submission("block", 0, 100, 0, instances=2),
        submission("half", 0, 300, 50),
    ]
    outcome = run(
        HEAD + f"leases: {{nodes: [{{by: {rule}}}]}}", [*first, submission("w", 1, 50, 200)], nodes=2, cpus=2
    )

    [kept] = [each for each in outcome.kept if each.workspace.name == "w"]
    assert set(kept.nodes) == nodes


def test_a_reservation_that_may_yield_does_so_for_one_that_may_not_and_goes_on_as_best_effort() -> None:
    outcome = run(
        HEAD + "leases: {preemption: {}}",
        [
            submission("cheap", 0, 1000, 100, may_yield=True),
            submission("firm", 10, 200, 500),
            submission("other", 20, 100, 520, may_yield=True),
        ],
    )

    assert refused(outcome).keys() == {"other"}
    assert [each.workspace.name for each in outcome.yielded] == ["cheap"]
    # It had not begun at 10 s, so all of its work is done round the other one.
    [done] = outcome.done
    assert done.workspace == "cheap"
    assert sum(segment.useful_s for segment in done.segments) == 1000
    assert {(each.workspace.name, each.start_s, each.end_s) for each in outcome.kept} == {("firm", 500, 700)}


def test_one_that_has_begun_keeps_its_node_until_the_other_begins() -> None:
    outcome = run(
        HEAD + "leases: {preemption: {}}",
        [submission("cheap", 0, 1000, 100, may_yield=True), submission("firm", 200, 200, 500)],
    )

    assert {(each.workspace.name, each.start_s, each.end_s) for each in outcome.kept} == {
        ("cheap", 100, 500),
        ("firm", 500, 700),
    }
    [done] = outcome.done
    assert (done.start_s, sum(segment.useful_s for segment in done.segments)) == (700, 600)


def test_whose_user_is_spared_keeps_a_reservation_that_may_yield() -> None:
    cheap = submission("cheap", 0, 1000, 100, may_yield=True, user="anna")
    firm = submission("firm", 10, 200, 500)

    spared = run(HEAD + "leases: {preemption: {spare_users: [anna]}}", [cheap, firm])
    other = run(HEAD + "leases: {preemption: {spare_users: [ben]}}", [cheap, firm])

    assert refused(spared).keys() == {"firm"}
    assert refused(other) == {}


def test_of_classes_only_a_higher_one_takes_the_place_of_another() -> None:
    policies = HEAD + "leases: {preemption: {ranks: [urgent, normal]}}"
    cheap = submission("cheap", 0, 1000, 100, may_yield=True, lease_class="normal")

    same = run(policies, [cheap, submission("firm", 10, 200, 500, lease_class="normal")])
    higher = run(policies, [cheap, submission("firm", 10, 200, 500, lease_class="urgent")])

    assert refused(same).keys() == {"firm"}
    assert not refused(higher)


def test_a_policy_that_nobody_has_installed_is_an_error() -> None:
    for text in ("leases: {nodes: [{by: mine}]}", "leases: {preemption: {order: [{by: mine}]}}"):
        with pytest.raises(MetadataError, match=r"no policy is called 'mine'|mine"):
            run(HEAD + text, [])


def test_a_policy_of_the_site_s_own_is_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[outrider.lease_policies]\nfewest = mine_policies:Fewest\n")
    (tmp_path / "mine_policies.py").write_text(
        "class Fewest:\n"
        "    def __init__(self, least): self.least = least\n"
        "    def measure(self, candidate): return (candidate.instances,)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    policies = HEAD + "leases: {preemption: {order: [{by: fewest, options: {least: 2}}]}}"

    outcome = run(
        policies,
        [
            submission("one", 0, 2000),
            submission("two", 1, 2000, instances=2),
            submission("lease", 10, 100, 500),
        ],
        nodes=3,
    )

    assert {done.workspace for done in outcome.done if len(done.segments) > 1} == {"one"}


def random_submissions(chance: Random) -> list[TraceSubmission]:
    found: list[TraceSubmission] = []
    at_s = 0
    for number in range(chance.randint(4, 14)):
        at_s += chance.choice([0, 5, 40])
        duration_s = chance.randint(1, 80)
        start_s = None if chance.random() < 0.4 else at_s + chance.randint(0, 100)
        is_floating = start_s is not None and chance.random() < 0.4
        found.append(
            submission(
                f"w{number}",
                at_s,
                duration_s,
                start_s,
                instances=chance.randint(1, 2),
                run_s=chance.randint(0, duration_s),
                may_yield=start_s is not None and chance.random() < 0.4,
                is_preemptible=chance.random() < 0.8,
                finish_by_s=start_s + duration_s + chance.randint(0, 120)
                if is_floating and start_s is not None
                else None,
                user=chance.choice("ab"),
                lease_class=chance.choice(["urgent", "normal", ""]),
                value=chance.randint(0, 3),
                most_rate=chance.choice([None, 900, 1500]),
            )
        )
    return found


POLICIES = (
    HEAD
    + """leases:
  hour_share: 80%
  preemption:
    order: [{by: lowest_value, weight: 2}, {by: shortest}]
    spare_classes: [urgent]
    ranks: [urgent, normal]
  nodes: [{by: packing}, {by: least_preemption, weight: 2}]
  pricing: {rate: 1000, load: [{from: 30%, percent: 50}], yielding_discount: 30}
"""
)


def test_under_all_policies_promises_are_kept_nothing_is_lost_and_sums_add_up() -> None:
    yielded = moved = too_dear = 0
    for seed in range(examples(250)):
        chance = Random(seed)
        jobs = random_submissions(chance)
        count = chance.randint(2, 3)
        outcome = run(POLICIES, jobs, nodes=count)
        yielded += len(outcome.yielded)
        moved += outcome.moved_leases
        too_dear += sum(offer.is_too_dear for offer in outcome.offers)
        check_promises(outcome, jobs, seed)
        check_slots(outcome, count, seed)
    assert min(yielded, moved, too_dear) > examples(15)


def check_promises(outcome: SimulationResult, jobs: list[TraceSubmission], seed: int) -> None:
    gone = refused(outcome)
    taken = {each.workspace.name for each in outcome.yielded}
    kept = {each.workspace.name: each for each in outcome.kept if each.workspace.name not in taken}
    work: dict[str, int] = {}
    for done in outcome.done:
        work[done.workspace] = work.get(done.workspace, 0) + sum(each.useful_s for each in done.segments)
        workspace = outcome.workspaces[done.workspace]
        if not workspace.is_preemptible or workspace.owner.lease_class == "urgent":
            assert len(done.segments) == 1, f"seed {seed}: {done.workspace} may not yield"
    for each in jobs:
        workspace, name = each.workspace, each.workspace.name
        if workspace.start_s is None:
            assert name in work, f"seed {seed}: {name} is lost"
            assert work[name] == each.run_s, f"seed {seed}: {name}"
        elif name in taken:
            parts = sum(kept_s(done) for done in outcome.kept if done.workspace.name == name)
            assert parts + work.get(name, 0) >= each.run_s, f"seed {seed}: {name} was cut short"
            assert workspace.may_yield, f"seed {seed}: {name} may not yield"
        elif name not in gone:
            reservation = kept[name]
            last_s = workspace.finish_by_s or workspace.start_s + workspace.duration_s
            assert workspace.start_s <= reservation.start_s, f"seed {seed}: {name}"
            assert reservation.end_s <= last_s, f"seed {seed}: {name}"
            assert kept_s(reservation) == each.run_s, f"seed {seed}: {name}"
    prices = {offer.workspace: offer for offer in outcome.offers}
    assert prices.keys() == {each.workspace.name for each in jobs if each.workspace.start_s is not None}
    for each in jobs:
        offer = prices.get(each.workspace.name)
        if offer is not None:
            assert offer.is_accepted == (each.workspace.name not in gone), seed


def kept_s(reservation: object) -> int:
    return sum(end_s - start_s for start_s, end_s in reservation.spans)  # type: ignore[attr-defined]


def check_slots(outcome: SimulationResult, count: int, seed: int) -> None:
    taken: dict[int, int] = {}
    for reservation in outcome.kept:
        for start_s, end_s in reservation.spans:
            for at_s in range(start_s, end_s):
                taken[at_s] = taken.get(at_s, 0) + reservation.workspace.instances
    for done in outcome.done:
        for segment in done.segments:
            for at_s in range(segment.start_s, segment.end_s):
                taken[at_s] = taken.get(at_s, 0) + sum(share.instances for share in segment.shares)
    assert max(taken.values(), default=0) <= count, seed


def test_what_is_asked_of_the_file_replaces_nothing_else_of_the_site() -> None:
    setup = Setup(pool_bytes=7)

    changed = with_policies(setup, parse_policies(HEAD.encode(), file="p"))

    assert replace(changed, leases=None, quotas=None) == setup
