"""Preemptible jobs make way for reservations in time, and nobody else does; seen from outside of the desk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.metadata.policies import parse_policies
from outrider.rms.base import JobState, RmsReservation
from outrider.rms.twin import SLURM, Fault
from outrider.service.answers.jobs import JobDetails
from outrider.service.ports import NodeImage
from outrider.service.requests import Cancel, ShowJob
from outrider.service.settings import Settings
from tests.unit.service.desk.jobs.yielding_site import (
    MARGIN_S,
    MOST_GRACE_S,
    NOTICE_S,
    SETTINGS,
    SETTLED_S,
    SILENT,
    YIELDING,
    happened,
    running,
    site_of,
    state,
)
from tests.unit.service.desk.sandbox import ALICE, BOB, FREE, RATE, Sandbox, digest_of, reserve, show


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Two nodes with the image of all."""
    yield from site_of(tmp_path, SETTINGS)


def words(site: Sandbox, key: str) -> str:
    answer = site.ask(ShowJob(job=key))
    assert isinstance(answer, JobDetails)
    return answer.job.words


def test_job_is_signalled_its_grace_before_it_is_requeued_and_comes_back(site: Sandbox) -> None:
    firm, key = running(site, ""), running(site)
    begun_s = happened(site, key, "running")[0]

    answer = reserve(site, BOB, start="now+200s", duration="100s")
    assert answer.result == "accepted", answer.reason
    assert answer.start_s is not None
    site.sleep(answer.start_s - site.now_s - MARGIN_S + 10)
    said, waiting = words(site, key), state(site, key)
    site.sleep(MARGIN_S + 10)
    state_in_time = show(site, answer.name, BOB).reservation.state
    site.sleep(200)

    assert happened(site, key, "signalled") == [answer.start_s - NOTICE_S]
    assert happened(site, key, "leaving") == [answer.start_s - MARGIN_S]
    assert waiting is JobState.HELD or waiting is JobState.PENDING
    assert f"yielded to reservation {answer.name}" in said
    assert state_in_time == "active"
    assert happened(site, key, "running")[0] == begun_s
    assert len(happened(site, key, "running")) == 2
    assert happened(site, key, "running")[1] >= answer.start_s + 100
    assert len(happened(site, firm, "running")) == 1


def test_job_whose_time_is_over_before_the_reservation_begins_is_told_nothing(tmp_path: Path) -> None:
    """Looks are rare: by the last one before its end it could go on beyond its limit."""
    for made in site_of(tmp_path, replace(SETTINGS, look_every_s=60)):
        key = made.submit(more=YIELDING, argv=("sleep", "590"), limit_s=600)
        made.sleep(60)
        begun_s = happened(made, key, "running")[0]
        start_s = begun_s + 600 + 5
        answer = reserve(made, BOB, nodes=2, start=f"now+{start_s - made.now_s}s", duration="100s")
        made.sleep(700)

        assert answer.result == "accepted", answer.reason
        assert happened(made, key, "signalled") == []
        assert len(happened(made, key, "running")) == 1


def test_words_at_a_job_that_is_to_go_name_the_reservation(site: Sandbox) -> None:
    running(site, "")
    key = running(site)

    answer = reserve(site, BOB, start="now+100s", duration="100s")
    assert answer.start_s is not None
    site.sleep(answer.start_s - site.now_s - NOTICE_S + 10)

    assert f"it yields to reservation {answer.name} at" in words(site, key)
    assert f"it yields to reservation {answer.name} at" in " ".join(site.notes[key])


@pytest.mark.parametrize("more", ["", "preemptible: no\n"])
def test_nobody_else_goes_and_his_nodes_count(site: Sandbox, more: str) -> None:
    keys = [running(site, more), running(site, more)]

    answer = reserve(site, BOB, start="now+200s")
    site.sleep(300)

    assert answer.result == "refused"
    assert [happened(site, key, "signalled") + happened(site, key, "leaving") for key in keys] == [[], []]


def test_what_needs_its_nodes_before_they_can_be_left_is_refused_with_the_first_start(site: Sandbox) -> None:
    running(site)
    running(site, "")

    refused = reserve(site, BOB, start=f"now+{NOTICE_S - 1}s")
    assert refused.earliest_start_s is not None
    early_s = refused.earliest_start_s - site.now_s
    accepted = reserve(site, BOB, start=f"now+{early_s}s")

    assert refused.result == "refused"
    assert early_s >= NOTICE_S
    assert accepted.result == "accepted"


def test_notice_is_counted_from_the_request_not_from_the_last_look(tmp_path: Path) -> None:
    slow = Settings(
        link_rate_bytes_per_s=RATE,
        reserve_s=60,
        look_every_s=120,
        allows_preemptible=True,
        most_requeue_grace_s=MOST_GRACE_S,
        requeue_margin_s=MARGIN_S,
    )
    for site in site_of(tmp_path, slow):
        site.submit(more=YIELDING, argv=("sleep", "3000"), nodes=2)
        site.sleep(300)
        # In the middle between two looks.
        looked_s = next(at for at in range(site.now_s, site.now_s + 121) if (at - 1_000_000) % 120 == 0)
        site.sleep(looked_s + 60 - site.now_s)

        answers = [reserve(site, BOB, start=f"now+{NOTICE_S - 5}s").result for _ in range(2)]

        assert answers == ["refused", "refused"]


def test_free_nodes_come_first(site: Sandbox) -> None:
    key = running(site, SILENT)
    taken = site.job(key)
    assert taken is not None

    answer = reserve(site, BOB, start="now+200s")
    site.sleep(205)

    assert answer.nodes not in taken.nodes
    assert happened(site, key, "leaving") == []


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_youngest_goes_whichever_node_it_is_on(site: Sandbox, first: str) -> None:
    older = running(site, SILENT, eligible=(first,))
    younger = running(site, SILENT)

    answer = reserve(site, BOB, start="now+200s", duration="60s")
    site.sleep(205)

    assert answer.nodes == {"n1": "n2", "n2": "n1"}[first]
    assert happened(site, older, "leaving") == []
    assert len(happened(site, younger, "leaving")) == 1


def test_job_that_can_save_its_work_goes_first(site: Sandbox) -> None:
    saving = running(site, YIELDING)
    younger = running(site, SILENT)

    reserve(site, BOB, start="now+200s", duration="60s")
    site.sleep(205)

    assert len(happened(site, saving, "leaving")) == 1
    assert happened(site, younger, "leaving") == []


def test_gang_that_goes_leaves_both_nodes_for_one_price(tmp_path: Path) -> None:
    made = Sandbox(tmp_path, nodes=4, settings=SETTINGS)
    for pool in made.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.sleep(SETTLED_S)
    singles = [running(made, SILENT, eligible=(name,)) for name in ("n1", "n2")]
    made.sleep(600)
    gang = running(made, SILENT, nodes=2)

    answer = reserve(made, BOB, nodes=2, start="now+200s", duration="60s")
    made.sleep(220)

    assert answer.nodes == "n[3-4]"
    assert len(happened(made, gang, "leaving")) == 1
    assert [happened(made, key, "leaving") for key in singles] == [[], []]
    made.close()


def test_job_that_ends_before_the_start_is_left_alone(site: Sandbox) -> None:
    key = running(site, limit_s=150)
    running(site, "")

    answer = reserve(site, BOB, start="now+200s")
    site.sleep(110)

    assert answer.result == "accepted"
    assert happened(site, key, "signalled") == []


def test_cancelled_reservation_lets_the_job_stay(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    site.sleep(200 - NOTICE_S + 10)
    told = happened(site, key, "signalled")

    site.ask(Cancel(name=answer.name), BOB)
    site.sleep(300)

    assert len(told) == 1
    assert happened(site, key, "leaving") == []
    assert words(site, key) == ""


@pytest.mark.parametrize("killed_s", [1, 5, 20, 45])
def test_killed_service_goes_on_where_it_stood(site: Sandbox, killed_s: int) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    assert answer.start_s is not None
    site.sleep(200 - NOTICE_S + killed_s)

    site.restart()
    site.sleep(answer.start_s - site.now_s + 5)

    assert happened(site, key, "signalled") == [answer.start_s - NOTICE_S]
    assert happened(site, key, "leaving") == [answer.start_s - MARGIN_S]
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_service_that_was_away_in_the_grace_time_requeues_in_time_all_the_same(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    assert answer.start_s is not None
    site.clock.at_s = answer.start_s - MARGIN_S + 5

    site.restart()
    site.sleep(5)

    assert happened(site, key, "signalled") == []
    assert len(happened(site, key, "leaving")) == 1


def test_lost_answers_change_nothing(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    assert answer.start_s is not None
    site.rms.faults.plan("signal", Fault.UNREACHED)
    site.rms.faults.plan("requeue", Fault.ANSWER_LOST, Fault.UNREACHED)
    site.sleep(205)

    assert len(happened(site, key, "signalled")) == 1
    assert len(happened(site, key, "leaving")) == 1
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_refused_signal_does_not_keep_a_job(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    site.rms.faults.plan("signal", Fault.REFUSED)
    site.sleep(205)

    assert len(happened(site, key, "leaving")) == 1
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_job_that_came_back_by_itself_is_told_again(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    assert answer.start_s is not None
    site.sleep(200 - NOTICE_S + 7)
    # As where a batch system lets a job without a limit start before a reservation: another run, there again.
    site.rms.world.jobs[key].start_s = site.now_s
    site.sleep(answer.start_s - site.now_s + 5)

    assert len(happened(site, key, "signalled")) == 2
    assert happened(site, key, "leaving") == [answer.start_s - MARGIN_S]
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_job_that_does_not_go_is_asked_again_and_endangers_the_reservation(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    assert answer.start_s is not None
    site.rms.faults.plan("requeue", *[Fault.REFUSED] * 3)
    site.sleep(200 - MARGIN_S // 2 + 8)
    found = show(site, answer.name, BOB)
    site.sleep(60)

    assert found.reservation.state == "endangered"
    assert f"job {key} is still on" in found.reservation.why
    assert len(happened(site, key, "leaving")) == 1
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_site_that_requeues_nothing_refuses_the_key(sandbox: Sandbox) -> None:
    key = sandbox.submit(more=SILENT)
    sandbox.sleep(60)

    assert state(sandbox, key) is JobState.HELD
    assert "jobs.preemptible" in words(sandbox, key)


def test_grace_beyond_the_bound_is_refused_and_delays_nobody(site: Sandbox) -> None:
    text = f"preemptible: requeue\ncheckpoint: USR1\ngrace: {MOST_GRACE_S + 1}s\n"
    key = site.submit(more=text)
    site.sleep(60)

    assert state(site, key) is JobState.HELD
    assert "jobs.most_grace" in words(site, key)
    assert reserve(site, BOB, start="now+60s").result == "accepted"


def test_what_a_run_has_declared_holds_until_it_ends(site: Sandbox) -> None:
    key = running(site)
    running(site, "")
    answer = reserve(site, BOB, start="now+200s")
    job = next(job for job in site.rms.world.all_jobs() if job.key == key)
    # As the owner of a job of Grid Engine's can.
    job.submission = replace(
        job.submission, metadata=(job.submission.metadata or "").replace("requeue", "no")
    )
    site.sleep(205)

    assert len(happened(site, key, "leaving")) == 1
    assert show(site, answer.name, BOB).reservation.state == "active"


def test_job_in_a_reservation_makes_way_for_nobody(site: Sandbox) -> None:
    own = reserve(site, ALICE, nodes=1, start="now+20s", duration="50m")
    site.sleep(30)
    key = site.submit(more=SILENT, argv=("sleep", "600"), is_held=False, reservation=own.name)
    site.sleep(30)
    running(site, "")

    refused = reserve(site, BOB, start="now+200s")
    site.sleep(205)

    assert refused.result == "refused"
    assert happened(site, key, "leaving") == []


def test_administrators_reservation_takes_no_job_away(site: Sandbox) -> None:
    key = running(site, nodes=2)
    start_s = site.now_s + 200
    site.rms.outside.reserve(
        RmsReservation(name="service", nodes=("n1",), start_s=start_s, end_s=start_s + 60, users=("root",))
    )
    site.sleep(210)

    assert happened(site, key, "signalled") == []


def test_slow_batch_system_is_no_alarm(tmp_path: Path) -> None:
    for site in site_of(tmp_path, SETTINGS):
        site.rms.world.rules = SLURM
        key = running(site)
        running(site, "")
        answer = reserve(site, BOB, start="now+200s")
        site.sleep(210)
        text = "\n".join(site.log.lines)

        assert len(happened(site, key, "leaving")) == 1
        assert "does not yield" not in text
        assert "endangered" not in text
        assert show(site, answer.name, BOB).reservation.state == "active"


def with_policies(folder: Path, section: str) -> Iterator[Sandbox]:
    made = Sandbox(folder, nodes=2, settings=SETTINGS)
    for pool in made.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.desk.set_policies(parse_policies(f"{FREE.decode()}leases: {section}".encode(), file="policies.yaml"))
    made.sleep(SETTLED_S)
    yield made
    made.close()


@pytest.mark.parametrize(("by", "goes"), [("youngest", 1), ("shortest", 0)])
def test_sites_order_says_whose_job_yields(tmp_path: Path, by: str, goes: int) -> None:
    for site in with_policies(tmp_path, f"{{preemption: {{order: [{{by: {by}}}]}}}}"):
        keys = [running(site, SILENT, limit_s=4000), running(site, SILENT, limit_s=9000)]

        assert reserve(site, nodes=1).result == "accepted"
        site.sleep(600)

        assert [state(site, key) is not JobState.RUNNING for key in keys] == [goes == 0, goes == 1]


def test_job_of_a_user_who_is_spared_does_not_yield(tmp_path: Path) -> None:
    for site in with_policies(tmp_path, "{preemption: {spare_users: [bob]}}"):
        running(site, SILENT, caller=BOB)
        key = running(site, SILENT)

        both, one = reserve(site, nodes=2), reserve(site, nodes=1)
        site.sleep(600)

        assert (both.result, one.result) == ("refused", "accepted")
        assert state(site, key) is not JobState.RUNNING
