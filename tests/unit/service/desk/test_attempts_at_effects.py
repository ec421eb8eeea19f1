"""What the batch system did not do is tried again, less and less often; and at once when that may help."""

from __future__ import annotations

from outrider.rms.base import RmsReservation
from outrider.rms.twin.faults import Fault
from outrider.service.answers.decision import Decision
from outrider.service.requests import Trigger
from tests.unit.service.desk.sandbox import Sandbox, reserve, wanted


def there(sandbox: Sandbox) -> list[RmsReservation]:
    return list(sandbox.rms.look().reservations)


def test_batch_system_that_is_back_has_reservations_before_the_next_attempt_would_have_come(
    sandbox: Sandbox,
) -> None:
    """It was away for a quarter of an hour, and the reservation begins a minute after."""
    sandbox.rms.faults.be_unreachable_until(sandbox.now_s + 10**9)
    accepted = reserve(sandbox, start="now+16minutes")
    sandbox.sleep(15 * 60)
    sandbox.rms.faults.be_unreachable_until(0)
    (waiting,) = sandbox.store.waiting_effects(accepted.name)
    before_s = waiting.due_s - sandbox.now_s
    # It is looked at that often.
    sandbox.sleep(sandbox.settings.look_every_s + 1)

    assert accepted.result == "accepted"
    assert before_s > sandbox.settings.look_every_s + 1, "the test shows something"
    assert [each.name for each in there(sandbox)] == [accepted.name]


def test_event_of_an_open_reservation_does_not_wait_for_an_attempt_that_failed(sandbox: Sandbox) -> None:
    """It starts two minutes after its event, and the next attempt would come after more than three."""
    sandbox.rms.faults.plan("reserve", *[Fault.UNREACHED] * 8)
    when = "open_from: now+2minutes, open_until: now+5hours, ready_within: 120s"
    answer = sandbox.ask(wanted(sandbox, when=when))
    assert isinstance(answer, Decision), answer
    sandbox.sleep(300)
    (waiting,) = sandbox.store.waiting_effects(answer.name)
    before_s = waiting.due_s - sandbox.now_s
    missed = list(there(sandbox))
    sandbox.ask(Trigger(name=answer.name))
    sandbox.sleep(5)

    assert missed == []
    assert before_s > 120, "the test shows something"
    assert [each.name for each in there(sandbox)] == [answer.name]
