"""What the desk counts for each user of what all share: held while it is held, and no longer."""

from __future__ import annotations

from outrider.service.requests import Cancel, Modify
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox, reserve


def shares(sandbox: Sandbox) -> dict[tuple[str, str], int]:
    return {(each.thing, each.user): each.held for each in sandbox.desk.shares()}


def test_reservations_count_for_their_owners_until_they_are_over(sandbox: Sandbox) -> None:
    reserve(sandbox, ALICE, start="now+1hour", duration="30m", nodes=2)
    reserve(sandbox, BOB, start="now+2hours", duration="10m", nodes=1)
    before = shares(sandbox)
    sandbox.sleep(95 * 60)
    later = shares(sandbox)
    sandbox.sleep(6 * 3600)

    alice, bob = str(ALICE.uid), str(BOB.uid)
    assert (before["reservations", alice], before["reservations", bob]) == (1, 1)
    assert before["reserved time on nodes", alice] == 2 * 30 * 60
    assert before["promised bytes in pools", alice] == 2 * before["promised bytes in pools", bob]
    assert set(later) == {(thing, user) for thing, user in before if user == bob}
    assert later["reserved time on nodes", bob] == 10 * 60
    assert shares(sandbox) == {}


def test_what_is_kept_up_is_what_counting_gives(sandbox: Sandbox) -> None:
    first = reserve(sandbox, ALICE, start="now+1hour", duration="30m", nodes=2)
    second = reserve(sandbox, ALICE, start="now+5hours", duration="30m", nodes=1)
    sandbox.ask(Modify(name=first.name, nodes=1, duration_s=3600), ALICE)
    changed = shares(sandbox)
    sandbox.restart()
    restarted = shares(sandbox)
    sandbox.ask(Cancel(name=second.name), ALICE)

    alice = str(ALICE.uid)
    assert (changed["reservations", alice], changed["reserved time on nodes", alice]) == (2, 3600 + 1800)
    assert restarted == changed
    assert shares(sandbox)["reserved time on nodes", alice] == 3600


def test_jobs_count_for_their_owners_while_they_wait_for_images(sandbox: Sandbox) -> None:
    sandbox.submit()
    sandbox.sleep(31)
    waiting = shares(sandbox)
    sandbox.sleep(300)

    [(user, count)] = [(user, held) for (thing, user), held in waiting.items() if thing.startswith("jobs")]
    assert count == 1
    assert waiting["bytes on the link for jobs", user] > 0
    assert shares(sandbox) == {}
