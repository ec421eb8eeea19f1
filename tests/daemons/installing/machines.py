"""A private Slurm whose nodes let the head's root in by ssh, as a site's do, with Outrider on the head."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.batchcluster import BatchCluster
from testbed.slurm import SlurmCluster, missing

SSH = Path("/etc/ssh/outrider-testbed")
COMMAND_S = 300
SSHD = """Port 22
HostKey {folder}/host
PidFile none
UsePAM no
AuthorizedKeysFile {folder}/admitted
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
"""


@contextmanager
def site(
    installed: Path,
    nodes: int = 2,
    lines: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    version: str | None = None,
) -> Iterator[SlurmCluster]:
    """A cluster as a site has it before anybody thinks of Outrider; files of /etc/slurm by their name."""
    need_everything()
    given = {f"/etc/slurm/{name}": text for name, text in (files or {}).items()}
    with SlurmCluster(
        nodes=nodes, slurm_conf_lines=lines, files=given, shared=shared_of(installed), version=version
    ) as cluster:
        let_in(cluster)
        link_programs(cluster, installed)
        yield cluster


def shared_of(installed: Path) -> list[Path]:
    """An environment, and that by which it was made: its interpreter and dependencies."""
    found = [installed, *dict.fromkeys(Path(each).resolve() for each in (sys.prefix, sys.base_prefix))]
    return [each for each in found if not each.is_relative_to("/usr")]


def link_programs(cluster: BatchCluster, installed: Path) -> None:
    """As the page of the installation has it."""
    programs = [str(installed / "bin" / name) for name in ("outrider", "outriderd")]
    cluster.run("head", ["ln", "-s", *programs, "/usr/local/bin/"])


def let_in(cluster: BatchCluster) -> None:
    """sshd on every node; the head's root has a key for them and knows theirs."""
    nodes = [each for each in cluster.hosts if each.startswith("n")]
    keys: dict[str, str] = {}
    # A command begins in its user's home.
    cluster.run("head", ["mkdir", "-p", "-m", "700", ".ssh", str(SSH)])
    for name, path in (("host", f"{SSH}/host"), ("client", ".ssh/id_ed25519")):
        cluster.run("head", ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path])
        keys |= {name: cluster.read("head", path), f"{name}.pub": cluster.read("head", f"{path}.pub")}
    known = "".join(f"{node},{cluster.address(node)} {keys['host.pub']}" for node in nodes)
    cluster.write("head", "/etc/ssh/ssh_known_hosts", known)
    for node in nodes:
        cluster.run(node, ["mkdir", "-p", str(SSH), "/run/sshd"])
        for name, text in (
            ("host", keys["host"]), ("admitted", keys["client.pub"]), ("config", SSHD.format(folder=SSH)),
        ):  # fmt: skip
            cluster.write(node, f"{SSH}/{name}", text, mode=0o600)
        cluster.start(node, ["/usr/sbin/sshd", "-D", "-e", "-f", f"{SSH}/config"], name="sshd")


def outrider(
    cluster: SlurmCluster, *words: str, check: bool = True, timeout_s: int = COMMAND_S
) -> subprocess.CompletedProcess[str]:
    """The command on the head, as it was installed there."""
    return cluster.run("head", ["outrider", *words], check=check, timeout_s=timeout_s)


def tree(cluster: BatchCluster, host: str, *folders: str) -> dict[str, str]:
    """Every file below some folders with what tells whether it was changed. Whoever uses podman meanwhile
    leaves a lock there."""
    command = (
        "find \"$@\" -type f -exec sha256sum {} + -o -type l -printf '%l link %p\\n' 2>/dev/null;"
        " find \"$@\" -printf '%m:%U:%G mode %p\\n' 2>/dev/null; true"
    )
    found = cluster.run(host, ["sh", "-c", command, "sh", *folders]).stdout
    lines = [line.split(None, 1) for line in found.splitlines()]
    return {" ".join(words[1:]): words[0] for words in lines if "/etc/cni/" not in words[-1]}


def need_sshd() -> str | None:
    """What is lacking to let root in on nodes."""
    lacking = [name for name in ("sshd", "ssh-keygen") if shutil.which(name) is None]
    return f"{lacking[0]} is not installed" if lacking else None


def need_everything() -> None:
    """Root, Slurm and sshd: where they are missing CI fails, others skip."""
    found = missing() or need_sshd()
    if os.geteuid() != 0:
        found = "this needs root"
    if found:
        if os.environ.get("CI"):
            pytest.fail(found)
        pytest.skip(found)
