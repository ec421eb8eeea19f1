"""Offers are looked for in slices: others are answered in between, and what they take is not offered."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer
from outrider.service.desk.leases.offer_searches import MOST_OF_ONE
from outrider.service.requests import Asked, Caller, Modify, Request, Reserve, ShowStatus, Ticked
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox, reserve, wanted


class Window:
    """Asks the desk, and lets it go on only when it is told to."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._tickets = 10_000
        self.answers: dict[int, Answer] = {}

    def ask(self, request: Request, caller: Caller = ALICE) -> int:
        self._tickets += 1
        self._handle(Asked(ticket=self._tickets, caller=caller, request=request))
        return self._tickets

    def go_on(self, most: int = 100) -> int:
        """So many slices, or as many as there are."""
        for number in range(most):
            if (self._sandbox.desk.next_s() or self._sandbox.now_s + 1) > self._sandbox.now_s:
                return number
            self._handle(Ticked())
        return most

    def decision(self, ticket: int) -> Decision:
        answer = self.answers[ticket]
        assert isinstance(answer, Decision)
        return answer

    def _handle(self, event: Asked | Ticked) -> None:
        outcome = self._sandbox.desk.handle(event, self._sandbox.now_s)
        self.answers |= {reply.ticket: reply.answer for reply in outcome.replies}


def crowded(sandbox: Sandbox) -> Window:
    """Of four nodes three are taken from ten minutes from now on, for an hour."""
    reserve(sandbox, BOB, name="crowd", nodes=3, start="now+10minutes", duration="1h")
    sandbox.sleep(1)
    window = Window(sandbox)
    window.go_on()
    return window


def vain(sandbox: Sandbox, name: str = "vain", key: str = "") -> Reserve:
    request = wanted(sandbox, name=name, nodes=2, start="now+15minutes", duration="1h")
    return replace(request, key=key, request_hash=key)


def test_others_are_answered_while_offers_are_looked_for(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    refused = window.ask(vain(sandbox))

    looked = window.ask(ShowStatus(), BOB)
    accepted = window.ask(wanted(sandbox, name="late", nodes=1, start="now+3h"), BOB)
    answered = set(window.answers)
    slices = window.go_on()

    assert answered == {looked, accepted}
    assert window.decision(accepted).result == "accepted"
    assert slices > 3
    assert {each.kind for each in window.decision(refused).offers} >= {"later", "fewer-nodes"}


def test_what_others_take_meanwhile_is_not_offered(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    alone = window.ask(vain(sandbox))
    window.go_on()
    refused = window.ask(replace(vain(sandbox), is_plan=True))
    # All but the look at the last: then somebody else takes the node that was free.
    window.go_on(most=3)
    taken = window.ask(wanted(sandbox, name="quick", nodes=1, start="now+15minutes", duration="1h"), ALICE)
    window.go_on()

    assert "fewer-nodes" in {each.kind for each in window.decision(alone).offers}
    assert window.decision(taken).result == "accepted"
    offers = {each.kind: each for each in window.decision(refused).offers}
    assert "fewer-nodes" not in offers
    assert "later" in offers


def test_an_earliest_start_that_others_take_meanwhile_is_not_named(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    alone = window.ask(vain(sandbox))
    window.go_on()
    first_s = window.decision(alone).earliest_start_s
    assert first_s is not None
    refused = window.ask(vain(sandbox))
    window.go_on(most=1)
    start = datetime.fromtimestamp(first_s, UTC).isoformat()
    taken = window.ask(wanted(sandbox, name="quick", nodes=4, start=start, duration="1h"))
    window.go_on()

    assert window.decision(taken).result == "accepted"
    assert window.decision(refused).earliest_start_s == first_s + 3600


def test_who_has_too_many_searches_is_told_that_none_was_made(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    for number in range(MOST_OF_ONE):
        window.ask(vain(sandbox, name=f"vain{number}"))

    at_once = window.decision(window.ask(vain(sandbox, name="more")))

    assert at_once.result == "refused"
    assert at_once.earliest_start_s is None
    assert "ask again" in at_once.notes[-1]


def test_whoever_asks_the_same_again_is_answered_alike(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    first = window.ask(vain(sandbox, key="again"))
    second = window.ask(vain(sandbox, key="again"))
    window.go_on()
    third = window.ask(vain(sandbox, key="again"))
    sandbox.restart()
    fourth = Window(sandbox)
    last = fourth.ask(vain(sandbox, key="again"))

    told = window.decision(first)
    assert told.offers
    assert [window.decision(second), window.decision(third), fourth.decision(last)] == [told] * 3


def test_of_one_user_so_many_searches_are_open_at_a_time(sandbox: Sandbox) -> None:
    window = crowded(sandbox)
    searched = [window.ask(vain(sandbox, name=f"vain{number}")) for number in range(MOST_OF_ONE)]
    at_once = window.ask(vain(sandbox, name="more"))
    assert window.decision(at_once).offers == ()
    other = window.ask(vain(sandbox, name="other"), BOB)
    assert set(window.answers) == {at_once}

    window.go_on(most=600)

    assert all(window.decision(ticket).offers for ticket in (*searched, other))


def test_others_are_answered_while_it_is_looked_for_when_options_and_changes_could_start(
    sandbox: Sandbox,
) -> None:
    own = reserve(sandbox, ALICE, name="own", nodes=1, start="now+12minutes", duration="1h")
    window = crowded(sandbox)
    ways = "start: now+15minutes, options: [{nodes: 2, duration: 1h}, {nodes: 4, duration: 50m}]"
    refused = window.ask(wanted(sandbox, name="ways", when=ways))
    changed = window.ask(Modify(name=own.name, nodes=2))
    at_once = window.ask(wanted(sandbox, name="soon", nodes=4, when="start: now, finish_by: now+70minutes"))
    looked = window.ask(ShowStatus(), BOB)
    answered = set(window.answers)
    window.go_on()

    assert answered == {looked}
    assert own.end_s is not None
    crowd_ends_s = own.end_s - 2 * 60
    starts = [each.earliest_start_s for each in window.decision(refused).options]
    assert starts == [crowd_ends_s, own.end_s]
    assert window.decision(changed).result == "refused"
    assert window.decision(changed).earliest_start_s == crowd_ends_s
    assert window.decision(at_once).earliest_start_s == own.end_s
