"""A real Apptainer: this machine's, or one of Debian sid in a tree over that of the testbed's versions.

Debian 12 has none. The tree of sid (`make test-versions` makes it) stays as it is: what Apptainer needs is
installed once into a folder beside it that lies over it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.suites import CACHE, ENVIRONMENT

PACKAGES = "apptainer squashfuse"
PLACE = CACHE / "sid-apptainer"
# In a mount namespace of its own, so that nothing is left mounted. Apptainer does not run in a chroot.
MOUNTED = """
set -e
cd "$1"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" root
mount -t proc proc root/proc
mount --rbind /dev root/dev
"""
INSTALLING = f"""
cp /etc/resolv.conf root/etc/resolv.conf
install="chroot root apt-get -q -y --no-install-recommends install {PACKAGES}"
$install || {{ chroot root apt-get -q -o Acquire::Check-Valid-Until=false update; $install; }}
touch installed
"""
RUNNING = """
mkdir -p root/outside root/tmp
touch root/tmp/image
# As udev would leave it: some machines let only root open it.
[ -e root/run/fuse ] || mknod -m 666 root/run/fuse c 10 229
mount --bind root/run/fuse root/dev/fuse
mount --bind "$3" root/tmp/image
mount -o remount,bind,ro root/tmp/image
cd root
pivot_root . outside
umount -l /outside
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp PATH=/usr/bin:/bin "$@"
"""


@dataclass(frozen=True)
class ApptainerTree:
    """Runs Apptainer as an ordinary user. Without a `tree` it is this machine's."""

    tree: Path | None

    def run(self, image: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        if self.tree is None:
            argv = ["apptainer", verb, str(image), *words]
        else:
            told = ["apptainer", verb, "/tmp/image", *words]
            argv = _namespaced(MOUNTED + RUNNING, str(PLACE), str(self.tree), str(image), *told)
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="session")
def apptainer() -> ApptainerTree:
    if shutil.which("apptainer") is not None:
        return ApptainerTree(None)
    tree = CACHE / "sid"
    if os.geteuid() != 0 or not tree.exists():
        pytest.skip("needs apptainer, or root and Debian sid in the testbed's cache: make test-versions")
    PLACE.mkdir(exist_ok=True)
    with (PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / "installed").exists():
            _install(tree)
    return ApptainerTree(tree)


def _install(tree: Path) -> None:
    for name in ("upper", "work", "root"):
        shutil.rmtree(PLACE / name, ignore_errors=True)
        (PLACE / name).mkdir()
    done = subprocess.run(
        _namespaced(MOUNTED + INSTALLING, str(PLACE), str(tree)),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Apptainer of Debian sid cannot be installed here: {done.stderr[-300:]}")


def _namespaced(script: str, *words: str) -> list[str]:
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-ec", script, "sh", *words]
