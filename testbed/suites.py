"""Trees of other Debian suites, for the versions of Slurm that this machine does not have."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CACHE = Path(os.environ.get("OUTRIDER_TESTBED_CACHE") or "/var/cache/outrider-testbed")
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libslurm-dev"),
    # What runs beside it: the service with the suite's own Python, its installer, compilers of plugins.
    *(
        "python3",
        "python3-venv",
        "systemd",
        "python3-fastapi",
        "python3-uvicorn",
        "python3-yaml",
        "python3-prometheus-client",
    ),
    *("python3-pydantic", "python3-fabric", "openssh-server", "openssh-client", "openssh-sftp-server"),
    *("gcc", "libc6-dev", "lua5.4", "iproute2", "util-linux", "curl", "procps"),
)
STAMP = "etc/outrider-testbed-packages"
MAKING_S = 1800
ASKING_S = 20
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
}


def tree_of(version: str | None, cache: Path = CACHE) -> Path:
    """The root of a tree that has this version of Slurm, made if it is not there yet."""
    own = version_in(Path("/"))
    if own is not None and (version is None or own.startswith(f"{version}.")):
        return Path("/")
    if version is None:
        raise TestbedError(
            "no Slurm on this machine: apt install slurmctld slurmd slurm-client, or use --version"
        )
    if version not in SUITES:
        raise TestbedError(f"no testbed of Slurm {version}: there are {', '.join(sorted(SUITES))}")
    tree = suite_tree(SUITES[version], cache)
    found = version_in(tree)
    if found is None or not found.startswith(f"{version}."):
        raise TestbedError(
            f"{tree} has Slurm {found}, not {version}: Debian has gone on; remove it, or ask for that"
        )
    return tree


def suite_tree(suite: str, cache: Path = CACHE) -> Path:
    """The root of a tree of this suite, also on a machine that has the suite itself."""
    tree = cache / suite
    with _locked(cache):
        if not tree.exists():
            make(suite, tree)
    if not (tree / STAMP).exists() or (tree / STAMP).read_text().split() != list(PACKAGES):
        raise TestbedError(f"{tree} has not the packages of this testbed: rm -r it, and it is made again")
    return tree


def version_in(tree: Path) -> str | None:
    """Which Slurm a tree has, such as 22.05.8."""
    argv = [*([] if tree == Path("/") else ["chroot", str(tree)]), "/usr/sbin/slurmctld", "-V"]
    if not (tree / "usr/sbin/slurmctld").exists():
        return None
    done = subprocess.run(
        argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=ASKING_S, check=False
    )
    words = done.stdout.split()
    return words[-1] if done.returncode == 0 and words else None


def make(suite: str, tree: Path) -> None:
    """Install a suite beside the place where it will be, and rename it when it is whole."""
    if shutil.which("debootstrap") is None:
        raise TestbedError(f"a tree of {suite} needs debootstrap: apt install debootstrap")
    beside = tree.with_name(f"{suite}.new-{os.getpid()}")
    sys.stderr.write(f"installing Debian {suite} into {tree}: once, some minutes\n")
    beside.mkdir(parents=True)
    try:
        # From the mirror that debootstrap itself takes.
        _told(["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(beside)])
        policy = beside / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        (beside / "etc/dpkg/dpkg.cfg.d/fast").write_text("force-unsafe-io\n")
        shutil.copyfile("/etc/resolv.conf", beside / "etc/resolv.conf")
        # The mounts are of a namespace that ends with the command.
        install = "apt-get -q -y --no-install-recommends install " + " ".join(PACKAGES)
        script = f'mount -t proc proc "$1/proc" && chroot "$1" {install} && chroot "$1" apt-get clean'
        _told(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", str(beside)])
        (beside / STAMP).write_text("\n".join(PACKAGES) + "\n")
        beside.chmod(0o755)
        beside.rename(tree)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """One at a time makes a tree; the others wait and find it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _told(argv: Sequence[str]) -> None:
    done = subprocess.run(
        list(argv),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=MAKING_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-2000:]
        raise TestbedError(f"{' '.join(argv[:4])} … ended with {done.returncode}: {said}")
