"""A service that knows Grid Engine's DRMAA library submits by it, for each user in a session of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from time import sleep

import pytest

from outrider.rms.gridengine.drmaa_runner import IDLE_S
from testbed.batchcluster import HEAD
from testbed.clustersite import CONFIGURATION
from testbed.gridenginesite import GridEngineSite
from tests.contract.gridengine_harness import LIBRARY
from tests.daemons.gridengine.service.jobs import MB, ended, report, wait_state
from tests.daemons.gridengine.service.test_switches import kill_service
from tests.daemons.reservations import workspace
from tests.needs import lacking

SESSION = "drmaa_session.py"


@pytest.fixture(scope="module")
def by_drmaa(site: GridEngineSite) -> Iterator[GridEngineSite]:
    if not os.path.exists(LIBRARY):
        lacking("DRMAA: apt install gridengine-drmaa1.0")
    if find_spec("drmaa") is None:
        lacking("DRMAA: pip install drmaa")
    before = site.cluster.read(HEAD, CONFIGURATION)
    found = json.loads(before)
    found["backend"]["gridengine"]["drmaa"] = LIBRARY
    site.cluster.write(HEAD, CONFIGURATION, json.dumps(found))
    kill_service(site)
    yield site
    site.cluster.write(HEAD, CONFIGURATION, before)
    kill_service(site)


def handed_over(site: GridEngineSite, name: str, user: str, seconds: int = 0) -> str:
    """The number of a job that the service was given by a user."""
    script = f"#!/bin/sh\nsleep {seconds}\nid -un >{name}\n"
    path = f"{site.home(user)}/{name}.sh"
    site.cluster.write(HEAD, path, script, mode=0o755, owner=f"{user}:{user}")
    asked = ["--workspace", f"{site.home()}/drmaa.yaml", "-t", "10m", path]
    return site.outrider("submit", *asked, user=user).stdout.strip()


def sessions_of(site: GridEngineSite, user: str) -> int:
    shown = site.cluster.run(HEAD, ["ps", "-u", user, "-o", "args="], check=False).stdout
    return shown.count(SESSION)


def test_users_submit_in_sessions_of_their_own_before_and_after_the_qmaster_was_killed(
    by_drmaa: GridEngineSite,
) -> None:
    site = by_drmaa
    workspace(site, "drmaa", 5 * MB)

    jobs = {user: handed_over(site, f"of-{user}", user) for user in ("ada", "bob")}
    sessions = {user: sessions_of(site, user) for user in ("ada", "bob", "eve")}
    ends = {user: ended(site, job) for user, job in jobs.items()}
    site.cluster.kill_qmaster()
    site.cluster.start_qmaster()
    site.cluster.restart_execds()
    sleep(IDLE_S)
    again = handed_over(site, "again", "ada", seconds=300)
    wait_state(site, again, "r")
    site.cluster.run(HEAD, ["qdel", again], user="ada")
    end = ended(site, again)

    assert sessions == {"ada": 1, "bob": 1, "eve": 0}
    for user, job in jobs.items():
        assert ends[user]["exit_status"] == "0", report(site, job)
        assert site.cluster.read(HEAD, f"{site.home(user)}/of-{user}") == f"{user}\n"
    assert end["failed"] != "0"
    assert "jobs are submitted by qsub" not in site.cluster.log(HEAD, "outriderd")
