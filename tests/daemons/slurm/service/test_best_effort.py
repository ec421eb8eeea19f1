"""Users type sbatch, and the image is on the nodes before the job's clock starts."""

from __future__ import annotations

import pytest

from testbed.commands import CommandFailed
from testbed.site import SERVICE, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.failing import fill, hold_back, let_go, wait_released
from tests.daemons.slurm.service.jobs import Seen, arrived_s, ended, output, script, seen, wait_for

MB = 1_000_000
DAY_S = 86_400


def test_cold_job_begins_only_when_its_image_is_on_its_node(site: OutriderSite) -> None:
    image = site.image("cold.qcow2", 12 * MB)

    job = site.submit(script(image), "-t1")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)[found.nodes] <= found.start_s
    assert f"{found.nodes} /var/lib/outrider/pool/instances/" in output(site, job)
    assert "QFI" in output(site, job)


def test_job_with_a_deadline_is_held_until_its_image_is_on_its_node(site: OutriderSite) -> None:
    image = site.image("deadline.qcow2", 12 * MB)
    # The first word is the client's filter's, which a user may leave out.
    comment = f"--comment=outrider-hold=priority outrider:image={image.uri};digest={image.digest}"

    job = site.submit(script(None), "-t1", "--deadline=now+1hour", comment)
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)[found.nodes] <= found.start_s
    assert "QFI" in output(site, job)
    shown = site.cluster.run(HEAD, ["scontrol", "show", "job", job]).stdout
    assert "Deadline=2" in shown


def test_held_job_shows_when_it_is_expected_to_start(site: OutriderSite) -> None:
    image = site.image("expected.qcow2", 150 * MB)

    job = site.submit(script(image), "-t1")
    submitted_s = int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)
    shown: list[Seen] = []

    def is_shown() -> bool:
        shown[:] = [seen(site, job)]
        return submitted_s < shown[0].start_s < submitted_s + DAY_S

    site.cluster.wait_for("its expected start", is_shown, logs=site.logs)
    found = ended(site, job)

    assert (shown[0].state, shown[0].reason) == ("PENDING", "JobHeldAdmin")
    assert found.state == "COMPLETED", output(site, job)
    assert arrived_s(site, image)[found.nodes] <= found.start_s


def test_warm_job_goes_where_its_image_is(site: OutriderSite) -> None:
    image = site.image("warm.qcow2", 6 * MB)
    first = ended(site, site.submit(script(image), "-t1"))

    second = ended(site, site.submit(script(image), "-t1"))

    assert list(arrived_s(site, image)) == [first.nodes] == [second.nodes]


def test_each_node_of_a_job_has_its_image_before_the_start(site: OutriderSite) -> None:
    image = site.image("wide.qcow2", 8 * MB)

    job = site.submit(script(image), "-t1", "-N3")
    found = ended(site, job)

    said = [line.split() for line in output(site, job).splitlines()[1:]]
    there = arrived_s(site, image)
    assert sorted(words[0] for words in said) == sorted(there)
    assert len(there) == 3
    assert {words[2] for words in said} == {"QFI"}
    assert max(there.values()) <= found.start_s


def test_all_tasks_of_an_array_find_the_image(site: OutriderSite) -> None:
    image = site.image("array.qcow2", 5 * MB)

    job = site.submit(script(image), "-t1", "--array=0-5")
    tasks = [f"{job}_{number}" for number in range(6)]
    for task in tasks:
        assert ended(site, task).state == "COMPLETED", site.logs()

    assert all("QFI" in output(site, task) for task in tasks)


def test_two_jobs_on_one_node_have_each_its_own_disk_over_one_copy(site: OutriderSite) -> None:
    image = site.image("shared.qcow2", 5 * MB)
    first = site.submit(script(image, "sleep 5"), "-t1", "-wn2", "-n1")
    second = site.submit(script(image, "sleep 5"), "-t1", "-wn2", "-n1")

    assert ended(site, first).state == ended(site, second).state == "COMPLETED"

    disks = {output(site, job).splitlines()[1].split()[1] for job in (first, second)}
    assert len(disks) == 2
    assert list(arrived_s(site, image)) == ["n2"]


def test_job_without_metadata_passes_untouched(site: OutriderSite) -> None:
    job = site.submit("#!/bin/sh\ntrue\n", "-t1", "--comment=mine")
    found = ended(site, job)

    assert found.state == "COMPLETED"
    assert (found.comment, found.admin_comment) == ("mine", "")


def test_heterogeneous_job_without_metadata_is_left_alone_and_one_with_it_is_refused(
    site: OutriderSite,
) -> None:
    image = site.image("parts.qcow2", 5 * MB)
    # The service looks at it while it waits.
    filled = [fill(site, node) for node in site.cluster.nodes]
    parts = ["-t1", "-n1", ":", "-t1", "-n1"]

    plain = site.submit("#!/bin/sh\ntrue\n", *parts)
    with pytest.raises(CommandFailed, match="heterogeneous"):
        site.submit(script(image), *parts)
    other = site.submit(script(image), "-t1")
    wait_released(site, other)
    for each in filled:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert ended(site, plain).state == "COMPLETED"
    assert ended(site, other).state == "COMPLETED"
    assert "is left out" not in site.cluster.log(HEAD, SERVICE, 1000)


def test_user_keeps_a_comment_of_his_own_beside_the_ticket(site: OutriderSite) -> None:
    image = site.image("comment.qcow2", 5 * MB)

    job = site.submit(script(image), "-t1", "--comment=thesis run 7")
    found = ended(site, job)

    assert found.comment.startswith("thesis run 7 outrider-ticket=1.")


@pytest.mark.parametrize("change", ["StartTime=now", "Comment=x", "ReqNodeList=n1"])
def test_user_cannot_undo_what_the_service_has_set(site: OutriderSite, change: str) -> None:
    image = site.image(f"guard-{change[:5]}.qcow2", 10 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1")

    with pytest.raises(CommandFailed):
        site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", change], user="ada")

    let_go(site, image)
    assert ended(site, job).state == "COMPLETED"


def test_what_a_user_gets_wrong_is_said_at_once(site: OutriderSite) -> None:
    with pytest.raises(CommandFailed, match="imgae"):
        site.submit("#!/bin/sh\n#OUTRIDER imgae: http://images/x\ntrue\n", "-t1")


def test_requeued_job_finds_its_image_again_on_the_same_node(site: OutriderSite) -> None:
    image = site.image("requeue.qcow2", 5 * MB)
    job = site.submit(
        script(image, 'test "$SLURM_RESTART_COUNT" = 1 || sleep 60'), "-t2", "-wn3", "--requeue"
    )
    wait_for(site, job, "RUNNING")

    site.cluster.run(HEAD, ["scontrol", "requeue", job], user="ada")
    found = ended(site, job, timeout_s=120)

    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") >= 1


def test_cancelled_job_leaves_nothing_that_waits_for_it(site: OutriderSite) -> None:
    image = site.image("gone.qcow2", 10 * MB)
    hold_back(site, image)
    job = site.submit(script(image), "-t1")
    site.cluster.wait_for("the transfer", lambda: "gone.qcow2" in site.told("transfers"), logs=site.logs)

    site.cluster.run(HEAD, ["scancel", job], user="ada")

    assert ended(site, job).state == "CANCELLED"
    site.cluster.wait_for("no transfer", lambda: "gone.qcow2" not in site.told("transfers"), logs=site.logs)
