"""Jobs whose image is on nodes already: found when somebody says that they are there, led to all of these."""

from __future__ import annotations

from outrider.rms.base import JobState
from outrider.service.ports import Call, Carry, Finished, NodeImage
from outrider.service.requests import Woken
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of

UBUNTU = digest_of("ubuntu")
ALL = ("n1", "n2", "n3", "n4")
ANSWER_S = 2


def put(sandbox: Sandbox, *names: str) -> None:
    """The image has been in these pools for long."""
    for name in names:
        sandbox.pools[name].images[UBUNTU] = NodeImage(digest=UBUNTU, size_bytes=10 * RATE, uri="x")
    sandbox.sleep(301)


def wake(sandbox: Sandbox) -> None:
    """As the filter does; no time passes."""
    sandbox._handle(Woken())
    sandbox.turn()
    sandbox.turn()


def released_to(sandbox: Sandbox, key: str) -> tuple[str, ...]:
    return sandbox.rms.world.jobs[key].wanted_nodes


def test_job_is_released_in_the_second_in_which_the_service_is_woken(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    key = sandbox.submit()
    before = sandbox.job(key)
    wake(sandbox)
    after = sandbox.job(key)

    assert before is not None
    assert before.state is JobState.HELD
    assert after is not None
    assert after.state is not JobState.HELD


def test_burst_is_released_to_all_nodes_that_have_the_image(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    keys = [sandbox.submit(cpus=1, caller=(ALICE, BOB)[number % 2]) for number in range(20)]
    wake(sandbox)

    assert {key: released_to(sandbox, key) for key in keys} == dict.fromkeys(keys, ALL)


def test_burst_that_comes_in_parts_waits_for_no_second(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    keys = []
    for _ in range(10):
        keys += [sandbox.submit(cpus=1), sandbox.submit(cpus=1)]
        wake(sandbox)

    assert {key: released_to(sandbox, key) for key in keys} == dict.fromkeys(keys, ALL)


def test_holder_that_does_not_answer_is_not_waited_for(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    sandbox.pools["n2"].is_away = True
    key = sandbox.submit(cpus=1)
    wake(sandbox)
    sandbox.sleep(ANSWER_S)

    assert released_to(sandbox, key) == ("n1", "n3", "n4")


def test_wide_job_waits_for_as_many_holders_as_it_wants(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "n3", "n4")
    key = sandbox.submit(cpus=1, nodes=2)
    wake(sandbox)

    assert released_to(sandbox, key) == ("n1", "n3", "n4")


def test_service_that_is_woken_again_and_again_orders_nothing_twice(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    keys = [sandbox.submit(cpus=8) for _ in range(12)]
    for _ in range(20):
        wake(sandbox)
    released = [each.subject for each in sandbox.rms.log if each.what == "pending"]

    assert sorted(released) == sorted(keys)
    assert sum("job is released" in line for line in sandbox.log.lines) == len(keys)


def test_order_that_waits_for_its_turn_is_not_given_again(sandbox: Sandbox) -> None:
    put(sandbox, *ALL)
    keys = [sandbox.submit(cpus=1) for _ in range(40)]
    for _ in range(5):
        # The batch system has not got round to any of them.
        calls: list[Call] = list(sandbox.desk.handle(Woken(), sandbox.now_s).calls)
        while calls:
            call = calls.pop(0)
            if not isinstance(call, Carry):
                result = sandbox._carry_out(call)
                calls += sandbox.desk.handle(Finished(call=call, result=result), sandbox.now_s).calls  # type: ignore[arg-type]

    assert sum("job is released" in line for line in sandbox.log.lines) == len(keys)
