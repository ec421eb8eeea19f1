"""A node dies shortly before a reservation on it starts, with the settings that a site has by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cachemgr.base.clock import SystemClock
from testbed.clustersite import NODE_DAEMON
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.conftest import LINK_BYTES_PER_S, RATE_BITS_PER_S
from tests.daemons.gridengine.service.jobs import MB, advances, ended, report, submit, wait_advance
from tests.daemons.gridengine.service.test_reservations import IN_OURS
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace

NODES = 3
SOON = "--start=now+100s"
"""Time enough on a slow machine, and less than it takes Grid Engine by itself to miss a node."""


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        pytest.skip(lack)
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(cluster, is_preloaded=True, link_bytes_per_s=LINK_BYTES_PER_S, pool="200MiB")
        made.install()
        # As Grid Engine has it; the testbed's own is shorter.
        cluster.set_global(max_unheard="00:05:00")
        yield made


def die(site: GridEngineSite, node: str) -> None:
    site.cluster.kill(node, NODE_DAEMON)
    site.cluster.kill_execd(node)


def come_back(site: GridEngineSite, node: str) -> None:
    site.start_node(node)
    site.cluster.start_execd(node)


def reservation(site: GridEngineSite, name: str) -> Mapping[str, object]:
    found = shown(site, name)["reservation"]
    assert isinstance(found, Mapping)
    return found


def promised(site: GridEngineSite, name: str, *options: str) -> dict[str, object]:
    """A reservation's answer, once there is a yes: a service that has just lost a node may say no."""
    answers: list[dict[str, object]] = []

    def is_accepted() -> bool:
        answers.append(reserve(site, name, *options))
        return answers[-1]["result"] == "accepted"

    site.cluster.wait_for(f"a promise of {name}", is_accepted, 120, site.logs)
    return answers[-1]


def node_in_outrider(site: GridEngineSite, node: str) -> str:
    return site.outrider("nodes", node).stdout


@pytest.mark.long
def test_reservation_whose_node_dies_is_endangered_before_its_start_and_its_job_runs_when_it_is_back(
    site: GridEngineSite,
) -> None:
    workspace(site, "dies", 5 * MB)
    answer = promised(site, "dies", f"--nodes={NODES}", SOON, "-t10m")
    name, begins_s = str(answer["name"]), answer["start_s"]
    number = wait_advance(site, name)
    job = submit(site, None, "-ar", number, *IN_OURS, "-pe", "each4", str(4 * NODES), "-l", "h_rt=60")
    wait_reservation(site, name, "ready")

    die(site, "n3")
    wait_reservation(site, name, "endangered")
    endangered_s, why = SystemClock().now_s(), str(reservation(site, name)["why"])
    listed = node_in_outrider(site, "n3")
    come_back(site, "n3")
    wait_reservation(site, name, "ready", "active")
    end = ended(site, job, timeout_s=400)

    assert isinstance(begins_s, int)
    assert endangered_s < begins_s
    assert "n3" in why
    assert "away" in listed
    assert end["exit_status"] == "0", report(site, job)
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


@pytest.mark.long
def test_reservation_is_moved_away_from_a_node_that_dies_before_its_start(site: GridEngineSite) -> None:
    workspace(site, "moves", 5 * MB)
    answer = promised(site, "moves", "--nodes=1", SOON, "-t10m")
    name, node = str(answer["name"]), str(answer["nodes"])
    first = wait_advance(site, name)
    wait_reservation(site, name, "ready")

    die(site, node)
    site.cluster.wait_for(
        "another node",
        lambda: reservation(site, name)["nodes"] != node and advances(site).get(name, first) != first,
        150,
        site.logs,
    )
    wait_reservation(site, name, "ready", "active")
    job = submit(site, None, "-ar", advances(site)[name], *IN_OURS, "-l", "h_rt=60")
    end = ended(site, job, timeout_s=400)
    come_back(site, node)

    assert end["exit_status"] == "0", report(site, job)
    assert end["hostname"] != node
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)
    site.cluster.wait_for("the node", lambda: "away" not in node_in_outrider(site, node), logs=site.logs)


def test_job_in_error_for_a_nodes_daemon_that_was_dead_is_tried_again_by_itself(site: GridEngineSite) -> None:
    workspace(site, "again", 5 * MB)
    name = str(promised(site, "again", f"--nodes={NODES}", "--start=now+10s", "-t10m")["name"])
    number = wait_advance(site, name)
    wait_reservation(site, name, "active")
    site.cluster.kill("n3", NODE_DAEMON)
    options = ("-ar", number, *IN_OURS, "-pe", "each4", str(4 * NODES), "-l", "h_rt=60")
    job = submit(site, None, *options)
    site.cluster.wait_job(job, "Eqw")

    site.start_node("n3")
    end = ended(site, job, timeout_s=400)

    assert end["exit_status"] == "0", report(site, job)
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


@pytest.mark.long
def test_asking_execds_whether_they_are_there_leaves_nothing_in_their_messages(site: GridEngineSite) -> None:
    workspace(site, "quiet", 5 * MB)
    before = {node: messages(site, node) for node in site.cluster.nodes}
    name = str(promised(site, "quiet", f"--nodes={NODES}", "--start=now+20s", "-t30s")["name"])
    wait_reservation(site, name, "ended")

    assert {node: messages(site, node) for node in site.cluster.nodes} == before


def messages(site: GridEngineSite, node: str) -> str:
    return site.cluster.run(node, ["cat", f"/var/spool/gridengine/execd/{node}/messages"]).stdout
