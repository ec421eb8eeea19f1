"""A host that has just become unheard of may be back in a moment; one that stays so is lost."""

from __future__ import annotations

from outrider.rms.gridengine.hearing import UNHEARD_S, Hearing
from outrider.rms.gridengine.parsing import QueueInstance


def queues(**states: str) -> tuple[QueueInstance, ...]:
    return tuple(
        QueueInstance(queue="all.q", host=host, slots=2, state=state) for host, state in states.items()
    )


def test_host_is_lost_when_it_has_been_unheard_of_for_long_enough() -> None:
    hearing = Hearing()
    looks = [hearing.told(queues(n1="au", n2=""), at_s) for at_s in (1000, 1000 + UNHEARD_S - 1)]

    assert looks == [queues(n1="a", n2="")] * 2
    assert hearing.told(queues(n1="au", n2=""), 1000 + UNHEARD_S) == queues(n1="au", n2="")


def test_host_that_was_heard_of_again_has_all_its_time_anew() -> None:
    hearing = Hearing()
    hearing.told(queues(n1="u"), 1000)
    hearing.told(queues(n1=""), 1000 + UNHEARD_S)

    assert hearing.told(queues(n1="u"), 1000 + 2 * UNHEARD_S) == queues(n1="")


def test_what_else_is_said_of_a_queue_stays() -> None:
    assert Hearing().told(queues(n1="adu", n2="E"), 1000) == queues(n1="ad", n2="E")
