"""A private Slurm that keeps accounts, by Debian's slurmdbd on Debian's MariaDB."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons.slurm.filter.conftest import able
from tests.daemons.slurm.filter.slurm_site import PATH, Site, site
from tests.needs import lacking
from tests.repository import ROOT

DEBIAN = ROOT / "build/accounting"
LIBRARIES = DEBIAN / "usr/lib/x86_64-linux-gnu"
DATABASE = (
    "exec {debian}/usr/sbin/mariadbd --no-defaults --skip-grant-tables --user=root --datadir={folder}/db "
    "--socket={folder}/db.sock --port=3307 --bind-address=127.0.0.1 "
    "--lc-messages-dir={debian}/usr/share/mysql >{folder}/db.log 2>&1"
)
DAEMON = "exec {debian}/usr/sbin/slurmdbd -D >{folder}/slurmdbd.out 2>&1"
CONTROLLER = "exec slurmctld -D -f {folder}/slurm.conf >{folder}/state/again 2>&1"
SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
SlurmUser=daemon
LogFile={folder}/state/slurmdbd.log
PidFile={folder}/state/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3307
StorageUser=root
StorageLoc=accounting
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm:{libraries}/slurm-wlm
"""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass={folder}/munge/socket
AccountingStoreFlags=job_comment
DebugFlags=NO_CONF_HASH
"""
SOON_S = 60


def started(slurm: Site, stack: ExitStack, command: str) -> None:
    """A daemon inside; it ends with the namespaces."""
    text = command.format(debian=DEBIAN, folder=slurm.folder)
    known = {
        "PATH": PATH,
        "LD_LIBRARY_PATH": str(LIBRARIES),
        "SLURM_CONF": f"{slurm.folder}/slurm.conf",
    }
    process = stack.enter_context(
        subprocess.Popen(slurm.command(["sh", "-c", text]), stdin=subprocess.DEVNULL, env=known)
    )
    stack.callback(process.kill)


def until_there(slurm: Site, path: Path) -> None:
    by_s = slurm.clock.monotonic_s() + SOON_S
    while not path.exists():
        assert slurm.clock.monotonic_s() < by_s, f"{path} is not there\n{slurm.logs()}"
        slurm.clock.sleep(0.1)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Site]:
    able()
    if not (DEBIAN / "usr/sbin/slurmdbd").exists():
        lacking("slurmdbd and MariaDB are not unpacked (make integrations, which needs Debian's archive)")
    with site() as made, ExitStack() as stack:
        folder = made.folder
        (folder / "db").mkdir()
        started(made, stack, DATABASE)
        until_there(made, folder / "db.sock")
        configuration = folder / "slurmdbd.conf"
        configuration.write_text(SLURMDBD.format(folder=folder, libraries=LIBRARIES))
        configuration.chmod(0o600)
        os.chown(configuration, 1, 1)
        started(made, stack, DAEMON)
        with (folder / "slurm.conf").open("a") as file:
            file.write(ACCOUNTING.format(folder=folder))
        add = "sacctmgr -i add cluster filter; sacctmgr -n list cluster format=cluster"
        made.until("filter\n", "sh", "-c", f"{add} | tr -d ' '")
        # It reads where its accounting is when it begins, and not when it is told to read anew.
        made.run("sh", "-c", f"kill $(cat {folder}/state/slurmctld.pid)", uid=0)
        started(made, stack, CONTROLLER)
        made.until("idle", "sinfo", "-h", "-o", "%t")
        yield made
