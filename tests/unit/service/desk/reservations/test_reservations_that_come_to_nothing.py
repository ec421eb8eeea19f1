"""A reservation whose image does not come, or is another one: what others have of the link, and what is
said of it."""

from __future__ import annotations

from pathlib import Path

from outrider.service.ports import Relay
from outrider.service.settings import Settings
from tests.unit.service.desk.jobs.test_turns_on_the_link import LOOK_S, crowd, wait_s
from tests.unit.service.desk.sandbox import BOB, RATE, Sandbox, digest_of, reserve, show

WRONG = (
    f"image https://images.example.org/ubuntu was promised as {digest_of('ubuntu')} but what came is "
    f"sha256:{'b' * 64}: correct the digest, or look at its source"
)
LARGE = 200 * RATE


def fetches(sandbox: Sandbox, owner: str = "render-1") -> int:
    return sum(each.owner == owner for pool in sandbox.pools.values() for each in pool.fetches)


def slow_down(sandbox: Sandbox, name: str, rate_bytes_per_s: int) -> None:
    """What comes to a node of what it fetches."""
    sandbox.pools[name].rate_bytes_per_s = rate_bytes_per_s


def begin(sandbox: Sandbox) -> None:
    """A reservation on n1 is being brought a large image."""
    reserve(sandbox, size_bytes=LARGE, start="now+6minutes")
    while not sandbox.pools["n1"].arriving:
        sandbox.sleep(1)
    sandbox.sleep(30)


def job_elsewhere(sandbox: Sandbox, seconds: int = 20) -> str:
    name = "elsewhere"
    sandbox.sizes[f"https://images.example.org/{name}"] = seconds * RATE
    return sandbox.submit(name, caller=BOB, eligible=("n3",))


def test_link_that_a_reservation_does_not_use_belongs_to_who_waits(sandbox: Sandbox) -> None:
    begin(sandbox)
    slow_down(sandbox, "n1", 0)
    sandbox.sleep(5)

    assert wait_s(sandbox, job_elsewhere(sandbox)) <= LOOK_S + 2 * 20 + 15


def test_link_that_carries_next_to_nothing_belongs_to_who_waits(sandbox: Sandbox) -> None:
    begin(sandbox)
    slow_down(sandbox, "n1", 20)
    sandbox.sleep(5)

    assert wait_s(sandbox, job_elsewhere(sandbox)) <= LOOK_S + 2 * 20 + 15


def test_reservation_whose_server_comes_back_has_the_link_again_and_is_in_time(sandbox: Sandbox) -> None:
    begin(sandbox)
    key = job_elsewhere(sandbox, seconds=1_000)
    slow_down(sandbox, "n1", 0)
    sandbox.sleep(45)
    rates = [each.rate_bytes_per_s for each in sandbox.pools["n3"].fetches]
    slow_down(sandbox, "n1", RATE)
    sandbox.sleep(10)
    held_back = sandbox.pools["n3"].fetches[-1].rate_bytes_per_s
    sandbox.sleep(300)

    assert rates == [RATE - RATE // 5], "the rest is left for it to be seen coming back"
    assert held_back == RATE // 1000
    assert show(sandbox, "render-1").reservation.state == "active"
    assert sandbox.job(key) is not None


def test_odds_of_what_does_not_come_are_none_although_another_has_its_place(sandbox: Sandbox) -> None:
    begin(sandbox)
    slow_down(sandbox, "n1", 0)
    job_elsewhere(sandbox, seconds=1_000)
    sandbox.sleep(90)
    shown = show(sandbox, "render-1").reservation

    assert shown.state == "endangered"
    assert shown.why.endswith("the odds are 0 %")


def late(sandbox: Sandbox, nodes: int) -> None:
    """A reservation on n1 and others whose image is not there in time, and goes on beside the plan."""
    slow_down(sandbox, "n1", 0)
    reserve(sandbox, size_bytes=30 * RATE, nodes=nodes, start="now+2minutes", duration="6m")
    reserve(sandbox, name="other", image="other", size_bytes=30 * RATE, start="now+160s", duration="1m")
    while "transfer goes on beside the plan" not in "\n".join(sandbox.log.lines):
        sandbox.sleep(1)


def transfers_begun(sandbox: Sandbox) -> int:
    return sum("transfer begins" in line for line in sandbox.log.lines)


def test_image_that_is_late_for_one_comes_in_time_for_the_next(sandbox: Sandbox) -> None:
    late(sandbox, nodes=1)
    reserve(sandbox, name="next", size_bytes=30 * RATE, nodes=len(sandbox.pools), start="now+375s")
    while transfers_begun(sandbox) < 3:
        sandbox.sleep(1)
    sandbox.sleep(2)
    slow_down(sandbox, "n1", RATE)
    sandbox.sleep(40)

    assert sandbox.pools["n1"].fetches[-1].rate_bytes_per_s == RATE
    assert show(sandbox, "next-3").reservation.state == "ready"


def test_image_comes_by_the_way_of_the_next_and_not_of_the_one_that_is_late(sandbox: Sandbox) -> None:
    slow_down(sandbox, "n2", 0)
    late(sandbox, nodes=2)
    by_chain = sandbox.pools["n2"].fetches[-1].sources[0]
    sandbox.rms.outside.drain("n1")
    sandbox.sleep(LOOK_S)
    reserve(sandbox, name="next", size_bytes=30 * RATE, nodes=len(sandbox.pools) - 1, start="now+375s")
    while not any(each.owner == "next-3" for each in sandbox.pools["n2"].fetches):
        sandbox.sleep(1)
    sandbox.sleep(2)

    assert by_chain == Relay(node="n1", digest=digest_of("ubuntu"))
    assert show(sandbox, "next-3").reservation.nodes == "n[2-4]"
    assert by_chain not in sandbox.pools["n2"].fetches[-1].sources


def test_reservation_at_half_its_rate_keeps_the_link(sandbox: Sandbox) -> None:
    begin(sandbox)
    slow_down(sandbox, "n1", RATE // 2)
    job_elsewhere(sandbox)
    sandbox.sleep(100)

    assert not sandbox.pools["n3"].fetches
    assert not sandbox.pools["n3"].arriving


def test_node_that_cannot_be_asked_for_a_moment_keeps_the_link(sandbox: Sandbox) -> None:
    begin(sandbox)
    sandbox.pools["n1"].is_away = True
    job_elsewhere(sandbox)
    sandbox.sleep(60)

    assert not sandbox.pools["n3"].fetches


def test_wrong_digest_ends_the_attempts_and_is_said_at_once(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.broken, pool.broken_code = WRONG, "wrong-bytes"
    reserve(sandbox, start="now+2minutes")
    sandbox.sleep(50)
    early = show(sandbox, "render-1").reservation
    sandbox.sleep(60)
    late = show(sandbox, "render-1").reservation

    assert early.state == late.state == "endangered"
    assert WRONG in early.why
    assert late.why == early.why
    assert (late.nodes, fetches(sandbox)) == ("n1", 1)


def test_reason_of_a_wrong_digest_stays_until_the_end(sandbox: Sandbox) -> None:
    for pool in sandbox.pools.values():
        pool.broken, pool.broken_code = WRONG, "wrong-bytes"
    reserve(sandbox, start="now+2minutes", duration="5m")
    sandbox.sleep(300)
    active = show(sandbox, "render-1").reservation
    sandbox.sleep(200)
    over = show(sandbox, "render-1").reservation

    assert (active.state, over.state) == ("endangered", "failed")
    assert WRONG in active.why
    assert WRONG in over.why


def test_wrong_digest_leaves_the_link_to_others_at_once(sandbox: Sandbox) -> None:
    for name in ("n1", "n2"):
        sandbox.pools[name].broken, sandbox.pools[name].broken_code = WRONG, "wrong-bytes"
    reserve(sandbox, size_bytes=LARGE, start="now+4minutes", nodes=2)
    sandbox.sleep(60)

    assert wait_s(sandbox, job_elsewhere(sandbox)) <= LOOK_S + 20 + 15


def test_copy_elsewhere_is_taken_where_the_address_has_another_image(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+2minutes", duration="1h")
    sandbox.sleep(sandbox.settings.reconcile_every_s + 1)
    sandbox.pools["n2"].broken, sandbox.pools["n2"].broken_code = WRONG, "wrong-bytes"
    reserve(sandbox, caller=BOB, name="second", start="now+3minutes")
    while not sandbox.pools["n2"].fetches:
        sandbox.sleep(1)
    sandbox.pools["n2"].broken = ""
    sandbox.sleep(30)

    assert "n1" in [getattr(each, "node", "") for each in sandbox.pools["n2"].fetches[-1].sources]
    assert show(sandbox, "second-2", BOB).reservation.state == "ready"


def test_source_that_fails_everywhere_does_not_send_a_reservation_round_the_site(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=None))
    for pool in sandbox.pools.values():
        pool.broken = "connection refused"
    reserve(sandbox, start="now+10minutes")
    sandbox.sleep(540)
    moves = [line for line in sandbox.log.lines if "reservation is moved" in line]
    shown = show(sandbox, "render-1").reservation
    for pool in sandbox.pools.values():
        pool.broken = ""
    sandbox.sleep(600)

    assert len(moves) == 2
    assert shown.state == "endangered"
    assert "connection refused" in shown.why
    assert show(sandbox, "render-1").reservation.state == "active", "it comes when its server does"


def test_job_whose_server_sends_a_trickle_does_not_keep_the_link(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/slow"] = LARGE
    slow_down(sandbox, "n1", 20)
    sandbox.submit("slow", eligible=("n1",))
    sandbox.sleep(LOOK_S)
    mine = crowd(sandbox, 1, seconds=10)[0]

    assert wait_s(sandbox, mine) <= LOOK_S + 20 + 10 + 15


def test_jobs_whose_servers_trickle_share_what_is_left_for_them(sandbox: Sandbox) -> None:
    for number in range(5):
        sandbox.sizes[f"https://images.example.org/slow{number}"] = 30 * RATE
        sandbox.submit(f"slow{number}", eligible=("n1",), cpus=1)
    slow_down(sandbox, "n1", 20)
    crowd(sandbox, 30, seconds=10, caller=BOB)
    sandbox.sleep(250)

    allowed = {
        digest: each.fetch.rate_bytes_per_s or 0
        for digest, each in sandbox.pools["n1"].arriving.items()
        if "/slow" in each.fetch.uri
    }
    assert len(allowed) == 5
    assert sum(allowed.values()) <= RATE // 10 + 5


def test_settings_of_a_site_that_sets_nothing_aside_are_kept() -> None:
    assert Settings().best_effort_rate_bytes_per_s == 0
