"""What users and administrators do to jobs and reservations behind the service's back."""

from __future__ import annotations

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    fill,
    output,
    report,
    start_s,
    submit,
    wait_arriving,
    wait_output,
    wait_released,
)


def test_job_cancelled_at_any_stage_leaves_nothing_behind(site: GridEngineSite) -> None:
    slow, here = site.image("stage-slow.qcow2", 10 * MB), site.image("stage-here.qcow2", 5 * MB)
    site.hold_back(slow)
    running = submit(site, here, "-q", "all.q@n2", more="sleep 600")
    wait_output(site, running)
    filled = fill(site, "n1")
    released = submit(site, here, "-q", "all.q@n1")
    wait_released(site, released)
    arriving = submit(site, slow, "-q", "all.q@n3")
    wait_arriving(site, slow)
    held = submit(site, site.image("stage-held.qcow2", 5 * MB))

    cancel(site, held, arriving, released, running, filled)
    site.let_go(slow)

    site.cluster.wait_for("no instance", lambda: site.instances("n2") == [], logs=site.logs)
    site.cluster.wait_for(
        "no pin", lambda: not any(site.pins(node) for node in site.cluster.nodes), logs=site.logs
    )
    assert [output(site, job) for job in (held, arriving, released)] == ["", "", ""]


def test_job_whose_user_ends_the_filters_hold_does_not_run_without_its_image(site: GridEngineSite) -> None:
    image = site.image("early.qcow2", 10 * MB)
    site.hold_back(image)
    job = submit(site, image, "-q", "all.q@n2")
    site.cluster.run(HEAD, ["qrls", "-h", "u", job], user="ada", check=False)
    wait_arriving(site, image)
    # If it came as far as its prolog, that sends it back, or stops it until its image is there.
    site.cluster.wait_for(
        "the job's being held, or stopped",
        lambda: site.cluster.job_state(job) in ("hqw", "hRq", "Eqw"),
        60,
        lambda: report(site, job),
    )
    site.let_go(image)
    end = ended(site, job, timeout_s=120)

    assert site.arrived_s(image)["n2"] <= start_s(end)
    assert "QFI" in output(site, job), report(site, job)


def test_job_that_root_releases_too_early_waits_or_is_told_and_puts_no_queue_in_error(
    site: GridEngineSite,
) -> None:
    image = site.image("rooted.qcow2", 10 * MB)
    site.hold_back(image)
    job = submit(site, image, "-q", "all.q@n2")
    wait_arriving(site, image)

    site.cluster.run(HEAD, ["qrls", "-h", "uos", job])
    site.let_go(image)
    site.cluster.wait_for(
        "the job's end, or an error",
        lambda: site.cluster.job_state(job) in ("finished", "Eqw"),
        120,
        lambda: report(site, job),
    )

    if site.cluster.job_state(job) == "finished":
        assert "QFI" in output(site, job), report(site, job)
    else:
        assert "outrider: the image is not ready on node n2" in report(site, job)
        cancel(site, job)


def test_job_that_its_user_holds_is_not_released_by_the_service(site: GridEngineSite) -> None:
    image = site.image("own-hold.qcow2", 5 * MB)
    job = submit(site, image, "-h", "-q", "all.q@n1")
    site.cluster.wait_for("the image", lambda: "n1" in site.arrived_s(image), logs=lambda: report(site, job))
    state = site.cluster.job_state(job)
    site.cluster.run(HEAD, ["qrls", job], user="ada")
    end = ended(site, job, timeout_s=90)

    assert state == "hqw"
    assert end["exit_status"] == "0", report(site, job)


def test_task_of_an_array_that_is_cancelled_leaves_the_others(site: GridEngineSite) -> None:
    image = site.image("tasks.qcow2", 5 * MB)
    job = submit(site, image, "-t", "1-3", "-q", "all.q@n4", more='[ "$SGE_TASK_ID" != 2 ] || sleep 600')
    site.cluster.wait_for(
        "all tasks",
        lambda: all("QFI" in output(site, job, each) for each in "123"),
        logs=lambda: report(site, job),
    )

    site.cluster.run(HEAD, ["qdel", f"{job}.2"], user="ada", check=False)
    site.cluster.run(HEAD, ["qdel", job, "-t", "2"], user="ada", check=False)
    ended(site, job, timeout_s=90)
    failed = {end["taskid"]: end["failed"].split()[0] for end in site.cluster.accounts(job)}

    assert (failed["1"], failed["3"]) == ("0", "0")
    assert failed["2"] != "0"
