"""A job handed to sbatch in its user's name: its script, its arguments, and the record it begins with."""

from __future__ import annotations

import shlex
from dataclasses import replace

from outrider.core.model import Resources
from outrider.rms.base import Refused, Submission
from outrider.rms.slurm.fields import BadField
from outrider.rms.slurm.jobs import HELD_BEGIN_S, SlurmJob
from outrider.rms.slurm.records import MOST_COMMENT, JobRecord, carried, with_ticket

FAR_S = 365 * 86_400
"""How far away a job's begin is put that has to wait for us."""
FORGETS_S = 2
"""So much later than Slurm would a job that was sent back starts: slurmd (22.05) runs no prolog for one whose
earlier start it has not forgotten, and forgets none within 2 s of the last time that it did so."""
SHELL = "#!/bin/sh\nexec "
PLACES = 0xF0000000
"""Slurm's priority/basic numbers jobs from 0xFFFF0000 downwards, as they are submitted; what is less is a sum
of a priority/multifactor, which is counted anew when a job is released."""
_KNOWN = ("cpus", "memory_mib", "gpus")
MOST_SCRIPT = 1 << 20


def record_for(submission: Submission) -> JobRecord | None:
    """What is known of it from the beginning. One with metadata waits for its image, as the submit
    filter lets others wait, unless it goes into a reservation."""
    if submission.metadata is None and not submission.tag:
        return None
    waits = submission.metadata is not None and submission.reservation is None
    return JobRecord(
        sentence="outrider: waits to be planned" if waits else "outrider:",
        metadata=submission.metadata,
        tag=submission.tag,
        is_held=waits,
    )


def expected(record: JobRecord, priority: int, start_s: int | None, now_s: int) -> tuple[JobRecord, str, str]:
    """How a job is held that shows when it is expected to start: by its priority, so that its begin is free
    to say that. Slurm starts no job without a priority, whether or not its begin has passed; then, and where
    nobody knows, it shows no start. A place in the queue is kept, since Slurm would give it the last one."""
    begin_s = now_s if start_s is None else max(start_s, record.begin_s)
    place = record.priority or (priority if priority >= PLACES else 0)
    held = replace(record, is_held=True, is_stopped=True, is_expected=True, priority=place)
    return held, "Priority=0", f"StartTime=uts{begin_s if begin_s < now_s + HELD_BEGIN_S else now_s}"


def size_of(nodes: int, resources: Resources, minutes: int, *, has_cpus: bool = False) -> list[str]:
    """What an update says of a job that is to have so many nodes, with these resources on each: one task on
    a node, as jobs that we hand over have."""
    # Said again, memory is counted anew for all nodes together, by which a look knows it.
    memory = [f"MinMemoryNode={resources['memory_mib']}"] if resources["memory_mib"] else []
    return [
        f"NumNodes={nodes}-{nodes}",
        f"NumTasks={nodes}",
        f"NumCPUs={nodes * max(1, resources['cpus'])}",
        f"TimeLimit={minutes}",
        *memory,
        # Of a task, so that no node gives more of the sum than another.
        *([f"CPUsPerTask={resources['cpus']}", f"MinCPUsNode={resources['cpus']}"] if has_cpus else []),
    ]


def key_in(printed: bytes) -> str:
    """The job's key, as sbatch has printed it."""
    key = printed.decode("ascii", "replace").strip().partition(";")[0]
    if not key.isdecimal():
        raise BadField(f"sbatch printed {key[:60]!r}, not a job's number: look for the job by hand")
    return key


def script_of(submission: Submission) -> str:
    """What runs the command. No line of it can be taken for an option, since its first one is a command."""
    if not submission.argv:
        raise Refused("a job without a command: name one")
    script = SHELL + shlex.join(submission.argv) + "\n"
    if len(script) > MOST_SCRIPT or "\0" in script:
        raise Refused(f"a command of {len(script)} characters, or with a zero byte: put it into a file")
    return script


def arguments(submission: Submission, record: JobRecord | None, now_s: int, folder: str) -> list[str]:
    """The arguments of sbatch. Raises Refused."""
    amounts = dict(submission.resources.amounts)
    strange = sorted(set(amounts) - set(_KNOWN))
    if strange:
        raise Refused(f"a job cannot ask Slurm for {', '.join(strange)}: cpus, memory_mib and gpus are known")
    found = [
        "sbatch",
        "--parsable",
        "--requeue",
        f"--chdir={folder}",
        f"--job-name={submission.argv[0].rpartition('/')[2][:60] or 'job'}",
        f"--nodes={submission.nodes_wanted}-{submission.nodes_wanted}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={max(1, amounts.get('cpus', 1))}",
    ]
    if amounts.get("memory_mib"):
        found.append(f"--mem={amounts['memory_mib']}M")
    if amounts.get("gpus"):
        found.append(f"--gres=gpu:{amounts['gpus']}")
    if submission.limit_s is not None:
        if submission.limit_s < 1:
            raise Refused(f"a limit of {submission.limit_s} s is too short: ask for 1 or more")
        found.append(f"--time={-(-submission.limit_s // 60)}")
    if submission.account:
        found.append(f"--account={submission.account}")
    if submission.reservation is not None:
        found.append(f"--reservation={submission.reservation}")
    if record is not None:
        word = carried(record)
        if len(word) > MOST_COMMENT:
            raise Refused(
                f"the job's metadata have {len(submission.metadata or '')} characters, too many for a "
                "comment of Slurm: shorten them"
            )
        found.append(f"--comment={word}")
        if record.is_held:
            found.append(f"--begin=uts{now_s + FAR_S}")
    return found


def comment_with_ticket(known: SlurmJob, ticket: str) -> str:
    """A job's comment with a ticket in the place of the last one. Raises Refused."""
    comment = with_ticket(known.comment, ticket, known.record.option)
    if len(comment) > MOST_COMMENT:
        raise Refused(
            f"job {known.key} has a comment of {len(known.comment)} characters: with its ticket that is "
            f"more than {MOST_COMMENT}; its user has to shorten it"
        )
    return comment
