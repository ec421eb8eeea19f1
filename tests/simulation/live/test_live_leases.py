"""Random histories of live leases: who was promised what, kept beside by a model that knows nothing but that.

The model notes what was answered, and compares it at each step with what is promised now and with what the
batch system has done: fixed reservations stay as they are, those with a deadline keep to it and stay where
they have begun, only what may yield yields, no two have a node at the same time, and what waits for an event
starts within its time of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from outrider.core.model import Resources
from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobState, Submission
from outrider.service.answers.decision import Decision
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.ports import NodeImage
from outrider.service.requests import Trigger
from outrider.service.settings import Settings
from tests.amount import examples
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of, show, wanted

SETTINGS = Settings(
    link_rate_bytes_per_s=RATE,
    reserve_s=60,
    look_every_s=5,
    allows_preemptible=True,
    most_requeue_grace_s=60,
    requeue_margin_s=40,
)
POLICIES = b"version: 1\nrules: [{name: all}]\nleases: {preemption: {}}\n"
NODES, STEPS, SETTLED_S = 2, 30, 320
WITHIN_S = (60, 90, 150, 400)


@dataclass
class Promise:
    """What somebody was promised."""

    kind: str
    name: str
    first_s: int
    last_s: int
    lasts_s: int
    nodes: int
    start_s: int
    within_s: int = 0
    triggered_s: int | None = None
    job: str = ""


class Model:
    """All promises, and what may have become of them."""

    def __init__(self, site: Sandbox) -> None:
        self.site = site
        self.promises: list[Promise] = []
        self.moved = self.yielded = self.begun = 0

    def live(self) -> list[tuple[Promise, ReservationDetails]]:
        found = [(each, show(self.site, each.name)) for each in self.promises]
        return [(each, details) for each, details in found if details.ended_s is None]

    def check(self) -> None:
        for promise in self.promises:
            self._check(promise, show(self.site, promise.name))
        for (one, first), (other, second) in combinations(self.live(), 2):
            a, b = first.reservation, second.reservation
            if set(expand(a.nodes)) & set(expand(b.nodes)):
                assert a.end_s <= b.start_s or b.end_s <= a.start_s, (one, other)

    def _check(self, promise: Promise, details: ReservationDetails) -> None:
        view, now_s = details.reservation, self.site.now_s
        # A job that ends when a reservation starts is taken to stay a little longer: an alarm for a moment.
        is_told = view.state == "endangered" and view.why.startswith("job ") and promise.kind != "open"
        assert view.state not in ("endangered", "failed") or is_told, (promise, view.why)
        assert view.node_count == promise.nodes
        if view.state == "cancelled":
            assert promise.kind == "yielding", promise
            return
        if details.receipt is not None:
            assert details.receipt.is_met, (promise, details.receipt.words)
        if promise.kind == "fixed":
            assert (view.start_s, view.end_s) == (promise.first_s, promise.first_s + promise.lasts_s)
        elif promise.kind == "floating":
            self._check_floating(promise, details)
        elif promise.kind == "yielding":
            assert view.start_s == promise.first_s
        elif promise.triggered_s is not None:
            assert promise.triggered_s <= view.start_s <= promise.triggered_s + promise.within_s
            assert view.end_s == view.start_s + promise.lasts_s
        if view.state != "ended" and promise.kind != "open" and view.start_s + 45 <= now_s < view.end_s:
            assert view.state == "active", promise

    def _check_floating(self, promise: Promise, details: ReservationDetails) -> None:
        view = details.reservation
        assert promise.first_s <= view.start_s
        assert view.end_s == view.start_s + promise.lasts_s <= promise.last_s
        if view.start_s != promise.start_s:
            assert promise.start_s > self.site.now_s, "it had begun"
            self.moved += 1
            promise.start_s = view.start_s


def job(site: Sandbox, random: Random) -> None:
    """Somebody's job that names no image, wherever it may run."""
    limit_s = random.choice([20, 45, 100, 300, 1200])
    site.rms.outside.submit(
        Submission(
            user=BOB.user,
            uid=BOB.uid,
            argv=("work",),
            nodes_wanted=1,
            resources=Resources.of(cpus=8),
            limit_s=limit_s,
        )
    )


def ask(model: Model, random: Random) -> None:
    site, now_s = model.site, model.site.now_s
    kind = random.choice(["fixed", "fixed", "floating", "floating", "yielding", "open"])
    nodes, lasts_s = random.randint(1, NODES), random.choice([300, 600, 1200])
    ahead_s, slack_s = random.choice([200, 500, 900, 1500]), random.choice([600, 1800, 3600])
    within_s = random.choice(WITHIN_S)
    when = {
        "fixed": f"start: now+{ahead_s}s",
        "yielding": f"start: now+{ahead_s}s, preemptible: true",
        "floating": f"start: now+{ahead_s}s, finish_by: now+{ahead_s + lasts_s + slack_s}s",
        "open": f"open_from: now+{ahead_s}s, open_until: now+{ahead_s + slack_s}s, ready_within: {within_s}s",
    }[kind]
    answer = site.ask(wanted(site, when=when, nodes=nodes, duration=f"{lasts_s}s"), ALICE)
    assert isinstance(answer, Decision), answer
    if answer.result != "accepted":
        return
    assert answer.start_s is not None
    promise = Promise(
        kind=kind,
        name=answer.name,
        first_s=now_s + ahead_s,
        last_s=now_s + ahead_s + lasts_s + slack_s,
        lasts_s=lasts_s,
        nodes=nodes,
        start_s=answer.start_s,
        within_s=within_s,
    )
    if kind == "open":
        promise.last_s = now_s + ahead_s + slack_s
        promise.job = site.rms.outside.submit(
            Submission(
                user=ALICE.user,
                uid=ALICE.uid,
                argv=("sleep", "30"),
                nodes_wanted=nodes,
                resources=Resources.of(cpus=8),
                limit_s=lasts_s,
                reservation=answer.name,
            )
        )
    model.promises.append(promise)


def trigger(model: Model, random: Random) -> None:
    site = model.site
    for promise in random.sample(model.promises, len(model.promises)):
        is_open = promise.kind == "open" and promise.triggered_s is None
        if is_open and promise.first_s <= site.now_s <= promise.last_s:
            answer = site.ask(Trigger(name=promise.name), ALICE)
            assert isinstance(answer, ReservationDetails), answer
            promise.triggered_s = site.now_s
            waiting = site.job(promise.job)
            assert waiting is not None
            assert waiting.state is JobState.PENDING, "it did not wait for its event"
            site.sleep(promise.within_s + 1)
            started = [
                each.at_s for each in site.rms.log if each.subject == promise.job and each.what == "starting"
            ]
            assert started, promise
            assert promise.triggered_s <= started[0] <= promise.triggered_s + promise.within_s
            model.begun += 1
            return


def play(folder: Path, seed: int) -> Model:
    """One history, and then time enough for all of it to be over."""
    random = Random(seed)
    site = Sandbox(folder, nodes=NODES, settings=SETTINGS, policies=POLICIES)
    for pool in site.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    site.sleep(SETTLED_S)
    model = Model(site)
    for _ in range(STEPS):
        what = random.random()
        if what < 0.45:
            ask(model, random)
        elif what < 0.65:
            job(site, random)
        elif what < 0.8:
            trigger(model, random)
        elif what < 0.85:
            site.restart()
        site.sleep(random.choice([1, 5, 30, 100, 250]))
        model.check()
    for _ in range(20):
        site.sleep(400)
        model.check()
    model.yielded = sum(show(site, each.name).reservation.state == "cancelled" for each in model.promises)
    assert all(show(site, each.name).ended_s is not None for each in model.promises)
    site.close()
    return model


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Model]:
    """Each history is played once, for all who look at it."""
    return cache(lambda seed: play(tmp_path_factory.mktemp("history"), seed))


@pytest.mark.parametrize("seed", range(examples(30)))
def test_promises_of_all_kinds_are_kept(played: Callable[[int], Model], seed: int) -> None:
    assert played(seed).promises


def test_histories_have_everything_in_them(played: Callable[[int], Model]) -> None:
    """Without moves, yields and events the histories would say nothing."""
    found = [played(seed) for seed in range(10)]

    assert sum(each.moved for each in found) > 0
    assert sum(each.yielded for each in found) > 0
    assert sum(each.begun for each in found) > 0
