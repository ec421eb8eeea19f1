"""On Grid Engine, of the tools that have an executor for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.sim.workload.savings.reading import read_accounting
from testbed.batchcluster import HEAD
from testbed.gridengine import COMMON
from testbed.gridenginesite import GridEngineSite, missing, site_cluster
from tests.daemons.integrations import programs
from tests.daemons.integrations.conftest import ran, swept_although_killed, swept_here
from tests.daemons.integrations.test_tools_on_slurm import LINK_BYTES_PER_S, RATE_BITS_PER_S, TIMINGS
from tests.needs import lacking


@pytest.fixture(scope="module")
def site(tools: Path) -> Iterator[GridEngineSite]:
    if (lack := missing()) is not None:
        lacking(lack)
    with site_cluster(2, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = GridEngineSite(
            cluster, link_bytes_per_s=LINK_BYTES_PER_S, pool="200MiB", settings={"timings": TIMINGS}
        )
        made.install()
        client = "/usr/lib/outrider/gridengine/outrider_client_jsv.py"
        cluster.write(HEAD, f"{made.home()}/.sge_request", f"-jsv {client}\n", mode=0o644)
        yield made


@pytest.mark.parametrize(
    ("name", "program"),
    [
        pytest.param("parsl", programs.PARSL_GRIDENGINE, marks=pytest.mark.long),
        ("dask", programs.DASK_GRIDENGINE),
    ],
)
@pytest.mark.repeats(
    "tests/daemons/gridengine/service/test_best_effort.py::test_all_tasks_of_an_array_find_the_image"
)
def test_task_finds_its_image(site: GridEngineSite, tools: Path, name: str, program: str) -> None:
    printed, nodes = ran(site, tools, name, {"run.py": program}, "python", "run.py")

    assert programs.FOUND in printed
    assert len(nodes) == 1


@pytest.mark.repeats(
    "tests/daemons/slurm/accounting/test_savings_of_a_slurm.py::test_jobs_that_ran_are_replayed"
)
def test_accounting_of_what_ran_is_replayed(site: GridEngineSite, tmp_path: Path) -> None:
    job = site.submit("#!/bin/sh\nsleep 1\n", "-N", "train")
    path = f"{COMMON}/accounting"

    def is_written() -> bool:
        # Before the first job has ended the file is not there.
        return f":train:{job}:" in site.cluster.run(HEAD, ["cat", path], check=False).stdout

    site.cluster.wait_for("its accounting", is_written, logs=site.logs)
    (tmp_path / "accounting").write_text(site.cluster.read(HEAD, path))

    found = [
        each for each in read_accounting(str(tmp_path / "accounting")).jobs if each.said["name"] == "train"
    ]
    assert [(each.said["user"], each.key, len(each.nodes)) for each in found] == [("ada", f"{job}.0", 1)]
    assert found[0].end_s - found[0].start_s >= 1


@pytest.mark.long
def test_rule_of_snakemake_finds_its_image(site: GridEngineSite, tools: Path) -> None:
    files = {"Snakefile": programs.SNAKEFILE}
    _, nodes = ran(site, tools, "snakemake", files, *programs.SNAKEMAKE, *programs.ON_GRIDENGINE)

    assert site.cluster.read(HEAD, f"{site.home()}/snakemake/found.txt") == programs.FOUND
    assert len(nodes) == 1


@pytest.mark.repeats(
    "tests/daemons/gridengine/service/test_best_effort.py::test_all_tasks_of_an_array_find_the_image"
)
def test_a_sweep_of_which_a_worker_is_killed_has_the_bytes_of_this_machine(
    site: GridEngineSite, tools: Path, tmp_path: Path
) -> None:
    whole, here = swept_here(tmp_path)

    done, there = swept_although_killed(
        site, tools, "gridengine", programs.KILL_GRIDENGINE, programs.SWEEP_GRIDENGINE
    )

    assert 3 <= done < whole
    assert there == here
