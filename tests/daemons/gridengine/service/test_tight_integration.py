"""A program that starts others on its nodes runs in a reservation, and all of them see the image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.gridengine.service.conftest import LINK_BYTES_PER_S, RATE_BITS_PER_S, TIMINGS
from tests.daemons.gridengine.service.jobs import MB, ended, output, report, submit, wait_advance
from tests.daemons.gridengine.service.test_reservations import IN_OURS
from tests.daemons.reservations import reserve, shown, wait_reservation, workspace

NODES = 2
SLOTS = 4 * NODES
EVERYWHERE = """for node in $(cut -d" " -f1 "$PE_HOSTFILE"); do
qrsh -inherit -nostdin "$node" 'echo "on $(hostname): $(head -c3 "$OUTRIDER_IMAGE")"'
done"""


@pytest.fixture(scope="module")
def site() -> Iterator[GridEngineSite]:
    lack = missing()
    if lack is not None:
        pytest.skip(lack)
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS},
        )
        made.install()
        cluster.run(HEAD, ["qconf", "-mattr", "pe", "control_slaves", "TRUE", "each4"])
        yield made


def test_answers_name_what_a_job_of_all_nodes_is_submitted_with(site: GridEngineSite) -> None:
    workspace(site, "named", 5 * MB)
    answer = reserve(site, "named", f"--nodes={NODES}", "--start=now+1hour", "-t10m")
    name = str(answer["name"])
    number = wait_advance(site, name)
    form = f"qsub -ar {number} -l outrider_reservation=TRUE -pe each4 {SLOTS} SCRIPT"
    site.cluster.wait_for("the number", lambda: form in site.told("show", name), logs=site.logs)
    details = shown(site, name)
    printed = site.outrider("modify", name, "--start", "now+2hours").stdout

    assert (answer["environment"], answer["slots"]) == ("each4", SLOTS)
    assert (details["environment"], details["slots"], details["key"]) == ("each4", SLOTS, number)
    assert f"qsub -ar NUMBER -l outrider_reservation=TRUE -pe each4 {SLOTS} SCRIPT" in printed
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_programs_that_a_job_in_a_reservation_starts_on_its_other_nodes_see_the_image(
    site: GridEngineSite,
) -> None:
    workspace(site, "tight", 5 * MB)
    answer = reserve(site, "tight", f"--nodes={NODES}", "--start=now+10s", "-t10m")
    name = str(answer["name"])
    whole = ("-pe", str(answer["environment"]), str(answer["slots"]))
    number = wait_advance(site, name)
    wait_reservation(site, name, "ready", "active")

    job = submit(site, None, "-ar", number, *IN_OURS, *whole, "-l", "h_rt=60", more=EVERYWHERE)
    end = ended(site, job, timeout_s=120)

    assert end["exit_status"] == "0", report(site, job)
    lines = [line for line in output(site, job).splitlines() if line.startswith("on ")]
    assert sorted(lines) == ["on n1: QFI", "on n2: QFI"], report(site, job)
    site.outrider("cancel", name)
    wait_advance(site, name, is_there=False)


def test_job_in_a_reservation_of_the_sites_own_goes_on_without_an_image(site: GridEngineSite) -> None:
    made = site.cluster.run(HEAD, ["qrsub", "-q", "all.q", "-pe", "each4", str(SLOTS), "-d", "300"]).stdout
    number = made.split()[3]

    told = EVERYWHERE.replace('head -c3 "$OUTRIDER_IMAGE"', 'echo "${OUTRIDER_IMAGE-none}"')
    job = submit(site, None, "-ar", number, "-pe", "each4", str(SLOTS), "-l", "h_rt=60", more=told)
    end = ended(site, job, timeout_s=120)
    site.cluster.run(HEAD, ["qrdel", number])

    assert end["exit_status"] == "0", report(site, job)
    assert sorted(line for line in output(site, job).splitlines() if line.startswith("on ")) == [
        "on n1: none",
        "on n2: none",
    ], report(site, job)
