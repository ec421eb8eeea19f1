"""Slurm's accounting on a private cluster: Debian's daemon and database, unpacked by `make integrations`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.batchcluster import HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.slurm import SlurmCluster

DEBIAN = Path(__file__).resolve().parents[1] / "build/accounting"
LIBRARIES = DEBIAN / "usr/lib/x86_64-linux-gnu"
FOLDER = "/var/lib/accounting"
CLUSTER = "testbed"
SLURMDBD = f"""\
AuthType=auth/munge
DbdHost={HEAD}
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3307
StorageUser=root
StorageLoc=accounting
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm:{LIBRARIES}/slurm-wlm
"""
LINES = ("AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={HEAD}")
DATABASE = (
    f"mkdir -p {FOLDER}/db && exec {DEBIAN}/usr/sbin/mariadbd --no-defaults --skip-grant-tables --user=root "
    f"--datadir={FOLDER}/db --socket={FOLDER}/db.sock --port=3307 --bind-address=127.0.0.1 "
    f"--lc-messages-dir={DEBIAN}/usr/share/mysql"
)
ADD = f"sacctmgr -i add cluster {CLUSTER} >/dev/null 2>&1; sacctmgr -n list cluster format=cluster"


def missing() -> str | None:
    """What this machine lacks for it; None if it lacks nothing."""
    if not (DEBIAN / "usr/sbin/slurmdbd").exists():
        return "slurmdbd and MariaDB are not unpacked: make integrations"
    return None


def begin(cluster: SlurmCluster, slurm_conf_lines: Sequence[str]) -> None:
    """Let a cluster without jobs account from now on; the lines are those that it has already."""
    libraries = {"LD_LIBRARY_PATH": str(LIBRARIES)}
    cluster.start(HEAD, ["/bin/sh", "-c", DATABASE], name="mariadbd", environment=libraries)
    database = ["test", "-S", f"{FOLDER}/db.sock"]
    cluster.wait_for(
        "the database",
        lambda: cluster.run(HEAD, database, check=False).returncode == 0,
        logs=lambda: cluster.log(HEAD, "mariadbd"),
    )
    cluster.write(HEAD, "/etc/slurm/slurmdbd.conf", SLURMDBD, mode=0o600, owner="slurm:slurm")
    slurmdbd = [f"{DEBIAN}/usr/sbin/slurmdbd", "-D"]
    cluster.start(HEAD, slurmdbd, name="slurmdbd", environment=libraries)
    cluster.reconfigure([*slurm_conf_lines, *LINES])
    cluster.wait_for(
        "slurmdbd to know the cluster",
        lambda: CLUSTER in cluster.run(HEAD, ["/bin/sh", "-c", ADD], check=False).stdout,
        logs=lambda: cluster.log(HEAD, "slurmdbd"),
    )
    # slurmctld reads where its accounting is when it begins, and not when it is told to read anew.
    cluster.restart_slurmctld()
    cluster.wait_for("the nodes to register", lambda: cluster.are_up(cluster.nodes), logs=cluster.logs)
