"""Offers over random histories: what is protected can be accepted, as it was offered."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import Offer
from outrider.service.requests import Accept, Caller
from outrider.service.settings import Settings
from tests.amount import few
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, wanted

CAROL = Caller(uid=1003, user="carol")
HELD_S = 40
IMAGES = ("ubuntu", "debian", "alma")


class Naive:
    """What is booked, as lists: nodes, and when they are taken."""

    def __init__(self) -> None:
        self.booked: list[tuple[set[str], int, int]] = []

    def book(self, sandbox: Sandbox, decision: Decision) -> None:
        nodes, start_s, end_s = set(expand(decision.nodes)), decision.start_s, decision.end_s
        assert start_s is not None
        assert end_s is not None
        for others, from_s, until_s in self.booked:
            assert not (nodes & others and start_s < until_s and from_s < end_s), decision
        self.booked.append((nodes, start_s, end_s))


def ask(sandbox: Sandbox, chance: random.Random, caller: Caller) -> Decision:
    # Nobody asks for a start before offers that are held now are over.
    ahead_s = chance.randint(HELD_S + 15, 1_500)
    request = wanted(
        sandbox,
        name=caller.user,
        image=chance.choice(IMAGES),
        nodes=chance.randint(1, 3),
        start=f"now+{ahead_s}s",
        duration=f"{chance.randint(60, 900)}s",
    )
    answer = sandbox.ask(request, caller)
    assert isinstance(answer, Decision), answer
    return answer


@pytest.mark.parametrize("seed", range(few(150)))
def test_protected_offer_is_accepted_whatever_others_ask_for(tmp_path: Path, seed: int) -> None:
    chance, naive = random.Random(seed), Naive()
    sandbox = Sandbox(
        tmp_path, nodes=3, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=60, offers_held_s=HELD_S)
    )
    accepted = 0
    for _ in range(25):
        caller = chance.choice((ALICE, BOB, CAROL))
        decision = ask(sandbox, chance, caller)
        if decision.result == "accepted":
            naive.book(sandbox, decision)
            continue
        if not decision.offers or not decision.are_offers_protected:
            continue
        offer, until_s = chance.choice(decision.offers), decision.offers_until_s
        assert until_s == sandbox.now_s + HELD_S
        for _ in range(chance.randint(0, 4)):
            sandbox.sleep(chance.randint(0, 8))
            other = ask(
                sandbox, chance, chance.choice([each for each in (ALICE, BOB, CAROL) if each != caller])
            )
            if other.result == "accepted":
                naive.book(sandbox, other)
        agreed = sandbox.ask(Accept(name=offer.name), caller)
        assert isinstance(agreed, Decision), agreed
        _check_terms(agreed, offer)
        naive.book(sandbox, agreed)
        accepted += 1
        sandbox.sleep(chance.randint(1, 200))
    sandbox.close()

    assert accepted or seed


def _check_terms(agreed: Decision, offer: Offer) -> None:
    """What was offered; on other nodes, perhaps."""
    assert agreed.result == "accepted", (agreed.reason, offer)
    assert (agreed.start_s, agreed.end_s, agreed.node_count) == (offer.start_s, offer.end_s, offer.node_count)
