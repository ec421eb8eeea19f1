"""Full copies on nodes whose file systems share no blocks: made before their jobs are released."""

from __future__ import annotations

import pytest

from outrider.rms.base import JobState
from outrider.service.answers.jobs import JobDetails
from outrider.service.ports import NodeImage
from outrider.service.requests import Caller, ShowJob
from tests.unit.service.desk.sandbox import (
    ALICE,
    BOB,
    RATE,
    Sandbox,
    digest_of,
    reserve,
    show,
)

UBUNTU = digest_of("ubuntu")
SIZE_BYTES = 10 * RATE
FIRST_LOOK_S = 35


@pytest.fixture
def copying(sandbox: Sandbox) -> Sandbox:
    """A site all of whose nodes copy what is no disk image."""
    for pool in sandbox.pools.values():
        pool.copied_formats = ("file",)
    put(sandbox, "n1")
    return sandbox


def put(sandbox: Sandbox, *names: str) -> None:
    """The image has been in these pools for long."""
    for name in names:
        sandbox.pools[name].images[UBUNTU] = NodeImage(digest=UBUNTU, size_bytes=SIZE_BYTES, uri="x")
    sandbox.sleep(301)


def submit(sandbox: Sandbox, *, caller: Caller = ALICE, eligible: tuple[str, ...] = ()) -> str:
    return sandbox.submit(more="format: file\n", caller=caller, eligible=eligible, argv=("sleep", "600"))


def when(sandbox: Sandbox, key: str, what: str) -> int:
    return next(each.at_s for each in sandbox.rms.log if each.subject == key and each.what == what)


def promised_bytes(sandbox: Sandbox) -> int:
    """What the service promises of the first node's pool."""
    parts = sandbox.desk._parts
    assert parts is not None
    return parts.site.book.pools.pools[0].peak((), sandbox.now_s + 1)


def copies(sandbox: Sandbox, node: str) -> list[str]:
    return [owner for _, owner in sandbox.pools[node].copies]


def test_job_is_released_when_its_copy_is_made(copying: Sandbox) -> None:
    key = submit(copying)
    copying.sleep(FIRST_LOOK_S)
    before = copying.job(key), copies(copying, "n1")
    made_s = copying.pools["n1"].copies[UBUNTU, f"job-{key}"]
    copying.sleep(60)

    assert before[0] is not None
    assert (before[0].state, before[1]) == (JobState.HELD, [f"job-{key}"])
    assert copying.rms.outside.ticket(key).startswith(f"ticket {key}")
    assert made_s <= when(copying, key, "pending") <= made_s + 5


def test_user_sees_that_it_is_copied(copying: Sandbox) -> None:
    key = submit(copying)
    copying.sleep(FIRST_LOOK_S + 5)

    shown = copying.ask(ShowJob(job=key))
    assert isinstance(shown, JobDetails)
    assert "n1 makes the job's copy of it" in shown.job.words


def test_job_that_is_cancelled_leaves_no_copy(copying: Sandbox) -> None:
    key = submit(copying)
    copying.sleep(FIRST_LOOK_S)
    before = copies(copying, "n1")
    copying.rms.outside.cancel(key)
    copying.sleep(60)

    assert before == [f"job-{key}"]
    assert [copies(copying, name) for name in copying.pools] == [[], [], [], []]
    assert copying.pools["n1"].pins == {}


def test_copy_stays_for_a_moment_when_its_job_has_begun(copying: Sandbox) -> None:
    key = submit(copying)
    while (job := copying.job(key)) is None or job.state is not JobState.RUNNING:
        copying.sleep(1)
    copying.turn()
    at_start = copies(copying, "n1")
    copying.sleep(120)

    # Its prolog takes it meanwhile; here nobody does.
    assert at_start == [f"job-{key}"]
    assert copies(copying, "n1") == []


def test_node_that_cannot_copy_is_gone_round(copying: Sandbox) -> None:
    copying.pools["n1"].uncopied = "the pool lacks 1 GB"
    key = submit(copying)
    copying.sleep(180)
    job = copying.job(key)

    assert job is not None
    assert job.state is JobState.RUNNING
    assert job.nodes != ("n1",)
    assert copies(copying, "n1") == []


def test_job_that_no_node_can_copy_for_stays_held_and_says_why(copying: Sandbox) -> None:
    for pool in copying.pools.values():
        pool.uncopied = "the pool lacks 1 GB"
    key = submit(copying)
    copying.sleep(180)
    job = copying.job(key)
    for pool in copying.pools.values():
        pool.uncopied = ""
    copying.sleep(600)
    later = copying.job(key)

    assert job is not None
    assert job.state is JobState.HELD
    assert any("the pool lacks 1 GB" in line for line in copying.notes[key])
    assert later is not None
    assert later.state is JobState.RUNNING


def test_node_with_reflinks_is_asked_for_no_copies(sandbox: Sandbox) -> None:
    put(sandbox, "n1")
    key = submit(sandbox)
    sandbox.sleep(60)

    assert sandbox.job(key) is not None
    assert all(not pool.copied for pool in sandbox.pools.values())


def test_image_and_copy_have_to_fit_together(copying: Sandbox) -> None:
    for name, pool in copying.pools.items():
        pool.limit_bytes = (5 if name == "n4" else 3) * SIZE_BYTES // 2
    copying.sleep(301)
    keys = [submit(copying, caller=who) for who in (ALICE, BOB)]
    copying.sleep(40)

    # Of three halves no pool takes an image and a copy.
    led = {key: [name for name in copying.pools if f"job-{key}" in copies(copying, name)] for key in keys}
    assert set().union(*led.values()) <= {"n4"}


def test_room_for_a_copy_is_promised_until_its_job_has_begun(copying: Sandbox) -> None:
    key = submit(copying, eligible=("n1",))
    copying.rms.outside.drain("n2")
    copying.sleep(FIRST_LOOK_S)
    waiting = promised_bytes(copying)
    copying.rms.outside.cancel(key)
    copying.sleep(60)

    assert waiting == 2 * SIZE_BYTES
    assert promised_bytes(copying) == 0


def test_copy_for_a_reservation_is_made_shortly_before_its_start(copying: Sandbox) -> None:
    reserve(copying, image="ubuntu", size_bytes=SIZE_BYTES, start="now+30minutes", nodes=1)
    start_s = show(copying, "render-1").reservation.start_s
    copying.sleep(start_s - copying.now_s - 200)
    early = [copies(copying, name) for name in copying.pools]
    copying.sleep(190)
    made = [copies(copying, name) for name in copying.pools]

    assert early == [[], [], [], []]
    assert made == [["render-1"], [], [], []]


def test_reservation_without_room_for_a_copy_is_kept_all_the_same(copying: Sandbox) -> None:
    for pool in copying.pools.values():
        pool.uncopied = "the pool lacks 1 GB"
    reserve(copying, image="ubuntu", size_bytes=SIZE_BYTES, start="now+10minutes", nodes=1)
    copying.sleep(660)

    assert show(copying, "render-1").reservation.state == "active"
    assert any("no copy before the job" in line for line in copying.log.lines)
