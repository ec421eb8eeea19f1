"""Users type qsub, and the image is on the nodes before the job's clock starts."""

from __future__ import annotations

import re
from functools import partial

import pytest

from testbed.batchcluster import HEAD
from testbed.commands import CommandFailed
from testbed.gridengine import SPOOL
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    output,
    report,
    shown,
    start_s,
    submit,
    wait_arriving,
    wait_output,
    wait_shown,
    wait_state,
    wait_told,
)
from tests.daemons.reservations import workspace

NO_JOB = re.compile(r'denied: job "(\d+)" does not exist$')
"""What a qmaster writes when it is told of a job that has just ended: one of the test before, say."""


def test_cold_job_is_held_until_its_image_is_on_its_node_and_its_user_sees_until_when(
    site: GridEngineSite,
) -> None:
    image = site.image("cold.qcow2", 12 * MB)
    site.hold_back(image)

    job = submit(site, image)
    node = wait_arriving(site, image)
    note = wait_told(site, job, "is on its way")
    listed = site.outrider("jobs", "--json").stdout
    wait_shown(site, job, "on its way")
    state = site.cluster.job_state(job)
    site.let_go(image)
    end = ended(site, job)

    assert state == "hqw"
    assert "outrider: image cold.qcow2 is on its way" in note
    assert f'"{job}"' in listed
    assert (end["failed"], end["exit_status"], end["hostname"]) == ("0", "0", node)
    assert site.arrived_s(image)[node] <= start_s(end)
    assert f"began on {node} /var/lib/outrider/pool/instances/" in output(site, job)
    assert "QFI" in output(site, job)


def test_job_with_an_image_leaves_no_line_among_the_qmasters_messages(site: GridEngineSite) -> None:
    def messages() -> str:
        return site.cluster.run(HEAD, ["cat", f"{SPOOL}/qmaster/messages"]).stdout

    image = site.image("silent.qcow2", 5 * MB)
    before = messages()
    ends, jobs = [], set()
    for options in ((), ("-t", "1-2")):
        job = submit(site, image, *options, more="while [ ! -e silent ]; do sleep 0.1; done")
        site.cluster.wait_for(f"the service to see {job} run", partial(runs, site, job), logs=site.logs)
        site.cluster.run(HEAD, ["touch", "silent"], user="ada")
        ends.append(ended(site, job))
        jobs.add(job)
        site.cluster.run(HEAD, ["rm", "silent"], user="ada")
    said = messages().removeprefix(before).splitlines()
    of_others = [line for line in said if (named := NO_JOB.search(line)) and named[1] not in jobs]

    assert [end["exit_status"] for end in ends] == ["0", "0"]
    assert said == of_others


def runs(site: GridEngineSite, job: str) -> bool:
    """Whether the service has seen all of it run: it has nothing to say of it any more."""
    states = [each.state for each in site.service().jobs() if each.job.partition(".")[0] == job]
    return states != [] and set(states) == {"running"}


def test_warm_job_goes_where_its_image_is(site: GridEngineSite) -> None:
    image = site.image("warm.qcow2", 6 * MB)
    first = ended(site, submit(site, image))

    second = ended(site, submit(site, image))

    assert list(site.arrived_s(image)) == [first["hostname"]] == [second["hostname"]]


def test_each_node_of_a_parallel_job_has_its_image_before_the_start(site: GridEngineSite) -> None:
    image = site.image("wide.qcow2", 8 * MB)

    job = submit(site, image, "-pe", "each1", "3", more="while [ ! -e go-on ]; do sleep 0.1; done")
    wait_output(site, job)
    there = [node for node in site.cluster.nodes if site.instances(node) == [f"job-{job}"]]
    site.cluster.run(HEAD, ["touch", "go-on"], user="ada")
    end = ended(site, job)
    site.cluster.run(HEAD, ["rm", "go-on"], user="ada")

    arrived_s = site.arrived_s(image)
    assert end["exit_status"] == "0", report(site, job)
    assert "QFI" in output(site, job)
    assert len(there) == 3
    assert sorted(arrived_s) == there
    assert max(arrived_s.values()) <= start_s(end)


def test_all_tasks_of_an_array_find_the_image(site: GridEngineSite) -> None:
    image = site.image("array.qcow2", 5 * MB)

    job = submit(site, image, "-t", "1-6")
    wait_state(site, job, "finished")

    paths = {output(site, job, str(task)).split()[3] for task in range(1, 7)}
    assert all("QFI" in output(site, job, str(task)) for task in range(1, 7)), report(site, job)
    assert len(paths) == 6


def test_job_without_metadata_passes_untouched(site: GridEngineSite) -> None:
    job = site.submit(
        '#!/bin/sh\necho "${OUTRIDER_TICKET-none} ${OUTRIDER_IMAGE-none}"\n',
        *("-o", "out-$JOB_ID.$TASK_ID", "-j", "y", "-ac", "mine=1", "-h"),
    )
    context = [line.split()[1] for line in shown(site, job).splitlines() if line.startswith("context")]
    site.cluster.run(HEAD, ["qrls", job], user="ada")
    end = ended(site, job)

    assert context == ["mine=1"]
    assert end["exit_status"] == "0"
    assert output(site, job) == "none none\n"


def test_what_a_user_gets_wrong_is_said_at_once(site: GridEngineSite) -> None:
    with pytest.raises(CommandFailed, match="imgae"):
        site.submit("#!/bin/sh\ntrue\n", "-ac", "OUTRIDER=imgae=http://images/x")


def test_requeued_job_finds_its_image_again(site: GridEngineSite) -> None:
    image = site.image("requeue.qcow2", 5 * MB)
    job = submit(site, image, "-r", "y", more='[ "$RESTARTED" != 0 ] || sleep 60')
    wait_output(site, job)

    site.cluster.run(HEAD, ["qmod", "-rj", job], user="ada")
    end = ended(site, job, timeout_s=120)

    assert end["exit_status"] == "0", report(site, job)
    assert output(site, job).count("QFI") == 2


def test_cancelled_job_leaves_nothing_that_waits_for_it(site: GridEngineSite) -> None:
    image = site.image("gone.qcow2", 10 * MB)
    site.hold_back(image)
    job = submit(site, image)
    wait_arriving(site, image)

    cancel(site, job)
    site.let_go(image)

    site.cluster.wait_for("no transfer", lambda: "gone.qcow2" not in site.told("transfers"), logs=site.logs)
    assert site.cluster.job_state(job) == ""


def test_job_that_outrider_submits_is_like_one_of_qsub(site: GridEngineSite) -> None:
    image = workspace(site, "handed", 5 * MB)
    text = '#!/bin/sh\necho "$(hostname) $(head -c3 "$OUTRIDER_IMAGE")" >handed\n'
    site.cluster.write(HEAD, f"{site.home()}/handed.sh", text, mode=0o755, owner="ada:ada")

    asked = ["--workspace", f"{site.home()}/handed.yaml", "-t", "10m", f"{site.home()}/handed.sh"]
    job = site.outrider("submit", *asked).stdout.strip()
    end = ended(site, job)

    assert end["exit_status"] == "0", report(site, job)
    assert site.cluster.read(HEAD, f"{site.home()}/handed") == f"{end['hostname']} QFI\n"
    assert list(site.arrived_s(image)) == [end["hostname"]]
