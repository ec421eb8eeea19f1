"""A cluster as the service's world: an installed batch system, and nodes on other machines."""

from __future__ import annotations

import os
import shutil

from cachemgr.clock import SystemClock
from cachemgr.errors import CacheError
from cachemgr.keys import read_keys
from outrider.rms.commands import PATH, account_of, run_process
from outrider.rms.slurm import Commands, SlurmSystem
from outrider.service.daemon.backendconfig import BackendSection
from outrider.service.daemon.catalogued import CataloguedNodes
from outrider.service.daemon.errors import BackendError
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.signing import signer
from outrider.service.images import Catalogue
from outrider.service.nodes.remote import Addresses, RemoteNodes
from outrider.service.ports import Promised, Resolve, World

COMMANDS = ("scontrol", "squeue", "sinfo", "sbatch", "scancel")


class ClusterBackend:
    """Nothing of it runs in this process but connections to nodes."""

    def __init__(self, nodes: RemoteNodes, world: World) -> None:
        self._nodes = nodes
        self._world = world

    @property
    def world(self) -> World:
        return self._world

    def start(self) -> None:
        """Whether the batch system and the nodes answer is seen by whoever asks them, and may change."""

    def stop(self) -> None:
        self._nodes.close()


def make_cluster(
    section: BackendSection, catalogue: Catalogue, resolve: Resolve, promised: Promised, log: TracingLog
) -> ClusterBackend:
    """Raises BackendError if something is missing on this machine."""
    clock = SystemClock()
    path = f"{section.slurm.commands}:{PATH}"
    missing = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    if missing:
        raise BackendError(
            f"there is no {', '.join(missing)} in {section.slurm.commands}: install Slurm's commands on this "
            "machine, or say in backend.slurm.commands where they are"
        )
    try:
        keys = read_keys(section.key)
    except CacheError as error:
        raise BackendError(f"{error}; `outrider init slurm` makes one") from error
    commands = Commands(run_process, configuration=section.slurm.conf or "", path=path, own_uid=os.geteuid())
    rms = SlurmSystem(commands, clock=clock, log=log, account_of=account_of, shown=section.nodes or ())
    addresses = Addresses(control_port=section.control_port, relay_port=section.relay_port)
    nodes = RemoteNodes(addresses, keys, clock=clock)
    world = World(
        rms=rms,
        nodes=CataloguedNodes(nodes, catalogue),
        resolve=resolve,
        promised=promised,
        sign=signer(keys[0]),
    )
    return ClusterBackend(nodes, world)
