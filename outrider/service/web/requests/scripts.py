"""What a script that is handed over says of itself beside its workspace, and of its virtual machine."""

from __future__ import annotations

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import JobLines, parse_job_lines, write_job_lines
from outrider.metadata.workspace import DeploymentSection
from outrider.service.web.requests.understanding import fault

OF_WORKSPACE = ("image", "digest", "size", "format", "private", "name", "option", "finish-by", "value")
"""Keys that the workspace says."""
LINES = "lines"


def with_script_lines(lines: JobLines, said: list[str]) -> JobLines:
    """A job's lines as its workspace has them, with those of its script."""
    for each in said:
        key = each.partition(":")[0].strip().lower()
        if key in OF_WORKSPACE:
            raise fault(LINES, f"{key} is in the script, and said by the workspace already: leave one out")
    try:
        return parse_job_lines(write_job_lines(lines) + "\n".join(said))
    except TextError as error:
        raise fault(LINES, str(error)) from error


def machine_words(lines: JobLines, deployment: DeploymentSection | None) -> str:
    """What the program that runs a job in a virtual machine is told, as the submit filters of Slurm and Grid
    Engine tell it; nothing for other jobs."""
    if not lines.is_machine:
        return ""
    if deployment is None or deployment.memory_mib is None:
        raise fault("deployment.memory", "run: vm needs the guest's memory: say memory in the workspace")
    if deployment.instances_per_node != 1:
        words = "a job in a virtual machine has one on each node: leave instances_per_node out"
        raise fault("deployment.instances_per_node", words)
    said = lines.machine
    strange = {
        "role": bool(lines.roles),
        "data": bool(lines.data),
        "network-rate": said.network_rate_bytes_per_s is not None,
    }
    for key, is_said in strange.items():
        if is_said:
            raise fault(LINES, f"{key} is for jobs that sbatch hands over: leave it out")
    words = f"run=vm,memory={deployment.memory_mib}"
    if lines.boot:
        words += f",boot={lines.boot}"
    if said.scratch_bytes is not None:
        words += f",scratch={said.scratch_bytes}"
    if said.disk_rate_bytes_per_s is not None:
        words += f",disk={said.disk_rate_bytes_per_s}"
    if said.is_interactive:
        words += ",lease=interactive"
    return words
