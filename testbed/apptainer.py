"""A real Apptainer: this machine's, or one of Debian sid in a tree over that of the testbed's versions.

Debian 12 has none. The tree of sid (`make test-versions` makes it) stays as it is: what Apptainer needs is
installed once into a folder beside it that lies over it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from testbed.suites import CACHE, ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PACKAGES = "apptainer oras squashfuse"
PLACE = CACHE / "sid-apptainer"
TREE = CACHE / "sid"
# In a mount namespace of its own, so that nothing is left mounted. Apptainer does not run in a chroot.
INSTALLING = f"""
set -e
cd "$1"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" root
mount -t proc proc root/proc
mount --rbind /dev root/dev
cp /etc/resolv.conf root/etc/resolv.conf
install="chroot root apt-get -q -y --no-install-recommends install {PACKAGES}"
$install || {{ chroot root apt-get -q -o Acquire::Check-Valid-Until=false update; $install; }}
echo '{PACKAGES}' >installed
"""
# Several at once: nobody writes to the tree.
RUNNING = """
set -e
cd "$1"
# As udev would leave it: some machines let only root open it.
[ -e fuse ] || mknod -m 666 fuse c 10 229 || [ -e fuse ]
mount -t overlay overlay -o "lowerdir=$1/upper:$2" root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount --bind fuse root/dev/fuse
mount -t tmpfs -o mode=1777 tmpfs root/tmp
mount -t tmpfs tmpfs root/mnt
mkdir root/mnt/outside
if [ -d "$3" ]; then
  mkdir root/tmp/folder
  mount --rbind "$3" root/tmp/folder
else
  touch root/tmp/image
  mount --bind "$3" root/tmp/image
  mount -o remount,bind,ro root/tmp/image
fi
cd root
pivot_root . mnt/outside
umount -l /mnt/outside
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp PATH=/usr/bin:/bin "$@"
"""


def installed() -> str:
    """Install it if need be; why there is none, if so."""
    if shutil.which("apptainer") is not None:
        return ""
    if os.geteuid() != 0 or not TREE.exists():
        return "needs apptainer, or root and Debian sid in the testbed's cache: make test-versions"
    PLACE.mkdir(exist_ok=True)
    with (PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if _has_all() else _install()


def _has_all() -> bool:
    try:
        return (PLACE / "installed").read_text().split() == PACKAGES.split()
    except OSError:
        return False


def running(given: Path, program: str, words: Sequence[str]) -> list[str]:
    """An ordinary user's command in Apptainer's tree; a folder is /tmp/folder there, a file /tmp/image."""
    return _namespaced(RUNNING, str(PLACE), str(TREE), str(given), program, *words)


def _install() -> str:
    for name in ("upper", "work", "root"):
        # More comes to what an earlier installation has put there; of a broken one nothing stays.
        if not (PLACE / "installed").exists():
            shutil.rmtree(PLACE / name, ignore_errors=True)
        (PLACE / name).mkdir(exist_ok=True)
    done = subprocess.run(
        _namespaced(INSTALLING, str(PLACE), str(TREE)),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return "" if done.returncode == 0 else f"needs Apptainer of Debian sid: {done.stderr[-300:]}"


def _namespaced(script: str, *words: str) -> list[str]:
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *words]
