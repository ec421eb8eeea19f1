"""The pages that walks follow, and in what a walk's site differs from the one that a page describes."""

from __future__ import annotations

import hashlib
import io
import sys
import sysconfig
import tarfile
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
VENV = "python3 -m venv /opt/outrider"
VERSION = "outrider-VERSION"
"""What the pages call the archive's folder; the archive has the same name and more."""


def table(archive: str, words: Mapping[str, str], environment: str = VENV) -> dict[str, str]:
    """
    Where the archive is, the command that makes an environment, and other words of the page's that are
    different at a site. What is there in the same version already pip would leave as it is; one with what
    the tests have has Outrider, too.
    """
    again = (
        {} if environment == VENV else {"pip install --no-index": "pip install --force-reinstall --no-index"}
    )
    return {
        **again,
        f"{VERSION}-wheels.tar": archive,
        VERSION: Path(archive).name.removesuffix("-wheels.tar"),
        "--upgrade --no-index": "--force-reinstall --no-index",
        VENV: environment,
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


def give_archive(cluster: BatchCluster, archive: Path, folder: str = "now") -> str:
    """Lay the release's archive on the head; where it is there. A wheel is made an archive of its own."""
    name, content = archive.name, b""
    if archive.suffix == ".whl":
        name, content = f"outrider-{archive.name.split('-')[1]}-wheels.tar", _archive_of(archive)
    path = f"{WHEELS}/{folder}/{name}"
    cluster.write("head", path, content or archive.read_bytes())
    cluster.write("head", "/etc/pip.conf", PIP_CONF)
    return path


def _archive_of(wheel: Path) -> bytes:
    """What the wheel needs is in no archive, but in the environment that it is installed into."""
    made, version = io.BytesIO(), wheel.name.split("-")[1]
    top, digest = f"outrider-{version}", hashlib.sha256(wheel.read_bytes()).hexdigest()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(wheel, f"{top}/{wheel.name}")
        listed = tarfile.TarInfo(f"{top}/requirements.txt")
        text = f"outrider=={version} --hash=sha256:{digest}\n".encode()
        listed.size = len(text)
        tar.addfile(listed, io.BytesIO(text))
    return made.getvalue()


Trees = Mapping[str, Mapping[str, str]]


# What tools for users leave beside the files that they change.
COPIES = ("-", "/.pwd.lock")


def differences(before: Trees, after: Trees) -> list[str]:
    """What is another file, or has another mode or owner, on any host."""
    return [
        f"{host}: {path}: {was} before, {now} now"
        for host in before
        for path in sorted({*before[host], *after[host]})
        if (was := before[host].get(path)) != (now := after[host].get(path)) and not path.endswith(COPIES)
    ]
