"""Slurm's own containers (`--container` and oci.conf) run in an OCI bundle that is in the nodes' pools."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.containers.container_images import FOLDER, entry, layer
from tests.daemons.registries.registry_server import need
from tests.daemons.slurm.service.jobs import ended, output, wait_for
from tests.daemons.slurm.service.test_images_of_registries import Shelf, need_maker, shelf
from tests.repository import ROOT

__all__ = ["shelf"]
EMPTY = "/usr/lib/outrider/container"
PAGE = (ROOT / "docs/howto/tools.md").read_text().partition("\n## Slurm's own containers\n")[2]
BLOCKS = re.findall(r"^```(?:sh)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
"""What the page shows: a script, how a node is set up, and oci.conf."""
TOOL = r"""#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count > 2) return printf("waits\n") < 0 || fflush(stdout) || sleep(600);
    char text[64] = "", where[256] = "";
    FILE *file = fopen("/data", "r");
    if (file) fgets(text, sizeof text, file);
    printf("%s reads %s in %s, PATH is %s, job %s, %s\n", words[count - 1], text, getcwd(where, sizeof where),
           getenv("PATH"), getenv("SLURM_JOB_ID"), access("/etc/slurm", F_OK) ? "inside" : "outside");
    return 0;
}
"""
CONFIG_OF_IMAGE = {"Env": ["PATH=/own/path"], "WorkingDir": "/inside"}


WITH_CRUN = "tests/daemons/slurm/service/test_containers_of_slurm.py with crun"


@pytest.fixture(params=["crun", pytest.param("runc", marks=pytest.mark.repeats(WITH_CRUN))])
def runtime(request: pytest.FixtureRequest, site: OutriderSite) -> Iterator[str]:
    """The nodes are told to start containers with it."""
    name = str(request.param)
    path = need(name)
    if site.cluster.run(HEAD, ["test", "-x", path], check=False).returncode != 0:
        pytest.skip(f"this version's tree has no {name}: chroot TREE apt install {name}")
    conf = (
        BLOCKS[2]
        if name == "crun"
        else BLOCKS[2].replace("crun", "runc").replace(" --cgroup-manager=disabled", "")
    )
    for node in site.cluster.nodes:
        site.cluster.run(node, ["/bin/sh", "-ec", BLOCKS[1]])
        site.cluster.write(node, "/etc/slurm/oci.conf", conf, mode=0o644)
        # These hosts have no control groups, of which crun wants to see the place.
        site.cluster.run(node, ["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"])
        site.cluster.restart_slurmd(node)
    site.cluster.wait_idle()
    yield name
    for node in site.cluster.nodes:
        site.cluster.run(node, ["umount", "/sys/fs/cgroup"])


def test_container_of_a_job_and_of_its_steps_is_the_bundle_in_the_pool(
    site: OutriderSite, shelf: Shelf, runtime: str, tmp_path: Path
) -> None:
    need_maker(site)
    layers = [layer(entry("bin/tool", tool(tmp_path), mode=0o755)), layer(entry("data", b"its own"))]
    uri = shelf.push_container(
        runtime, [*layers, layer(entry("inside/", kind=FOLDER, mode=0o755))], CONFIG_OF_IMAGE
    )
    lines = f"#OUTRIDER image: {uri}\n#OUTRIDER format: bundle\n"

    job = site.submit(f"#!/bin/tool\n{lines}", "-t1", f"--container={EMPTY}")
    found = ended(site, job, 60)
    steps = site.submit(f"#!/bin/sh\n{lines}srun --container={EMPTY} /bin/tool step\n", "-t1", "-N2")
    found_steps = ended(site, steps, 60)

    inside = "reads its own in /inside, PATH is /own/path"
    assert found.state == "COMPLETED", output(site, job) + site.logs()
    assert output(site, job) == f"/tmp/slurm/startup {inside}, job {job}, inside\n"
    assert found_steps.state == "COMPLETED", output(site, steps) + site.logs()
    assert output(site, steps) == f"step {inside}, job {steps}, inside\n" * 2


def test_container_ends_with_its_job_and_leaves_nothing(
    site: OutriderSite, shelf: Shelf, runtime: str, tmp_path: Path
) -> None:
    need_maker(site)
    uri = shelf.push_container(f"w{runtime}", [layer(entry("bin/tool", tool(tmp_path), mode=0o755))])
    lines = f"#OUTRIDER image: {uri}\n#OUTRIDER format: bundle\n"

    job = site.submit(f"#!/bin/tool waits\n{lines}", "-t1", f"--container={EMPTY}")
    node = wait_for(site, job, "RUNNING").nodes
    path = f"{site.home()}/slurm-{job}.out"

    def told() -> str:
        return site.cluster.run(HEAD, ["cat", path], check=False).stdout

    site.cluster.wait_for("it waits", lambda: told() == "waits\n", logs=site.logs)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    ended(site, job, 60)

    def left() -> str:
        return site.cluster.run(node, ["pgrep", "-a", "-u", "ada"], check=False).stdout

    site.cluster.wait_for("the end of its processes", lambda: not left(), logs=left)
    site.cluster.wait_for("the instance to go", lambda: site.instances(node) == [], logs=site.logs)
    mounts = site.cluster.read(node, "/proc/self/mounts")
    assert "/instances/" not in mounts


def test_container_of_a_job_without_an_image_fails_and_says_what_to_write(
    site: OutriderSite, runtime: str
) -> None:
    image = site.image(f"disk-{runtime}.qcow2", 1_000_000)

    jobs = [
        site.submit(f"#!/bin/tool\n{lines}", "-t1", f"--container={EMPTY}") for lines in ("", image.lines)
    ]
    found = [ended(site, job, 60).state for job in jobs]

    assert found == ["FAILED", "FAILED"]
    assert f"job {jobs[0]} has no image on this node: write #OUTRIDER image" in output(site, jobs[0])
    assert "is not an OCI bundle: write #OUTRIDER format: bundle" in output(site, jobs[1])


def tool(folder: Path) -> bytes:
    (folder / "tool.c").write_text(TOOL)
    argv = [need("gcc"), "-static", "-o", str(folder / "tool"), str(folder / "tool.c")]
    subprocess.run(argv, check=True, timeout=120)
    return (folder / "tool").read_bytes()
