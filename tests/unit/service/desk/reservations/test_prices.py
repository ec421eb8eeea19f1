"""What reservations cost live: agreed, changed, charged, and added up."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import Report
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.requests import Accept, Caller, Cancel, Modify, Reserve, Show, ShowReport
from outrider.service.settings import Settings
from tests.amount import few
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, reserve, show, wanted

HOUR_S = 3_600
PLAIN = b"version: 1\nrules: [{name: all}]\nleases: {pricing: {rate: 1000}}\n"
NOTICE = b"""
version: 1
rules: [{name: all}]
leases: {pricing: {rate: 1000, notice: [{within: 1h, percent: 50}]}}
"""
LOAD = b"""
version: 1
rules: [{name: all}]
leases: {pricing: {rate: 1000, load: [{from: 50%, percent: 100}]}}
"""
CAROL = Caller(uid=1003, user="carol", groups=("chemistry", "physics"), group="chemistry")


def priced(folder: Path, policies: bytes = PLAIN, settings: Settings | None = None) -> Sandbox:
    return Sandbox(folder, policies=policies, settings=settings)


def details(sandbox: Sandbox, name: str, caller: Caller = ALICE) -> ReservationDetails:
    answer = sandbox.ask(Show(name=name), caller)
    assert isinstance(answer, ReservationDetails)
    return answer


def report(sandbox: Sandbox, caller: Caller = ADMIN, **values: object) -> Report:
    answer = sandbox.ask(ShowReport(**values), caller)  # type: ignore[arg-type]
    assert isinstance(answer, Report)
    return answer


def test_price_is_nodes_times_hours_times_the_rate(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)

    decision = reserve(sandbox, nodes=2, duration="90m")

    # Two nodes for an hour and a half at one (a thousand thousandths) for a node and an hour.
    assert decision.price == 3_000
    assert show(sandbox, decision.name).price == 3_000


def test_where_there_are_no_prices_nothing_has_one(sandbox: Sandbox) -> None:
    decision = reserve(sandbox)
    sandbox.ask(Cancel(name=decision.name))

    assert decision.price is None
    assert details(sandbox, decision.name).receipt is not None
    assert report(sandbox).lines == ()


def test_short_notice_costs_more(tmp_path: Path) -> None:
    sandbox = priced(tmp_path, NOTICE)

    soon, later = reserve(sandbox, start="now+59m"), reserve(sandbox, start="now+61m")

    assert (soon.price, later.price) == (1_500, 1_000)


def test_load_of_others_costs_more_and_ones_own_does_not(tmp_path: Path) -> None:
    sandbox = priced(tmp_path, LOAD)

    first, second = reserve(sandbox, nodes=3), reserve(sandbox, nodes=1)

    assert (first.price, second.price) == (3_000, 2_000)


@pytest.mark.parametrize(
    ("wait_s", "expected"),
    [(5, 0), (600 + HOUR_S // 4, 250), (600 + HOUR_S + 1, 1_000)],
    ids=["before its start", "after a quarter", "at its end"],
)
def test_what_is_charged_is_for_the_time_that_nodes_were_had(
    tmp_path: Path, wait_s: int, expected: int
) -> None:
    sandbox = priced(tmp_path)
    name = reserve(sandbox).name
    sandbox.sleep(wait_s)
    sandbox.ask(Cancel(name=name))

    receipt = details(sandbox, name).receipt

    assert receipt is not None
    assert (receipt.price, receipt.charged) == (1_000, expected)
    (line,) = report(sandbox).lines
    assert (line.payer, line.reservations, line.charged, line.booked) == ("alice", 1, expected, 0)


def test_what_was_not_met_costs_nothing(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)
    for pool in sandbox.pools.values():
        pool.broken = "no route to host"
    name = reserve(sandbox).name
    sandbox.sleep(2 * HOUR_S)

    receipt = details(sandbox, name).receipt

    assert receipt is not None
    assert (receipt.is_met, receipt.charged) == (False, 0)


def test_change_is_priced_anew_and_more_time_while_it_runs_is_added(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)
    name = reserve(sandbox, nodes=1).name
    larger = sandbox.ask(Modify(name=name, nodes=2))
    sandbox.sleep(700)
    longer = sandbox.ask(Modify(name=name, duration_s=2 * HOUR_S))
    shorter = sandbox.ask(Modify(name=name, duration_s=HOUR_S // 2))

    prices = [each.price for each in (larger, longer, shorter) if isinstance(each, Decision)]

    assert prices == [2_000, 4_000, 1_000]
    assert show(sandbox, name).price == 1_000


def test_offer_names_its_price_and_that_is_what_it_costs(tmp_path: Path) -> None:
    sandbox = priced(tmp_path, NOTICE)
    reserve(sandbox, BOB, name="crowd", nodes=4, start="now+10m", duration="50m30s")
    refused = reserve(sandbox, nodes=2, start="now+20m", duration="30m")
    offer = next(each for each in refused.offers if each.kind == "later")
    sandbox.sleep(50)
    # By now its start is less than an hour away, and would cost half as much again.
    planned = sandbox.ask(
        replace(wanted(sandbox, nodes=2, start=f"uts{offer.start_s}", duration="30m"), is_plan=True)
    )

    accepted = sandbox.ask(Accept(name=offer.name))

    assert isinstance(planned, Decision)
    assert isinstance(accepted, Decision)
    assert (offer.price, planned.price, accepted.price) == (1_000, 1_500, 1_000)
    assert show(sandbox, accepted.name).price == 1_000


def test_what_is_too_dear_is_refused_and_counted_apart(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)

    dear = sandbox.ask(replace(wanted(sandbox, nodes=2), most_price=1_999))
    fair = sandbox.ask(replace(wanted(sandbox, nodes=2), most_price=2_000))
    impossible = reserve(sandbox, nodes=5)

    assert isinstance(dear, Decision)
    assert isinstance(fair, Decision)
    assert (dear.result, dear.cause, fair.result, impossible.result) == (
        "refused", "policy", "accepted", "refused"
    )  # fmt: skip
    assert "it costs 2.000, and 1.999" in dear.reason
    (line,) = report(sandbox).lines
    assert (line.too_dear, line.lost_to_price, line.refused, line.lost_to_refusals) == (1, 2_000, 1, 5_000)
    assert (line.booked_reservations, line.booked) == (1, 2_000)


def test_what_recurs_costs_the_sum_of_its_occurrences(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)
    request = wanted(sandbox, start="now+1h")
    starts = tuple(sandbox.now_s + hour * HOUR_S for hour in (1, 3, 5))

    decision = sandbox.ask(replace(request, starts=starts))

    assert isinstance(decision, Decision)
    assert (decision.price, [each.price for each in decision.occurrences]) == (3_000, [1_000] * 3)
    (line,) = report(sandbox).lines
    assert (line.booked_reservations, line.booked) == (3, 3_000)


def test_users_are_told_their_own_sums_alone(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)
    reserve(sandbox, ALICE)
    reserve(sandbox, BOB)

    own, of_all = report(sandbox, BOB), report(sandbox, ADMIN)

    assert ([each.payer for each in own.lines], own.is_of_all) == (["bob"], False)
    assert ([each.payer for each in of_all.lines], of_all.is_of_all) == (["alice", "bob"], True)


def test_period_is_when_reservations_were_over(tmp_path: Path) -> None:
    sandbox = priced(tmp_path)
    name = reserve(sandbox).name
    sandbox.sleep(600 + HOUR_S + 1)
    ended_s = details(sandbox, name).ended_s
    assert ended_s is not None

    during = report(sandbox, from_s=ended_s, until_s=ended_s + 1)
    before = report(sandbox, from_s=0, until_s=ended_s)
    after = report(sandbox, from_s=ended_s + 1)

    assert [each.charged for each in during.lines] == [1_000]
    assert before.lines == after.lines == ()


@pytest.mark.parametrize("seed", range(few(45)))
def test_sums_add_up_over_random_histories_whoever_pays(tmp_path: Path, seed: int) -> None:
    # Half a day is simulated.
    seldom = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=120, reconcile_every_s=1_200)
    chance, sandbox = random.Random(seed), priced(tmp_path, LOAD, seldom)
    owners: dict[str, Caller] = {}
    lost = dear = 0
    for _ in range(20):
        caller = chance.choice((ALICE, BOB, CAROL))
        request = _asked(sandbox, chance)
        answer = sandbox.ask(request, caller)
        assert isinstance(answer, Decision)
        assert answer.price is not None
        if answer.result == "accepted":
            owners |= dict.fromkeys([each.name for each in answer.occurrences] or [answer.name], caller)
        elif answer.reason.startswith("it costs"):
            dear += answer.price
        else:
            lost += answer.price
        if owners and chance.random() < 0.4:
            name = chance.choice(sorted(owners))
            sandbox.ask(Cancel(name=name), owners[name])
        sandbox.sleep(chance.randint(1, HOUR_S))
        if chance.random() < 0.1:
            sandbox.restart()
    found = [details(sandbox, name, owner) for name, owner in owners.items()]
    charged = sum(each.receipt.charged or 0 for each in found if each.receipt is not None)
    booked = sum(each.price or 0 for each in found if each.receipt is None)
    sums = [report(sandbox, by=by).lines for by in ("user", "account", "group")]
    own = [line for caller in (ALICE, BOB, CAROL) for line in report(sandbox, caller).lines]

    for lines in (*sums, own):
        assert sum(each.charged for each in lines) == charged
        assert sum(each.booked for each in lines) == booked
        assert sum(each.lost_to_refusals for each in lines) == lost
        assert sum(each.lost_to_price for each in lines) == dear
        assert sum(each.reservations + each.booked_reservations for each in lines) == len(owners)


def _asked(sandbox: Sandbox, chance: random.Random) -> Reserve:
    request = wanted(
        sandbox,
        nodes=chance.randint(1, 4),
        start=f"now+{chance.randint(120, 3 * HOUR_S)}s",
        duration=f"{chance.randint(600, 2 * HOUR_S)}s",
        account=chance.choice(("", "physics")),
    )
    request = replace(request, account="physics" if chance.random() < 0.5 else "")
    if chance.random() < 0.3:
        first_s = request.workspace.deployment.start_s  # type: ignore[union-attr]
        assert first_s is not None
        request = replace(request, starts=(first_s, first_s + 3 * HOUR_S))
    return replace(request, most_price=chance.choice((None, None, 2_500)))


def test_one_whose_node_the_site_has_no_more_costs_what_was_agreed(tmp_path: Path) -> None:
    sandbox = priced(tmp_path, LOAD)
    name = reserve(sandbox, nodes=1, start="now+10m", duration="1h").name
    agreed, node = show(sandbox, name).price, show(sandbox, name).reservation.nodes
    sandbox.rms.world.nodes.pop(node)
    sandbox.sleep(60)
    after = show(sandbox, name)
    sandbox.sleep(2 * HOUR_S)

    assert after.reservation.nodes not in (node, "")
    assert after.price == agreed
    assert [(each.reservations, each.charged) for each in report(sandbox).lines] == [(1, agreed)]
