"""Best-effort jobs on their way to their images, seen from outside of the desk."""

from __future__ import annotations

from outrider.rms.base import JobState
from tests.service.sandbox import Sandbox, digest_of


def states(sandbox: Sandbox, key: str) -> list[tuple[int, str, str]]:
    """What has become of a job, and when."""
    return [(each.at_s, each.what, each.why) for each in sandbox.rms.log if each.subject == key]


def test_held_job_is_released_to_a_node_with_its_image(sandbox: Sandbox) -> None:
    key = sandbox.submit()
    begun_s = sandbox.now_s
    sandbox.sleep(60)

    node = next(why for _, what, why in states(sandbox, key) if what == "starting")
    pending_s = next(at_s for at_s, what, _ in states(sandbox, key) if what == "pending")
    brought = sandbox.pools[node].images[digest_of("ubuntu")]
    assert begun_s < brought.added_s <= pending_s
    assert sandbox.rms.outside.ticket(key) == f"ticket {key} 1001 {digest_of('ubuntu')[:11]}"


def test_job_that_nobody_held_is_held_until_its_image_is_there(sandbox: Sandbox) -> None:
    key = sandbox.submit(is_held=False, nodes=4)
    for name in sandbox.pools:
        sandbox.rms.outside.drain(name)
    sandbox.sleep(35)
    held = sandbox.job(key)
    for name in sandbox.pools:
        sandbox.rms.outside.repair(name)
    sandbox.sleep(60)

    assert held is not None
    assert held.state is JobState.HELD
    assert held.is_held_by_us
    assert [what for _, what, _ in states(sandbox, key)][-2:] == ["starting", "running"]
