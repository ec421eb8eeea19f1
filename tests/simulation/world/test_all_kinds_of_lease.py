"""Random histories of a batch system's site with leases of all kinds, prices and a quota, and a naive model.

The model knows the submissions and what came of them, nothing of how it was decided. Nobody starves by a
stated rule: whoever waits is delayed by each job that was handed in before, each time that one runs, by the
longest limit at most, and by each reservation by its length and the longest limit, in which nodes may stand
idle before it; and once more by the longest limit for those that overtook without delaying the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from outrider.cli.simulate.runs.policies import with_policies
from outrider.core.besteffort.jobs.schedule import JobPlace, ScheduleRules, Walk
from outrider.core.model import LeaseOwner, Node, Resources, Workspace
from outrider.metadata.policies import parse_policies
from outrider.sim.batch.site import BatchSite, Delays
from outrider.sim.batch.turns import BatchQueue, SimulatedJob, Starter
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import SimulationResult
from tests.amount import histories

HISTORIES, A_PART = histories(20_000), 100
CPUS, JOBS_SHARE, SUBMISSIONS = 4, 0.65, 40
DELAYS = Delays(start_s=1, end_s=2, margin_s=20, back_s=12)
LIMITS_S = (30, 60, 120)
QUOTA, RATE, PER_UNIT_S = 2, 3_600_000, 1_000
POLICIES = f"""
version: 1
rules: [{{name: few, users: [bob], reservations: {QUOTA}}}, {{name: all}}]
leases: {{pricing: {{rate: {RATE}}}, preemption: {{}}}}
"""
IDLE_S = 50_000
LATER = JobPlace(start_s=IDLE_S + 1, ready_s=0, nodes=())
KINDS = ("fixed", "immediate", "deadline", "recurring", "roles", "open", "yielding")


def job(random: Random, name: str, at_s: int) -> TraceSubmission:
    limit_s = random.choice(LIMITS_S)
    workspace = Workspace(
        name=name,
        instances=random.choice((1, 1, 1, 5, 9)),
        resources=Resources.of(cpus=random.choice((1, 2, 4))),
        duration_s=limit_s,
        is_preemptible=random.random() < 0.5,
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=random.randint(1, limit_s), user="ada")


def lease(random: Random, name: str, at_s: int) -> TraceSubmission:
    kind, ahead_s, lasts_s = random.choice(KINDS), random.randint(0, 200), random.randint(5, 90)
    start_s = at_s if kind == "immediate" else at_s + ahead_s
    workspace = Workspace(
        name=f"{kind} {name}",
        instances=random.choice((1, 1, 2)),
        resources=Resources.of(cpus=CPUS),
        duration_s=lasts_s,
        start_s=start_s,
        is_immediate=kind == "immediate",
        finish_by_s=start_s + lasts_s + 300 if kind == "deadline" else None,
        may_yield=kind == "yielding",
        owner=LeaseOwner(user=random.choice(("ada", "bob", "eve"))),
    )
    submission = TraceSubmission(at_s=at_s, workspace=workspace, run_s=lasts_s)
    if kind == "recurring":
        return replace(submission, every_s=100, times=3)
    if kind == "roles":
        return replace(submission, roles=(replace(workspace, name=f"{workspace.name} two", instances=1),))
    if kind == "open":
        window = {"open_until_s": start_s + 120, "within_s": 60}
        return replace(submission, **window, trigger_s=start_s + random.randint(0, 150))  # type: ignore[arg-type]
    return submission


class History:
    """What was handed in, and what became of it."""

    def __init__(self, seed: int) -> None:
        random, at_s = Random(seed), 0
        self.given: list[TraceSubmission] = []
        for number in range(SUBMISSIONS):
            at_s += random.randint(0, 25)
            make = job if random.random() < JOBS_SHARE else lease
            self.given.append(make(random, str(number), at_s))
        nodes = tuple(
            Node(name=f"n{each}", capacity=Resources.of(cpus=CPUS)) for each in range(random.choice((3, 4)))
        )
        setup = with_policies(Setup(), parse_policies(POLICIES.encode(), file="policies.yaml"))
        starter = Starter(rules=ScheduleRules(places=random.choice((1, 1, 3))))
        self.site = BatchSite(setup, nodes, Trace(name="t", submissions=self.given), starter, DELAYS)
        self.outcome: SimulationResult = self.site.run()
        self.leases = {
            part.workspace.name: part
            for each in self.given
            if not each.workspace.is_best_effort
            for part in each.parts()
        }
        self.jobs = {each.workspace.name: each for each in self.given if each.workspace.is_best_effort}
        self.refused = {each.workspace.name for each, _ in self.outcome.refused}

    def faults(self) -> Iterator[str]:
        yield from self.lost_jobs()
        yield from self.broken_promises()
        yield from self.shared_nodes()
        yield from self.starved_jobs()
        yield from self.wrong_sums()

    def lost_jobs(self) -> Iterator[str]:
        impossible = {each.workspace.name for each in self.outcome.impossible}
        ended = Counter(done.workspace for done in self.outcome.done)
        if ended != Counter(self.jobs.keys() - impossible):
            yield f"jobs ended {ended}"
        for done in self.outcome.done:
            if done.end_s - done.start_s != self.jobs[done.workspace].run_s:
                yield f"{done} has not worked as long as it had to"
        for name in self.site.requeued:
            if not self.jobs[name].workspace.is_preemptible:
                yield f"job {name} was sent back and may not be"

    def broken_promises(self) -> Iterator[str]:
        outcome = self.outcome
        if outcome.late or outcome.broken:
            yield f"late {outcome.late}, broken {outcome.broken}"
        for reservation in outcome.yielded:
            if not reservation.workspace.may_yield:
                yield f"{reservation} yielded and may not"
        whole = {each.workspace.name for each in outcome.kept} | {
            each.workspace.name for each in outcome.yielded
        }
        if whole | set(outcome.without_event) | self.refused != set(self.leases):
            yield "a lease was neither kept nor refused"
        for kept in outcome.kept:
            asked = self.leases[kept.workspace.name]
            wanted_s = asked.workspace.start_s
            assert wanted_s is not None
            if asked.open_until_s is not None:
                delay_s = outcome.event_delays_s[kept.workspace.name]
                is_so = kept.start_s == (asked.trigger_s or 0) + delay_s and delay_s <= asked.within_s
            elif asked.workspace.finish_by_s is not None:
                is_so = wanted_s <= kept.start_s and kept.end_s <= asked.workspace.finish_by_s
            else:
                is_so = kept.start_s == wanted_s
            if not is_so:
                yield f"{kept} was not when it was asked for: {asked}"

    def shared_nodes(self) -> Iterator[str]:
        names = [node.name for node in self.outcome.nodes]
        taken = [
            (each.start_s, each.end_s, set(each.nodes), each.workspace.name) for each in self.outcome.kept
        ]
        for done in self.outcome.done:
            nodes = {names[share.node] for share in done.segments[0].shares}
            for start_s, end_s, others, name in taken:
                # A job is decided to start a little before it does, and lasts its limit from then on.
                end_of_job_s = done.end_s - DELAYS.start_s
                if start_s < end_of_job_s and done.start_s < end_s and nodes & others:
                    yield f"job {done.workspace} had nodes of {name} in its time"
        for place, (start_s, end_s, nodes, name) in enumerate(taken):
            for other_start_s, other_end_s, others, other in taken[:place]:
                if start_s < other_end_s and other_start_s < end_s and nodes & others:
                    yield f"{name} and {other} had the same node"

    def starved_jobs(self) -> Iterator[str]:
        most_s = max(LIMITS_S) + DELAYS.start_s + DELAYS.end_s
        back_s = DELAYS.back_s + DELAYS.margin_s
        rank = {each.workspace.name: place for place, each in enumerate(self.given)}
        for done in self.outcome.done:
            ahead = [
                each.workspace.name
                for each in self.jobs.values()
                if rank[each.workspace.name] < rank[done.workspace]
            ]
            runs = sum(1 + self.site.requeued.get(name, 0) for name in [*ahead, done.workspace])
            leases_s = sum(
                (
                    each.within_s + (each.open_until_s or 0) - (each.workspace.start_s or 0)
                    if each.open_until_s
                    else 0
                )
                + each.workspace.duration_s
                + most_s
                for each in self.leases.values()
            )
            bound_s = runs * (most_s + back_s) + most_s + leases_s
            if done.start_s - done.submit_s > bound_s:
                yield f"{done} has waited for longer than {bound_s} s"

    def wrong_sums(self) -> Iterator[str]:
        for offer in self.outcome.offers:
            asked = self.leases[offer.workspace]
            units = asked.workspace.instances * CPUS
            window_s = 0
            if asked.open_until_s is not None:
                window_s = asked.open_until_s - (asked.workspace.start_s or 0) + asked.within_s
            expected = units * (asked.workspace.duration_s + window_s) * PER_UNIT_S
            if offer.price is not None and offer.price != expected:
                yield f"{offer} is not {expected}"
        own = [
            (self.leases[each.workspace.name].at_s, each.end_s)
            for each in self.outcome.kept
            if each.workspace.owner.user == "bob"
        ]
        most = max((sum(at_s <= asked_s < end_s for at_s, end_s in own) for asked_s, _ in own), default=0)
        if most > QUOTA:
            yield f"bob had {most} reservations at once"


@pytest.mark.parametrize("first", range(0, HISTORIES, A_PART))
def test_promises_of_all_kinds_are_kept_and_nobody_starves(first: int) -> None:
    played = {seed: History(seed) for seed in range(first, min(first + A_PART, HISTORIES))}

    assert {seed: faults for seed, each in played.items() if (faults := list(each.faults()))} == {}
    kept = Counter(each.workspace.name.split()[0] for one in played.values() for each in one.outcome.kept)
    assert set(kept) == set(KINDS)
    assert sum(len(each.site.requeued) for each in played.values()) > len(played) // 20
    assert sum(len(each.outcome.yielded) for each in played.values()) > 0
    assert sum(each.outcome.moved_leases for each in played.values()) > 0


PLANTED = {
    "sends everybody back": (BatchSite, "_may_go", lambda self, run: True, "was sent back"),
    "knows no reservations": (BatchQueue, "block", lambda self, blocked: None, "in its time"),
    "loses who is sent back": (BatchSite, "_waiting_again", None, "jobs ended"),
    "starts nobody for long": (BatchQueue, "decide", None, "has waited"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_model_finds_what_is_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, planted, words = PLANTED[name]
    plain = getattr(kind, method)

    def loses(self: BatchSite, again: SimulatedJob) -> None:
        if again.name not in self.requeued:
            plain(self, again)

    def idles(self: BatchQueue, now_s: int) -> Walk:
        return plain(self, now_s) if now_s > IDLE_S else Walk(starts={}, planned={"x": LATER})

    replacement = planted or (loses if kind is BatchSite else idles)
    monkeypatch.setattr(kind, method, replacement)

    found = [fault for seed in range(30) for fault in History(seed).faults()]

    assert any(words in fault for fault in found)
