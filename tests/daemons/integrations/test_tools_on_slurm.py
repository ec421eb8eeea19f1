"""OUTRIDER_IMAGE_WANTED in the environment is all: what a tool submits finds its image on its node."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD

MB = 1_000_000
PATIENCE_S = 180
# What a task says: the first bytes of its image, or that it has none.
LOOK = "head -c3 ${OUTRIDER_IMAGE:-/dev/null}"
FOUND = "QFI"

SNAKEFILE = f"""
rule all:
    input: "found.txt"

rule look:
    output: "found.txt"
    resources: runtime=1, slurm_partition="main", slurm_account="none"
    shell: "{LOOK.replace("{", "{{").replace("}", "}}")} >{{output}}"
"""
SUBMITIT = f"""
import subprocess, sys, submitit
executor = submitit.AutoExecutor(folder="log", cluster="slurm")
executor.update_parameters(timeout_min=1, slurm_partition="main")
job = executor.submit(subprocess.check_output, {LOOK!r}, shell=True, text=True)
print(job.result())
"""
PARSL = f"""
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider

@parsl.python_app
def look():
    import subprocess
    return subprocess.check_output({LOOK!r}, shell=True, text=True)

if __name__ == "__main__":
    provider = SlurmProvider(partition="main", walltime="00:02:00", init_blocks=1, max_blocks=1, exclusive=False)
    executor = HighThroughputExecutor(address="10.77.0.1", provider=provider, max_workers_per_node=1)
    with parsl.load(Config(executors=[executor], strategy="none")):
        print(look().result())
"""
DASK = f"""
import subprocess
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    options = {{"host": "10.77.0.1", "dashboard_address": None}}
    with SLURMCluster(
        queue="main", cores=1, memory="500MB", walltime="00:02:00", scheduler_options=options,
        interface=None, local_directory="/tmp",
    ) as cluster:
        cluster.scale(1)
        with Client(cluster) as client:
            print(client.submit(subprocess.check_output, {LOOK!r}, shell=True, text=True).result())
"""
SRUN = f"""srun -t1 sh -c '{LOOK}'"""
PARALLEL = f"""parallel -j2 srun -t1 -n1 sh -c {{}} ::: '{LOOK}' '{LOOK}'"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A job as accounting has it."""

    key: str
    node: str
    start_s: int


def wanted(site: OutriderSite, name: str) -> ServedImage:
    return site.image(f"{name}.qcow2", 8 * MB)


def run(site: OutriderSite, tools: Path, folder: str, image: ServedImage, *argv: str) -> str:
    """What a user's command prints, in a folder of its own, where the image is wanted."""
    path = f"{site.home()}/{folder}"
    environment = {
        "OUTRIDER_IMAGE_WANTED": f"image={image.uri};digest={image.digest}",
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": path,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    words = ["/bin/sh", "-c", f'cd {path} && exec "$@"', "sh", *argv]
    done = site.cluster.run(
        HEAD, words, user="ada", environment=environment, check=False, timeout_s=PATIENCE_S
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{site.logs()}"
    return done.stdout


def folder_of(site: OutriderSite, name: str, **files: str) -> None:
    """A folder of ada's with these files."""
    path = f"{site.home()}/{name}"
    site.cluster.run(HEAD, ["mkdir", "-p", path], user="ada")
    for file, text in files.items():
        site.cluster.write(HEAD, f"{path}/{file.replace('_', '.')}", text, mode=0o644)


def managed(site: OutriderSite, image: ServedImage) -> list[str]:
    """The jobs of which the service knows that they wanted this image."""
    answer = site.outrider("watch", "--json", check=False, timeout_s=5)
    found = json.loads(answer.stdout or "{}")
    return [str(each) for each in found]
