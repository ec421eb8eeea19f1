"""A cluster as the service's world: an installed batch system, and nodes on other machines."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from cachemgr.base.errors import CacheError
from cachemgr.base.steady import SteadyClock
from cachemgr.network.keys import read_keys
from outrider.rms.base import BatchSystem
from outrider.rms.commands import PATH, Account, Output, Runner, account_of, run_process
from outrider.rms.reachability import port_of
from outrider.service.daemon.configuration.backend import BackendSection
from outrider.service.daemon.errors import BackendError
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.signing import signer
from outrider.service.daemon.world.head_images import HeadImages
from outrider.service.daemon.world.world import World
from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.promised import Ceiling, Promised
from outrider.service.nodes.remote import Addresses, RemoteNodes
from outrider.service.ports import Resolve

GRIDENGINE_COMMANDS = (
    "qconf",
    "qstat",
    "qhost",
    "qselect",
    "qsub",
    "qalter",
    "qrls",
    "qmod",
    "qdel",
    "qrsub",
    "qrdel",
    "qrstat",
)
SLURM_COMMANDS = ("scontrol", "squeue", "sinfo", "sbatch", "scancel")


class ClusterBackend:
    """Nothing of it runs in this process but connections to nodes."""

    def __init__(
        self, nodes: RemoteNodes, world: World, head_images: HeadImages, keys: Sequence[bytes]
    ) -> None:
        self._head_images = head_images
        self._keys = keys
        self._nodes = nodes
        self._world = world

    @property
    def world(self) -> World:
        return self._world

    def start(self) -> None:
        """Whether the batch system and the nodes answer is seen by whoever asks them, and may change."""
        self._head_images.start(self._keys)

    def stop(self) -> None:
        self._head_images.stop()
        self._nodes.close()


def make_cluster(
    section: BackendSection,
    catalogue: Catalogue,
    resolve: Resolve,
    promised: Promised,
    log: TracingLog,
    ceiling: Ceiling,
    clock: SteadyClock,
    head_images: HeadImages,
) -> ClusterBackend:
    """Raises BackendError if something is missing on this machine.

    Only the batch system of this site is imported.
    """
    rms = CLUSTERS[section.kind](section, clock, log)
    try:
        keys = read_keys(section.key)
    except CacheError as error:
        raise BackendError(f"{error}; `outrider init {section.kind}` makes one") from error
    addresses = Addresses(control_port=section.control_port, relay_port=section.relay_port)
    nodes = RemoteNodes(addresses, keys, clock=clock, catalogue=catalogue)
    world = World(
        rms=rms,
        nodes=nodes,
        resolve=resolve,
        promised=promised,
        sign=signer(keys[0]),
        ceiling=ceiling,
        logins=head_images.logins,
    )
    return ClusterBackend(nodes, world, head_images, keys)


def _slurm(section: BackendSection, clock: SteadyClock, log: TracingLog) -> BatchSystem:
    from outrider.rms import slurm

    path = _path("slurm", section.slurm.commands, SLURM_COMMANDS)
    commands = slurm.SlurmCommands(
        run_process, configuration=section.slurm.conf or "", path=path, own_uid=os.geteuid()
    )
    return slurm.SlurmHolders(
        commands, clock=clock, log=log, account_of=account_of, shown=section.nodes or (),
        shows_start=section.slurm.expected_start,
        core_cpus=section.slurm.core_cpus or 0,
    )  # fmt: skip


def _gridengine(section: BackendSection, clock: SteadyClock, log: TracingLog) -> BatchSystem:
    from outrider.rms import gridengine

    found = section.gridengine
    variables = {
        "PATH": _path("gridengine", found.commands, GRIDENGINE_COMMANDS),
        "SGE_ROOT": found.root,
        "SGE_CELL": found.cell,
    }
    commands = gridengine.GridEngineCommands(
        _as_account(found.account, _by_drmaa(found.drmaa, clock, log) if found.drmaa else run_process),
        variables=variables,
        own_uid=os.geteuid(),
        told=lambda lost: log.warning("grid engine printed invalid xml", lost=lost),
    )
    settings = gridengine.GridEngineSettings(
        account=found.account,
        work_queue=found.work_queue,
        reservation_queue=found.reservation_queue,
        parts_queue=found.parts_queue or "",
        environments=found.environments,
        checkpoint=found.checkpoint or "",
        duration_offset_s=found.duration_offset_s,
    )
    port = port_of(os.environ, "SGE_EXECD_PORT", "sge_execd", gridengine.EXECD_PORT)
    return gridengine.GridEngineHolders(
        settings,
        commands,
        clock=clock,
        shown=section.nodes or (),
        execd_port=port,
        warn=lambda words: log.warning("machine is saved", words=words),
    )


def _by_drmaa(library: str, clock: SteadyClock, log: TracingLog) -> Runner:
    """What runs commands, and submits and ends jobs by a library. Raises BackendError if it is not there."""
    from outrider.rms.gridengine.drmaa_runner import DrmaaRunner

    if not os.access(library, os.R_OK):
        raise BackendError(
            f"there is no library {library}: install gridengine-drmaa1.0 (so Debian calls it), or leave "
            "backend.gridengine.drmaa out"
        )
    if find_spec("drmaa") is None:
        raise BackendError(
            f"{sys.executable} has no module drmaa, which backend.gridengine.drmaa needs: install "
            "python3-drmaa (so Debian calls it), or drmaa with pip"
        )
    return DrmaaRunner(
        run_process,
        library,
        clock=clock,
        told=lambda words: log.warning("jobs are submitted by qsub for a while", words=words),
    )


def _as_account(name: str, run: Runner) -> Runner:
    """What runs commands as the account whose reservations they are, if the service itself is root."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise BackendError(
            f"there is no user {name} here: make it, or name another one in backend.gridengine.account"
        ) from error
    if os.geteuid() not in (0, entry.pw_uid):
        raise BackendError(f"the service has to run as root, or as {name}, who owns the reservations")
    own = account_of(name, entry.pw_uid) if entry.pw_uid != os.geteuid() else None

    def run_as(
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        as_whom = own if account is None else account
        return run(argv, environment=environment, timeout_s=timeout_s, text=text, account=as_whom)

    return run_as


def _path(kind: str, folder: str, wanted: Sequence[str]) -> str:
    """Where commands are looked for. Raises BackendError if one is not there."""
    path = f"{folder}:{PATH}"
    missing = [name for name in wanted if shutil.which(name, path=path) is None]
    if missing:
        raise BackendError(
            f"there is no {', '.join(missing)} in {folder}: install the commands on this machine, or say in "
            f"backend.{kind}.commands where they are"
        )
    return path


CLUSTERS: dict[str, Callable[[BackendSection, SteadyClock, TracingLog], BatchSystem]] = {
    "gridengine": _gridengine,
    "slurm": _slurm,
}
"""The batch systems of clusters, by `backend.kind`. Only the one that is configured is imported."""
