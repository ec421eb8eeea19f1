"""The configuration of a private Grid Engine: what an administrator would set, in times that suit tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEMPLATES = Path("/usr/share/gridengine")
FOLDER = "/etc/gridengine"
ACCOUNT = "outrider"
WORK_QUEUE, RESERVATION_QUEUE, PARTS_QUEUE = "all.q", "outrider.q", "outrider_parts.q"
QUEUES = (WORK_QUEUE, RESERVATION_QUEUE, PARTS_QUEUE)
HOSTS = "@allhosts"
SLOTS = 4
DURATION_OFFSET_S = 5
# By slots on each node: an environment's jobs have so many on every node that they get.
ENVIRONMENTS = {1: "each1", 2: "each2", 4: "each4"}
CHECKPOINT, MACHINE_CHECKPOINT = "save", "outrider_machine"
SAVE = "/usr/lib/testbed/save"
SAVE_TEXT = '#!/bin/sh\nkill -s KILL -- "-$1"\n'
COMPLEX = "outrider_reservation orsv BOOL == FORCED NO FALSE 0"

# A requeued job goes to the same node again only after two reports of its load.
CONFIGURATION = {
    "load_report_time": "00:00:02",
    "max_unheard": "00:00:20",
    # Longer than the 30 s after which nodes talk to a new qmaster.
    "reschedule_unknown": "00:01:00",
    "max_advance_reservations": "0",
    "finished_jobs": "1000",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 "
    "accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00",
    "execd_params": "ENABLE_ADDGRP_KILL=true",
    "jsv_allowed_mod": "ac,h,i,e,o,j,M,N,p,w,q_hard,l_hard,ar,pe_name,pe_min,pe_max",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "max_reservation": "100",
    "job_load_adjustments": "NONE",
    "params": f"DURATION_OFFSET={DURATION_OFFSET_S}",
}
WORK = {
    "qname": WORK_QUEUE,
    "hostlist": HOSTS,
    "slots": str(SLOTS),
    "pe_list": " ".join(["make", *ENVIRONMENTS.values()]),
    "ckpt_list": f"{CHECKPOINT} {MACHINE_CHECKPOINT}",
    "load_thresholds": "NONE",
    "rerun": "TRUE",
    "shell": "/bin/sh",
    "shell_start_mode": "unix_behavior",
}
RESERVATIONS = {
    "qname": RESERVATION_QUEUE,
    # Twice, so that a reservation can be moved by making the new one before the old one ends.
    "slots": str(2 * SLOTS),
    "complex_values": "outrider_reservation=TRUE",
    "subordinate_list": f"{WORK_QUEUE}=1,{PARTS_QUEUE}=1",
}
# Its jobs run beside those of the work queue, and never beside those of whole nodes.
PARTS = {**RESERVATIONS, "qname": PARTS_QUEUE, "subordinate_list": "NONE"}
SAVED = {
    "ckpt_name": CHECKPOINT,
    "interface": "application-level",
    "ckpt_command": "NONE",
    "migr_command": f"{SAVE} $job_pid",
    "restart_command": "NONE",
    "clean_command": "NONE",
    "ckpt_dir": "/tmp",
    "signal": "NONE",
    "when": "xsr",
}
MACHINE_SAVED = {
    **SAVED,
    "ckpt_name": MACHINE_CHECKPOINT,
    "migr_command": "/usr/lib/outrider/gridengine/suspend $job_pid",
    "when": "xr",
}
NOTHING = (
    "load_scaling",
    "complex_values",
    "user_lists",
    "xuser_lists",
    "projects",
    "xprojects",
    "usage_scaling",
    "report_variables",
)


def changed(text: str, values: Mapping[str, str]) -> str:
    """A configuration of lines `key value` with other values, and new keys at its end."""
    lines = [line for line in text.splitlines() if line.strip() and line.split()[0] not in values]
    return "\n".join([*lines, *(f"{key} {value}" for key, value in values.items())]) + "\n"


def objects(nodes: Sequence[str], configuration: Mapping[str, str]) -> dict[str, str]:
    """What goes into qconf, as files of the head."""
    plain = (TEMPLATES / "util/resources/pe/make").read_text()
    texts = {
        "global": changed((TEMPLATES / "default-configuration").read_text(), configuration),
        "hosts": f"group_name {HOSTS}\nhostlist {' '.join(nodes)}\n",
        CHECKPOINT: changed("", SAVED),
        MACHINE_CHECKPOINT: changed("", MACHINE_SAVED),
        "make": plain,
        **{name: _environment(plain, name, slots) for slots, name in ENVIRONMENTS.items()},
        **{f"host-{node}": _execution_host(node) for node in nodes},
    }
    return {f"{FOLDER}/{name}": text for name, text in texts.items()}


def additions(head: str, nodes: Sequence[str]) -> list[str]:
    """The arguments of qconf that put all of it in, in order; the queues' files are made from its own."""
    return [
        f"-ah {','.join(nodes)}",
        f"-as {','.join([head, *nodes])}",
        f"-am {ACCOUNT}",
        f"-au {ACCOUNT} arusers",
        *(f"-Ae {FOLDER}/host-{node}" for node in nodes),
        f"-Ahgrp {FOLDER}/hosts",
        *(f"-Ap {FOLDER}/{name}" for name in ("make", *ENVIRONMENTS.values())),
        *(f"-Ackpt {FOLDER}/{name}" for name in (CHECKPOINT, MACHINE_CHECKPOINT)),
        f"-Mc {FOLDER}/complexes",
        f"-Msconf {FOLDER}/scheduler",
        f"-Aq {FOLDER}/{WORK_QUEUE}",
        f"-Aq {FOLDER}/{PARTS_QUEUE}",
        f"-Aq {FOLDER}/{RESERVATION_QUEUE}",
        f"-mattr queue subordinate_list {RESERVATION_QUEUE}=1 {WORK_QUEUE}",
        f"-mattr queue subordinate_list {RESERVATION_QUEUE}=1 {PARTS_QUEUE}",
    ]


def _environment(plain: str, name: str, slots: int) -> str:
    """A parallel environment like a plain one, but that gives each node so many slots."""
    # With control_slaves a job that was checkpointed never starts again where it had slaves.
    return changed(plain, {"pe_name": name, "allocation_rule": str(slots), "control_slaves": "FALSE"})


def _execution_host(node: str) -> str:
    return changed("", {"hostname": node, **dict.fromkeys(NOTHING, "NONE")})
