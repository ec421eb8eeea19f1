"""The slurm.conf of a private cluster: a base that suits tests, and the caller's lines over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Keys of which there may be several lines; each is told from its like by its value.
REPEATED = {"nodename", "partitionname", "nodeset", "downnodes", "include", "slurmctldhost"}
SCHEDULER = "sched_interval=2,sched_min_interval=100000,bf_interval=1,bf_continue,batch_sched_delay=0"
CPUS = 4
MEMORY_MIB = 4000
BASE = f"""ClusterName=testbed
SlurmctldHost=head
SlurmUser=slurm
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters={SCHEDULER}
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=3600
AuthInfo=cred_expire=30
SlurmctldTimeout=60
SlurmdTimeout=60
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
"""
# Nothing is put into control groups. 22.05 cannot be told so, but with a named version it does not look.
CGROUPS_V1 = "CgroupPlugin=cgroup/v1\n"
CGROUPS_OFF = "CgroupPlugin=disabled\n"
PLUGSTACK = "include /etc/slurm/plugstack.conf.d/*.conf\n"


def slurm_conf(nodes: int, lines: Iterable[str]) -> str:
    """The base, with each of the caller's lines in the place of the base's line of that key."""
    base = [
        *BASE.splitlines(),
        f"NodeName=n[1-{nodes}] CPUs={CPUS} RealMemory={MEMORY_MIB} State=UNKNOWN",
        f"PartitionName=main Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP",
    ]
    given = list(lines)
    replaced = {_identity(line) for line in given}
    return "\n".join([*(line for line in base if _identity(line) not in replaced), *given]) + "\n"


def _identity(line: str) -> str:
    """What a later line must share with an earlier one to stand in its place."""
    words = line.split()
    key, _, value = words[0].partition("=") if words else ("", "", "")
    return f"{key}={value}".lower() if key.lower() in REPEATED else key.lower()
