"""On Slurm: OUTRIDER_IMAGE_WANTED is all, and what a tool submits finds its image on its node."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from outrider.cli.installing.common.shipped import shipped
from outrider.cli.installing.slurm.files import SHIPPED
from testbed.site import OutriderSite, site_cluster
from testbed.slurm import HEAD
from tests.daemons.integrations import programs
from tests.daemons.integrations.conftest import ran, swept_although_killed, swept_here
from tests.needs import lacking, need_slurm

RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
TIMINGS = {"look": "2s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "6s", "note": "2s"}


@pytest.fixture(scope="module")
def site(tools: Path) -> Iterator[OutriderSite]:
    """Two nodes, with the client's filter, since slurmctld sees no environment of srun."""
    need_slurm()
    lines = ["CliFilterPlugins=cli_filter/lua"]
    with site_cluster(2, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=lines) as cluster:
        made = OutriderSite(
            cluster, link_bytes_per_s=LINK_BYTES_PER_S, pool="200MiB", settings={"timings": TIMINGS}
        )
        for host in (HEAD, *cluster.nodes):
            cluster.write(host, "/etc/slurm/cli_filter.lua", shipped(SHIPPED["cli_filter.lua"]).decode())
        made.install()
        yield made


@pytest.mark.parametrize(
    ("name", "files", "argv"),
    [
        ("submitit", {"run.py": programs.SUBMITIT}, ("python", "run.py")),
        pytest.param("parsl", {"run.py": programs.PARSL_SLURM}, ("python", "run.py"), marks=pytest.mark.long),
        ("dask", {"run.py": programs.DASK_SLURM}, ("python", "run.py")),
        ("srun", {}, programs.SRUN),
    ],
)
@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_best_effort.py::test_all_tasks_of_an_array_find_the_image"
)
def test_task_finds_its_image(
    site: OutriderSite, tools: Path, name: str, files: dict[str, str], argv: Sequence[str]
) -> None:
    printed, nodes = ran(site, tools, name, files, *argv)

    assert programs.FOUND in printed
    assert len(nodes) == 1


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_best_effort.py::test_all_tasks_of_an_array_find_the_image"
)
def test_rule_of_snakemake_finds_its_image(site: OutriderSite, tools: Path) -> None:
    files = {"Snakefile": programs.SNAKEFILE}
    _, nodes = ran(site, tools, "snakemake", files, *programs.SNAKEMAKE, *programs.ON_SLURM)

    assert site.cluster.read(HEAD, f"{site.home()}/snakemake/found.txt") == programs.FOUND
    assert len(nodes) == 1


def test_tasks_of_gnu_parallel_find_their_image(site: OutriderSite, tools: Path) -> None:
    if shutil.which("parallel") is None:
        lacking("GNU Parallel is not installed: apt install parallel")
    printed, _ = ran(site, tools, "parallel", {}, *programs.PARALLEL)

    assert printed == programs.FOUND * 2


def test_process_of_nextflow_finds_its_image(site: OutriderSite, tools: Path) -> None:
    """From PyPI comes a starter that loads the program from nextflow.io when it first runs."""
    home = Path(os.environ.get("NXF_HOME", "/nonexistent"))
    if not any(home.glob("framework/*/nextflow-*-one.jar")):
        pytest.skip("it loads its program from nextflow.io: name a folder that has it by NXF_HOME")
    files = {"main.nf": programs.NEXTFLOW, "nextflow.config": programs.NEXTFLOW_CONFIG}
    argv = ("env", f"NXF_HOME={home}", "NXF_OFFLINE=true", "nextflow", "run", "main.nf")
    printed, nodes = ran(site, tools, "nextflow", files, *argv)

    assert programs.FOUND in printed
    assert len(nodes) == 1


@pytest.mark.repeats(
    "tests/daemons/slurm/service/test_best_effort.py::test_all_tasks_of_an_array_find_the_image"
)
def test_a_sweep_of_which_a_worker_is_killed_has_the_bytes_of_this_machine(
    site: OutriderSite, tools: Path, tmp_path: Path
) -> None:
    whole, here = swept_here(tmp_path)

    done, there = swept_although_killed(site, tools, "slurm", programs.KILL_SLURM, programs.SWEEP_SLURM)

    assert 3 <= done < whole
    assert there == here
