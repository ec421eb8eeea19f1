"""The pages that walks follow, and in what a walk's site differs from the one that a page describes."""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from testbed.batchcluster import BatchCluster
from tests.daemons.installing.follow import COMMAND_S, Table, Typist, Walk
from tests.repository import ROOT

SLURM = (ROOT / "docs/tutorial/install-slurm.md").read_text()
GRIDENGINE = (ROOT / "docs/tutorial/install-gridengine.md").read_text()
HOSTS = ("head", "n1", "n2", "images")
WHEELS = "/srv/wheels"
# What pip has to find is there already: machines of walks have no way out.
PIP_CONF = "[global]\nno-index = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n"
CLONE = "'.[service,deploy]'"


def table(packed: str, extras: str, environment: str, words: Mapping[str, str]) -> dict[str, str]:
    """
    A wheel in the place of a clone, the command that makes an environment with what the wheel needs, and
    other words of the page's that are different at a site. pip takes a clone of the same version for a new
    one, but not a wheel.
    """
    wheel = shlex.quote(f"{packed}[{extras}]")
    return {
        f"--upgrade {CLONE}": f"--force-reinstall --no-deps {wheel}",
        CLONE: wheel,
        "python3 -m venv /opt/outrider": environment,
        **words,
    }


def own_environment() -> str:
    """What makes an environment on hosts that see this machine's files, with what that of the tests has."""
    packages = Path("/opt/outrider/lib", Path(sysconfig.get_path("stdlib")).name, "site-packages")
    python = Path(sys.base_prefix, "bin/python3")
    purelib = sysconfig.get_path("purelib")
    return f"{python} -m venv /opt/outrider && echo {purelib} >{packages}/dependencies.pth"


def typist(cluster: BatchCluster) -> Typist:
    """Types on a cluster's hosts; whoever is not a host is a user, on the head."""

    def type_(prompt: str, line: str) -> CompletedProcess[str]:
        host, user = (prompt, "root") if prompt in HOSTS else ("head", prompt)
        return cluster.run(host, ["sh", "-c", line], user=user, check=False, timeout_s=COMMAND_S)

    return type_


def walk(page: str, cluster: BatchCluster, found: Table) -> Walk:
    """Commands without a prompt are the administrator's."""
    return Walk(page, typist(cluster), found, shell_at="head")


def give_wheel(cluster: BatchCluster, wheel: Path, folder: str = "now") -> str:
    """Lay a wheel on the head; where it is there."""
    path = f"{WHEELS}/{folder}/{wheel.name}"
    cluster.write("head", path, wheel.read_bytes())
    cluster.write("head", "/etc/pip.conf", PIP_CONF)
    return path


Trees = Mapping[str, Mapping[str, str]]


def differences(before: Trees, after: Trees) -> list[str]:
    """What is another file, or has another mode or owner, on any host."""
    return [
        f"{host}: {path}: {was} before, {now} now"
        for host in before
        for path in sorted({*before[host], *after[host]})
        if (was := before[host].get(path)) != (now := after[host].get(path))
    ]
