"""A private Grid Engine as a site has it before anybody thinks of Outrider, with ssh to its nodes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import gridengineconf as conf
from testbed.commands import PATH
from testbed.gridengine import GridEngineCluster, missing
from tests.daemons.installing.machines import COMMAND_S, let_in, link_programs, need_sshd, shared_of

SHOWN = ("-sconf", "-sc", "-sm", "-sql", "-spl", "-sckptl", "-ssconf", "-sul")
ACCOUNT, RESERVATIONS, WORK = "outrider", "outrider.q", "all.q"


@contextmanager
def grid(installed: Path, nodes: int = 2) -> Iterator[GridEngineCluster]:
    """Without what the testbed has already done of an installation."""
    need_everything()
    with GridEngineCluster(nodes=nodes, shared=shared_of(installed)) as cluster:
        as_a_site_has_it(cluster)
        let_in(cluster)
        link_programs(cluster, installed)
        yield cluster


def as_a_site_has_it(cluster: GridEngineCluster) -> None:
    """Take back what the testbed has done of an installation."""

    def qconf(*argv: str) -> str:
        return cluster.run("head", ["qconf", *argv]).stdout

    for queue in (WORK, conf.PARTS_QUEUE, RESERVATIONS):
        qconf("-rattr", "queue", "subordinate_list", "NONE", queue)
    for queue in (conf.PARTS_QUEUE, RESERVATIONS):
        qconf("-dq", queue)
    qconf("-rattr", "queue", "ckpt_list", conf.CHECKPOINT, WORK)
    qconf("-dckpt", conf.MACHINE_CHECKPOINT)
    complexes = [line for line in qconf("-sc").splitlines() if not line.startswith("outrider_")]
    cluster.configure("c", "\n".join(complexes) + "\n")
    qconf("-du", ACCOUNT, "arusers")
    qconf("-dm", ACCOUNT)
    cluster.set_global(jsv_allowed_mod="ac,h,i,e,o,j,M,N,p,w")
    # A site's own: whole nodes whose programs may start others, and a scheduler as it is made.
    qconf("-mattr", "pe", "control_slaves", "TRUE", "each4")
    cluster.configure("sconf", conf.changed(qconf("-ssconf").replace("\\\n", " "), {"params": "none"}))


def objects(cluster: GridEngineCluster) -> dict[str, str]:
    """Everything that an installation could change, as Grid Engine prints it."""

    def qconf(*argv: str) -> str:
        # Where it breaks lines to be read is not a part of what it says.
        shown = cluster.run("head", ["qconf", *argv], check=False).stdout
        return re.sub(r"[ \t\\]*\\\n[ \t]*| +", " ", re.sub(r",[ \t]*\\\n[ \t]*", ",", shown))

    found = {word: qconf(word) for word in SHOWN}
    found |= {f"queue {name}": qconf("-sq", name) for name in found["-sql"].split()}
    found |= {f"environment {name}": qconf("-sp", name) for name in found["-spl"].split()}
    found["arusers"] = qconf("-su", "arusers")
    return found


def outrider(cluster: GridEngineCluster, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command on the head, as it was installed there."""
    # As an administrator on Debian has it, whose commands of Grid Engine are scripts.
    usual = {"PATH": PATH}
    return cluster.run("head", ["outrider", *words], environment=usual, check=check, timeout_s=COMMAND_S)


def need_everything() -> None:
    """Root, Grid Engine and sshd: where they are missing CI fails, others skip."""
    found = missing() or need_sshd()
    if found:
        if os.environ.get("CI"):
            pytest.fail(found)
        pytest.skip(found)
