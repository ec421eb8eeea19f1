"""Jobs with several sizes on a real Grid Engine: one is taken in time, and another when nodes become free."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from testbed.commands import CommandFailed
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.jobs import (
    MB,
    TOLD_S,
    cancel,
    ended,
    output,
    report,
    shown,
    submit,
    wait_output,
    wait_told,
)

NARROW, WIDE = "option=nodes=1 time=40", "option=nodes=3 time=10"
WHOLE = ("-pe", "each4", "4")
OPTION = 'echo "option ${OUTRIDER_OPTION-none} on $NHOSTS"'


def put(site: GridEngineSite, image: ServedImage, *options: str) -> str:
    named = ";".join([f"OUTRIDER=image={image.uri};digest={image.digest}", *options])
    return submit(site, None, *WHOLE, "-ac", named, more=OPTION)


def occupy(site: GridEngineSite, node: str, limit_s: int) -> str:
    """A job that takes all of a node, until it is cancelled, and says that it needs so long."""
    queue = ("-q", f"all.q@{node}", "-l", f"h_rt={limit_s}")
    job = submit(site, None, *WHOLE, *queue, more="sleep 600")
    wait_output(site, job)
    return job


def deadline(site: GridEngineSite, minutes: int) -> str:
    now_s = int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)
    at = datetime.fromtimestamp(now_s, UTC) + timedelta(minutes=minutes)
    return f"finish-by={at:%Y-%m-%dT%H:%M:%SZ}"


def limit_s(site: GridEngineSite, job: str) -> str:
    found = re.search(r"h_rt=([0-9]+)", shown(site, job))
    return "" if found is None else found[1]


def wait_limit(site: GridEngineSite, job: str, wanted: str) -> None:
    site.cluster.wait_for(
        f"job {job} to have {wanted} s",
        lambda: limit_s(site, job) == wanted,
        TOLD_S,
        lambda: report(site, job),
    )


def test_job_takes_the_option_that_meets_its_deadline(site: GridEngineSite) -> None:
    image = site.image("deadline.qcow2", 5 * MB)

    job = put(site, image, NARROW, WIDE, deadline(site, 20))
    end = ended(site, job)

    assert (end["failed"], end["exit_status"]) == ("0", "0"), report(site, job)
    told = site.outrider("explain", job, check=False).stdout
    assert "option 2 on 3" in output(site, job), told
    assert len(site.arrived_s(image)) >= 3


@pytest.mark.long
def test_waiting_job_is_switched_when_nodes_become_free(site: GridEngineSite) -> None:
    image = site.image("switched.qcow2", 5 * MB)
    others = [occupy(site, node, 18_000) for node in ("n1", "n2", "n3")] + [occupy(site, "n4", 300)]
    job = put(site, image, NARROW, WIDE)
    before = wait_told(site, job, "option 1 of 2")
    wait_limit(site, job, "2400")
    # The node that it waits for stays busy: there it would start at once.
    cancel(site, *others[:3])
    end = ended(site, job)
    cancel(site, others[3])

    assert "expected to end first" in before
    assert (end["failed"], end["exit_status"]) == ("0", "0"), report(site, job)
    assert "option 2 on 3" in output(site, job)


def test_option_brings_its_own_image_and_processors(site: GridEngineSite) -> None:
    slow, quick = site.image("slow.qcow2", 5 * MB), site.image("quick.qcow2", 5 * MB)
    first = put(site, quick, "option=nodes=1 time=5", "option=nodes=2 time=4")
    assert ended(site, first)["exit_status"] == "0", report(site, first)
    site.hold_back(slow)
    own = f"image={quick.uri} digest={quick.digest}"
    job = put(site, slow, "option=nodes=1 time=20 cpus=4", f"option=nodes=1 time=20 cpus=4 {own}", "value=2")
    try:
        end = ended(site, job)
    finally:
        site.let_go(slow)

    assert (end["failed"], end["exit_status"], end["slots"]) == ("0", "0", "4"), report(site, job)
    assert "option 2 on 1" in output(site, job), site.outrider("explain", job, check=False).stdout


@pytest.mark.long
def test_job_whose_owner_has_changed_it_and_an_array_are_left_alone(site: GridEngineSite) -> None:
    image = site.image("changed.qcow2", 5 * MB)
    others = [occupy(site, node, 18_000) for node in ("n1", "n2", "n3", "n4")]
    job = put(site, image, NARROW, WIDE)
    # Its own limit is that of the option, too: what the service says tells that it has chosen.
    wait_told(site, job, "option 2 of 2")
    named = ";".join([f"OUTRIDER=image={image.uri};digest={image.digest}", NARROW, WIDE])
    array = submit(site, None, *WHOLE, "-t", "1-2", "-l", "h_rt=180", "-ac", named, more=OPTION)
    site.cluster.run(HEAD, ["qalter", "-l", "h_rt=420", job])
    told = wait_told(site, job, "its options are left alone")
    of_array = wait_told(site, array, "its options are left alone")
    cancel(site, *others)
    end = ended(site, job)

    assert "its size was changed meanwhile" in told
    assert "an array's jobs have one size" in of_array
    assert end["exit_status"] == "0", report(site, job)
    assert limit_s(site, array) in ("180", "")


def test_hostile_options_are_refused_with_the_reason(site: GridEngineSite) -> None:
    image = site.image("hostile.qcow2", 5 * MB)
    refused = {
        "option=nodes=-1 time=5": "option 1: '-1' is not a number of nodes",
        "option=nodes=2 time=99999999999999999999": "option 1: '99999999999999999999' is not a time",
        ";".join(f"option=nodes={n} time=5" for n in range(1, 101)): "there are 100 options",
        "value=-5": "cannot be its value",
        "option=nodes=2 time=5 image=h/" + "a" * 100_000: "",
    }
    for options, words in refused.items():
        with pytest.raises(CommandFailed) as failed:
            put(site, image, options)
        assert words in str(failed.value), options
