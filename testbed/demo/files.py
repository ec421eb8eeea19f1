"""What the user has in her home: scripts of jobs, and workspaces to reserve."""

from __future__ import annotations

from testbed.slurm import IMAGES, IMAGES_PORT

ADDRESS = f"http://{IMAGES}:{IMAGES_PORT}"

USUAL = f"""#!/bin/sh
#SBATCH --nodes=2 --time=5
date +"%T.%3N  the job begins"
srun --quiet sh -c '
    curl -fsS -o "/tmp/$0.$SLURM_JOB_ID" "{ADDRESS}/$0.qcow2"
    date +"%T.%3N  the image is on $SLURMD_NODENAME"
    rm "/tmp/$0.$SLURM_JOB_ID"' "$1"
"""
WITH_IMAGE = """#!/bin/sh
#SBATCH --nodes=2 --time=5
{line}date +"%T.%3N  the job begins"
srun --quiet sh -c '
    test -w "$OUTRIDER_IMAGE" && date +"%T.%3N  the image is on $SLURMD_NODENAME: $OUTRIDER_IMAGE"'
"""
COUNTS_TO = 45
IN_MACHINE = f"""#!/bin/sh
#SBATCH --time=10 --mem=96
#OUTRIDER image: {ADDRESS}/guest.qcow2
#OUTRIDER run: vm
#OUTRIDER boot: debian
#OUTRIDER preemptible: suspend
i=0; while [ $i -lt {COUNTS_TO} ]; do i=$((i + 1)); printf '%d ' $i; sleep 1; done
"""
WORKSPACE = f"""version: 1
metadata:
  name: {{name}}
  image: {{{{uri: "{ADDRESS}/{{name}}.qcow2"}}}}
deployment: {{{{nodes: 2, duration: {{duration}}}}}}
"""


def best_effort(name: str) -> str:
    """A job that says which image it needs, and leaves the rest to others."""
    return WITH_IMAGE.format(line=f"#OUTRIDER image: {ADDRESS}/{name}.qcow2\n")


def in_reservation() -> str:
    """A job of a reservation, which knows the image."""
    return WITH_IMAGE.format(line="")


def workspace(name: str, duration: str) -> str:
    return WORKSPACE.format(name=name, duration=duration)
