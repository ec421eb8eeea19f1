"""Jobs whose output goes to /dev/null leave the device as it is, whatever becomes of them: each test of these
files looks at it afterwards, as it looks for whatever else is left."""

from __future__ import annotations

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite
from tests.daemons.gridengine.service.conftest import changed_devices
from tests.daemons.gridengine.service.jobs import MB, ended, wait_advance, wait_state
from tests.daemons.gridengine.service.test_reservations import IN_OURS
from tests.daemons.reservations import reserve, workspace

NOWHERE = [("-o", "/dev/null", "-j", "y"), ("-o", "/dev/null", "-e", "/dev/null")]
ONCE = '#!/bin/sh\n[ "$RESTARTED" != 0 ] || exec sleep 600\n'


@pytest.fixture(params=NOWHERE, ids=["one", "two"])
def nowhere(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


def test_job_with_an_image(site: GridEngineSite, nowhere: tuple[str, ...]) -> None:
    image = site.image("nowhere.qcow2", 5 * MB)
    named = ("-ac", f"OUTRIDER=image={image.uri};digest={image.digest}")
    end = ended(site, site.submit("#!/bin/sh\ntrue\n", *nowhere, *named, "-l", "h_rt=60"))

    assert end["exit_status"] == "0"
    assert changed_devices(site) == []


def test_job_that_is_put_back(site: GridEngineSite, nowhere: tuple[str, ...]) -> None:
    job = site.submit(ONCE, *nowhere, "-r", "y")
    wait_state(site, job, "r")
    site.cluster.run(HEAD, ["qmod", "-rj", job])

    assert ended(site, job)["exit_status"] == "0"
    assert changed_devices(site) == []


def test_job_that_is_saved_and_goes_on(site: GridEngineSite, nowhere: tuple[str, ...]) -> None:
    job = site.submit(ONCE, *nowhere, "-ckpt", "save")
    wait_state(site, job, "r")
    site.cluster.run(HEAD, ["qalter", "-h", "s", job])
    site.cluster.run(HEAD, ["qmod", "-sj", job])
    site.cluster.wait_for("it to be saved", lambda: "h" in site.cluster.job_state(job), logs=site.logs)
    site.cluster.wait_idle()
    site.cluster.run(HEAD, ["qrls", "-h", "s", job])

    assert ended(site, job)["exit_status"] == "0"
    assert changed_devices(site) == []


def test_job_in_a_reservation(site: GridEngineSite, nowhere: tuple[str, ...]) -> None:
    workspace(site, "nowhere", 5 * MB)
    name = str(reserve(site, "nowhere", "--start=now+8s", "-t5m")["name"])
    number = wait_advance(site, name)
    end = ended(site, site.submit("#!/bin/sh\ntrue\n", *nowhere, "-ar", number, *IN_OURS, "-l", "h_rt=60"))
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)

    assert end["exit_status"] == "0"
    assert changed_devices(site) == []
