"""On a real Grid Engine with Outrider: reservations of parts of nodes, and one that waits for an event."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from testbed import gridengineconf as conf
from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.conftest import (
    JOBS,
    LINK_BYTES_PER_S,
    NODES,
    RATE_BITS_PER_S,
    TIMINGS,
)
from tests.daemons.gridengine.service.jobs import (
    MB,
    cancel,
    ended,
    output,
    report,
    start_s,
    submit,
    wait_advance,
    wait_output,
)
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace
from tests.needs import lacking

IN_OURS = ("-l", "outrider_reservation=TRUE")
HALF = 2
"""Of the four slots of a node."""
WITHIN_S = 60


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    """Four nodes, with a queue for parts of them."""
    lack = missing()
    if lack is not None:
        lacking(lack)
    backend = GridEngineSite.backend
    section = {**dict(backend["gridengine"]), "parts_queue": conf.PARTS_QUEUE}  # type: ignore[call-overload]
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={
                "timings": TIMINGS,
                "jobs": JOBS,
                "backend": {**backend, "gridengine": section},
            },
        )
        made.install()
        yield made


def now_s(site: GridEngineSite) -> int:
    return int(site.cluster.run(HEAD, ["date", "+%s"]).stdout)


@pytest.mark.long
def test_two_users_and_a_job_share_nodes_and_each_has_its_slots(site: GridEngineSite) -> None:
    image = workspace(site, "halves", 5 * MB)
    asked = [
        json.loads(
            site.outrider(
                "reserve", "--image", image.uri, "--digest", image.digest, f"--nodes={NODES}",
                f"--cpus={cpus}", "--start=now+15s", "-t40s", "--json", user=user, check=False,
            ).stdout
        )
        for user, cpus in (("ada", HALF), ("bob", 1), ("bob", HALF))
    ]  # fmt: skip
    ours, small, third = asked
    numbers = [wait_advance(site, each["name"]) for each in (ours, small)]
    beside = submit(site, None, "-q", "all.q@n1", more="sleep 600")
    wait_output(site, beside)
    beyond = submit(site, None, "-q", "all.q@n1", more="sleep 600")

    wide, narrow = ("-pe", "each2", str(NODES * HALF)), ("-pe", "each1", str(NODES))
    bound = (*IN_OURS, "-l", "h_rt=20")
    inside = submit(site, None, "-ar", numbers[0], *bound, *wide, more="sleep 6")
    other = submit(site, None, "-ar", numbers[1], *bound, *narrow, more="sleep 6", user="bob")
    found = [ended(site, job) for job in (inside, other)]
    states = [site.cluster.job_state(job) for job in (beside, beyond)]
    cancel(site, beside, beyond)

    assert [each["result"] for each in asked] == ["accepted", "accepted", "refused"]
    assert third["cause"] == "slots"
    assert (ours["environment"], ours["slots"]) == ("each2", NODES * HALF)
    assert [(each["exit_status"], each["qname"], each["slots"]) for each in found] == [
        ("0", conf.PARTS_QUEUE, str(NODES * HALF)),
        ("0", conf.PARTS_QUEUE, str(NODES)),
    ], report(site, inside)
    assert "QFI" in output(site, inside)
    assert states == ["r", "qw"]
    for each, user in ((ours, "ada"), (small, "bob")):
        site.outrider("cancel", each["name"], user=user)
        wait_advance(site, each["name"], is_there=False)


@pytest.mark.long
def test_event_starts_what_waits_for_it_in_time_and_only_short_jobs_run_before(site: GridEngineSite) -> None:
    workspace(site, "beam", 5 * MB)
    answer = reserve(
        site, "beam", "--nodes=1", "--open-from=now+8s", "--open-until=now+20m",
        f"--ready-within={WITHIN_S}s", "-t40s",
    )  # fmt: skip
    name = str(answer["name"])
    assert answer["result"] == "accepted", answer
    wait_advance(site, name)
    node = str(answer["nodes"])
    site.cluster.wait_for(
        f"{name} to wait for its event",
        lambda: "it waits for its event" in site.told("show", name),
        logs=site.logs,
    )
    script = f"{site.home()}/beam.sh"
    site.cluster.write(HEAD, script, "#!/bin/sh\ndate +%s >began\n", mode=0o755, owner="ada:ada")
    asked = ["--reservation", name, "-t", "20s", script]
    inside = site.outrider("submit", *asked).stdout.strip()
    long = submit(site, None, "-q", f"all.q@{node}", "-l", "h_rt=600", more="sleep 600")
    short = [
        ended(site, submit(site, None, "-q", f"all.q@{node}", "-l", "h_rt=4", "-N", "short"))
        for _ in range(4)
    ]
    waited = [site.cluster.job_state(job) for job in (inside, long)]
    last = submit(site, None, "-q", f"all.q@{node}", "-l", "h_rt=12", more="sleep 8")
    wait_output(site, last)

    event_s = now_s(site)
    site.outrider("trigger", name)
    found = ended(site, inside)
    after = site.cluster.job_state(long)
    wait_reservation(site, name, "ended")
    cancel(site, long)

    assert {(each["exit_status"], each["hostname"]) for each in short} == {("0", node)}
    assert (waited, after) == (["qw", "qw"], "qw")
    assert found["exit_status"] == "0", report(site, inside)
    assert event_s <= start_s(found) <= event_s + WITHIN_S
    receipt = shown(site, name)["receipt"]
    assert isinstance(receipt, Mapping)
    assert receipt["is_met"] is True
    assert "reservation is endangered" not in site.logs()
