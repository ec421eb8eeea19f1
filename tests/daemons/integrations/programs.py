"""What a user of each tool writes: it says nothing of images, and prints the first bytes of its own."""

from __future__ import annotations

from string import Template

LOOK = "head -c3 ${OUTRIDER_IMAGE:-/dev/null}"
FOUND = "QFI"
HEAD_ADDRESS = "10.77.0.1"

SNAKEFILE = """
rule all:
    input: "found.txt"

rule look:
    output: "found.txt"
    resources: runtime=1, slurm_partition="main"
    shell: "head -c3 ${{OUTRIDER_IMAGE:-/dev/null}} >{output}"
"""
SNAKEMAKE = ("snakemake", "--jobs", "1", "--latency-wait", "60")
# Without accounting its executor has to be told to ask squeue.
ON_SLURM = ("--executor", "slurm", "--slurm-no-account", "--slurm-status-command", "squeue")
QSUB = "qsub -terse -cwd -V -S /bin/sh"
ON_GRIDENGINE = ("--executor", "cluster-generic", "--cluster-generic-submit-cmd", QSUB)

TASK = f"subprocess.check_output({LOOK!r}, shell=True, text=True)"
SUBMITIT = f"""
import subprocess, submitit
executor = submitit.AutoExecutor(folder="log", cluster="slurm")
executor.update_parameters(timeout_min=1, slurm_partition="main")
print(executor.submit(lambda: {TASK}).result())
"""
_PARSL = Template("""
import os, parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import GridEngineProvider, SlurmProvider

@parsl.python_app
def look():
    import subprocess
    return $task

if __name__ == "__main__":
    provider = $provider(walltime="00:02:00", init_blocks=1, max_blocks=1, $options)
    executor = HighThroughputExecutor(address="$head", provider=provider, max_workers_per_node=1)
    with parsl.load(Config(executors=[executor], strategy="none")):
        print(look().result())
""")
_DASK = Template("""
import subprocess
from dask.distributed import Client
from dask_jobqueue import SGECluster, SLURMCluster

if __name__ == "__main__":
    with $kind(
        cores=1, memory="500MB", walltime="00:02:00", local_directory="/tmp", $options
        scheduler_options={"host": "$head", "dashboard_address": None},
    ) as cluster:
        cluster.scale(1)
        with Client(cluster) as client:
            print(client.submit(lambda: $task).result())
""")
_EVERYWHERE = {"head": HEAD_ADDRESS, "task": TASK}
PARSL_SLURM = _PARSL.substitute(
    _EVERYWHERE, provider="SlurmProvider", options='partition="main", exclusive=False'
)
PARSL_GRIDENGINE = _PARSL.substitute(
    _EVERYWHERE,
    provider="GridEngineProvider",
    options="""scheduler_options="#$ -S /bin/sh", worker_init="PATH=" + os.environ["PATH"]""",
)
DASK_SLURM = _DASK.substitute(_EVERYWHERE, kind="SLURMCluster", options='queue="main",')
DASK_GRIDENGINE = _DASK.substitute(
    _EVERYWHERE, kind="SGECluster", options='queue="all.q", resource_spec="h_vmem=4G",'
)
_DASK_HERE = {
    "SCHEDULER_OPTIONS": f"{{'host': '{HEAD_ADDRESS}', 'dashboard_address': None}}",
    "LOCAL_DIRECTORY": "/tmp",
}
SWEEP_SLURM = {**_DASK_HERE, "QUEUE": "main", "MEMORY": "500MB"}
SWEEP_GRIDENGINE = {**_DASK_HERE, "QUEUE": "all.q", "RESOURCE_SPEC": "h_vmem=4G"}
KILL_SLURM = "scancel --full --signal=KILL $(squeue -h -t R -o %A | head -n 1)"
KILL_GRIDENGINE = "qdel $(qstat -s r | awk 'NR == 3 { print $1 }')"
NEXTFLOW = """
process look {
    output: stdout
    script: 'head -c3 "${OUTRIDER_IMAGE:-/dev/null}"'
}
workflow { look() | view }
"""
NEXTFLOW_CONFIG = "process { executor = 'slurm'; queue = 'main'; time = '1m' }\n"
SRUN = ("srun", "-t1", "sh", "-c", LOOK)
PARALLEL = ("parallel", "-j2", "srun", "-t1", "-n1", "sh", "-c", ":::", LOOK, LOOK)
