"""What the service is really made of: the desk, the batch systems it knows, and the outer world."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cachemgr.base.clock import SystemClock
from cachemgr.base.clock_offset import StoredOffset
from cachemgr.base.disk import RealDisk, drop_drafts
from cachemgr.base.steady import SteadyClock
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.metadata.external import ask, program_runner
from outrider.metadata.policies import Policies
from outrider.rms.base import RmsError, RmsNode
from outrider.rms.embedded import EmbeddedSystem, JobMachines, ProcessLauncher
from outrider.rms.twin import Twin
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import BackendError
from outrider.service.daemon.life import Providers
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.threads.loop import DeskLike
from outrider.service.daemon.world.catalogue import catalogue_of
from outrider.service.daemon.world.cluster import CLUSTERS, ClusterBackend, make_cluster
from outrider.service.daemon.world.head_images import HeadImages
from outrider.service.daemon.world.world import World
from outrider.service.desk.batch.reservation_effects import carry_out
from outrider.service.desk.desk import Desk
from outrider.service.images.catalogue import Catalogue
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.meter import Meter
from outrider.service.nodes.embedded import EmbeddedNodes
from outrider.service.nodes.hooks import PoolHooks
from outrider.service.nodes.promised import Ceiling, Promised
from outrider.service.nodes.virtual import EmbeddedError, Shape
from outrider.service.ports import AskProgram
from outrider.service.settings import Settings
from outrider.store.store import Store


def real_providers() -> Providers:
    clock = SystemClock()

    def ask_program(call: AskProgram) -> Allowed | PolicyRefusal:
        run = program_runner(clock.monotonic_s)
        return ask(call.external, call.workspace, call.who, run, now_s=clock.now_s())

    return Providers(
        make_backend=make_backend, make_desk=make_desk, carry_effect=carry_out, ask_program=ask_program
    )


def make_desk(
    store: Store,
    settings: Settings,
    policies: Policies,
    now_s: int,
    *,
    batch_system: str,
    log: TracingLog,
    meter: Meter,
) -> DeskLike:
    return Desk(store, settings, policies, now_s, log=log, meter=meter, batch_system=batch_system)


def make_backend(
    config: Config, log: TracingLog, environment: Mapping[str, str]
) -> VirtualBackend | ClusterBackend:
    """The world that the configuration names. Raises InputError or BackendError; nothing runs yet."""
    clock = _steady_clock(config)
    promised = Promised()
    head_images = HeadImages(config, clock, log, promised)
    catalogue = catalogue_of(config, head_images.source_of)
    drop_drafts(RealDisk(), os.path.realpath(config.state))
    ceiling = Ceiling(config.limits.image_bytes, config.pools.size_bytes)
    resolver = _resolver(config, catalogue, ceiling, clock, head_images)
    if config.backend.kind in CLUSTERS:
        return make_cluster(config.backend, catalogue, resolver, promised, log, ceiling, clock, head_images)
    return _virtual(config, clock, catalogue, resolver, promised, log, environment, ceiling, head_images)


def _resolver(
    config: Config, catalogue: Catalogue, ceiling: Ceiling, clock: SteadyClock, head_images: HeadImages
) -> Resolver:
    hashes = Hashes(
        Path(config.state) / "hashes.json",
        clock,
        hash_s=config.timings.reading_s,
        rate_bytes_per_s=config.limits.reading_rate_bytes_per_s,
    )
    return Resolver(
        open_as=opener(),
        hashes=hashes,
        clock=clock,
        catalogue=catalogue,
        registry_settings=head_images.registries,
        most_bytes=ceiling,
        limit_s=config.timings.lookup_s,
        converter=head_images.converter,
        logins=head_images.logins,
        buckets=head_images.buckets,
        tokens=head_images.tokens,
        site_logins=head_images.site_logins,
    )


def _steady_clock(config: Config) -> SteadyClock:
    """This machine's clock, by the rule of the loop's own, which says what becomes of it."""
    timings = config.timings
    return SteadyClock(
        SystemClock(),
        step_s=timings.clock_step_s,
        doubt_s=timings.clock_doubt_s,
        offset_store=StoredOffset(config.clock_path),
    )


def _virtual(
    config: Config,
    clock: SteadyClock,
    catalogue: Catalogue,
    resolver: Resolver,
    promised: Promised,
    log: TracingLog,
    environment: Mapping[str, str],
    ceiling: Ceiling,
    head_images: HeadImages,
) -> VirtualBackend:
    section = config.backend
    folder = Path(config.backend_folder)
    for each in (folder, folder / "nodes", *(folder / "nodes" / name for name in section.virtual_nodes)):
        drop_drafts(RealDisk(), os.path.realpath(each))
    try:
        nodes = EmbeddedNodes(
            folder / "nodes",
            section.virtual_nodes,
            Shape(
                limit_bytes=section.pool_bytes,
                rate_bytes_per_s=section.rate_bytes_per_s,
                user_percent=section.user_percent,
                users_percent=section.users_percent,
                plain_http=config.registries.plain_http,
            ),
            clock=clock,
            log=log,
            environment=environment,
            catalogue=catalogue,
            machines=folder / "machines" if config.jobs.machines else None,
        )
    except EmbeddedError as error:
        raise BackendError(str(error)) from error
    hooks = PoolHooks(nodes.sockets, promised, clock=clock, log=log)
    rms = _batch_system(config, clock, log, hooks)
    world = World(
        rms=rms,
        nodes=nodes,
        resolve=resolver,
        promised=promised,
        ceiling=ceiling,
        logins=head_images.logins,
    )
    return VirtualBackend(nodes, rms, world, head_images)


def _batch_system(
    config: Config, clock: SteadyClock, log: TracingLog, hooks: PoolHooks
) -> EmbeddedSystem | Twin:
    section = config.backend
    nodes = [RmsNode(name=name, capacity=section.capacity) for name in section.virtual_nodes]
    if section.kind == "twin":
        return Twin(nodes, clock=clock)
    folder = Path(config.backend_folder)
    try:
        for each in (folder, folder / "jobs"):
            each.mkdir(mode=0o711, parents=True, exist_ok=True)
        machines = JobMachines(folder / "machines", Path(section.boot)) if config.jobs.machines else None
        if machines is not None:
            machines.prepare()
        return EmbeddedSystem(
            nodes,
            folder / "jobs.json",
            clock=clock,
            launcher=ProcessLauncher(folder / "jobs"),
            log=log,
            hooks=hooks.as_hooks(),
            machines=machines,
            jobs_on_a_processor=section.jobs_on_a_processor,
        )
    except (RmsError, OSError) as error:
        raise BackendError(f"the batch system in {folder} cannot begin: {error}") from error


class VirtualBackend:
    """Nodes with real pools on this machine, and a batch system in this process."""

    def __init__(
        self, nodes: EmbeddedNodes, rms: EmbeddedSystem | Twin, world: World, head_images: HeadImages
    ) -> None:
        self._head_images = head_images
        self._nodes = nodes
        self._rms = rms
        self._world = world

    @property
    def world(self) -> World:
        return self._world

    def start(self) -> None:
        self._head_images.start(())
        try:
            self._nodes.start()
        except EmbeddedError as error:
            raise BackendError(str(error)) from error
        if isinstance(self._rms, EmbeddedSystem):
            self._rms.start()

    def stop(self) -> None:
        """End the nodes' daemons. Jobs go on, and the next service finds them."""
        self._head_images.stop()
        if isinstance(self._rms, EmbeddedSystem):
            self._rms.stop()
        self._nodes.stop()
