"""The parts of a daemon that touch the world, made from its configuration: instances, sources, relay."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import partial

from cachemgr.base.errors import BadRequest, DiskFailed, Unsuitable
from cachemgr.base.rate import RateLimit
from cachemgr.daemon.network.control import NetworkEntrance, listen
from cachemgr.daemon.network.mirror_logins import MirrorLogins
from cachemgr.daemon.network.server import Server
from cachemgr.daemon.verbs.access import may_use
from cachemgr.daemon.verbs.table import VerbTable
from cachemgr.fetch.carrier import FetchCarrier
from cachemgr.fetch.registry.session import RegistrySettings, own_platform
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.programs.rsync import RsyncSettings
from cachemgr.fetch.sources.programs.ssh import SshSettings
from cachemgr.fetch.sources.sources import SourceSettings
from cachemgr.instances.kernel import Kernel
from cachemgr.instances.maker import InstanceMaker
from cachemgr.instances.methods import Abilities
from cachemgr.instances.probing import probe
from cachemgr.network.keys import read_keys
from cachemgr.pool.holdings import PoolHoldings
from cachemgr.pool.layout import disk_errors
from cachemgr.relay.connections import RelaySettings
from cachemgr.relay.machines import NodeConversation
from cachemgr.relay.mirror import MirrorConversation
from cachemgr.relay.mirrored_images import MirroredImages
from cachemgr.relay.server import RelayServer
from cachemgr.relay.tickets import make_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cachemgr.base.clock import Clock
    from cachemgr.config import NodeConfig
    from cachemgr.daemon.log import DaemonLog
    from cachemgr.daemon.metrics import NodeMetrics
    from cachemgr.daemon.node import NodeContext
    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage

TICKET_S = 86_400
MOST_TRIES = 5
PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


def make_maker(config: NodeConfig, pool: ImagePool, log: DaemonLog) -> Maker:
    """What makes instances here, after finding out by trying what this pool's disk allows."""
    kernel, is_root = Kernel(), os.geteuid() == 0
    denied = () if config.mount_squashfs else ("squashfs",)
    try:
        abilities = _tried(pool, kernel if is_root else None, denied)
    except DiskFailed as error:
        # A disk that is full still serves what is on it, by ways that need no trying.
        log.warning("abilities unknown", pool=config.pool, error=error)
        abilities = Abilities(())
    if config.mounts_by_root and not is_root:
        abilities = Abilities(tuple(sorted({*abilities.names, "bind", "overlay", "squashfs"} - {*denied})))
    log.info("pool opened", pool=config.pool, abilities=",".join(abilities.names) or "none")
    made = InstanceMaker(pool.disk, config.pool, abilities=abilities, mounter=kernel, mounts_itself=is_root)
    return PreferringMaker(made, config.methods) if config.methods else made


def _tried(pool: ImagePool, mounter: Kernel | None, denied: tuple[str, ...]) -> Abilities:
    disk, folder = pool.disk, pool.layout.trash(f"probe-{os.getpid()}")
    with disk_errors(f"trying what the disk of {pool.layout.root} can do"):
        for _ in range(MOST_TRIES):
            if disk.exists(folder):
                disk.remove_all(folder)
            disk.make_folder(folder, 0o700)
            # Whoever sweeps the trash at this moment takes it away, which does no harm.
            with suppress(FileNotFoundError):
                abilities = probe(disk, folder, mounter, denied=denied)
                disk.remove_all(folder)
                return abilities
    return Abilities(())


class PreferringMaker:
    """A maker that tries the site's methods in the site's order, and no others."""

    def __init__(self, maker: InstanceMaker, methods: tuple[str, ...]) -> None:
        self._maker = maker
        self._methods = methods
        self.taken_bytes = maker.taken_bytes
        self.make = maker.make
        self.hand_over = maker.hand_over
        self.remove = maker.remove

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        reasons = []
        for method in self._methods:
            if wanted not in (None, method):
                continue
            try:
                return self._maker.choose(image, method, is_writable=is_writable)
            except Unsuitable as error:
                reasons.append(str(error))
        raise Unsuitable(
            "; ".join(reasons) or f"method {wanted} is not among this site's: {', '.join(self._methods)}"
        )


def make_carrier(
    config: NodeConfig, environment: Mapping[str, str], clock: Clock, metrics: NodeMetrics
) -> FetchCarrier:
    """The fetch package with the site's certificates, passwords and keys."""
    proxies = {name: environment[name] for name in PROXIES if name in environment}
    web = WebSettings(ca_file=config.ca_file or None, netrc_file=config.netrc or None, environment=proxies)
    ssh = SshSettings(options=config.ssh_options)
    rsync = RsyncSettings(config.rsync_scratch) if config.rsync_scratch else None
    registries = RegistrySettings(frozenset(config.plain_http), own_platform())
    keys = read_keys(config.relay_key)

    def ticket(digest: str) -> str | None:
        return make_ticket(keys[0], digest, clock.now_s() + TICKET_S) if keys else None

    return FetchCarrier(
        settings=SourceSettings(web=web, ssh=ssh, rsync=rsync, registries=registries),
        clock=clock,
        random=random.Random(),
        ticket=ticket,
        count=lambda scheme, size: metrics.count("outrider_fetched_bytes_total", scheme, by=size),
        least_rate_bytes_per_s=config.least_rate_bytes_per_s,
    )


def make_relay(config: NodeConfig, node: NodeContext) -> RelayServer | None:
    """What passes this node's images on to others, if the site wants that."""
    if not config.relay_listen:
        return None
    if not node.keys and not config.relay_public:
        raise BadRequest("relay_listen without relay_key admits nobody: set relay_key, or relay_public")
    host, _, port = config.relay_listen.rpartition(":")
    settings = RelaySettings(
        host=host.strip("[]"),
        port=int(port),
        keys=node.keys,
        serves_public=config.relay_public,
        most_connections=config.relay_connections,
        most_connections_a_host=config.host_relay_connections,
        most_strangers=config.strangers,
        most_strangers_a_host=max(1, config.strangers * 3 // 4),
        stranger_s=config.stranger_timeout_s,
    )
    holdings = PoolHoldings(node.pool, node.transfers.writer_of)
    try:
        relay = RelayServer(
            holdings,
            settings,
            node.clock,
            node.relay_limit,
            node.log.info,
            lambda line, culprit: node.log.info(line, culprit=culprit or None),
            NodeConversation,
        )
    except OSError as error:
        raise BadRequest(f"the relay cannot listen at {config.relay_listen}: {error.strerror}") from error
    node.log.info("relay serves", address=host, port=relay.port)
    return relay


def make_mirror(config: NodeConfig, node: NodeContext) -> RelayServer | None:
    """What gives images of layers to the container runtimes of this node, if the site wants that."""
    if not config.mirror_listen:
        return None
    host, _, port = config.mirror_listen.rpartition(":")

    def admit(authorization: str) -> Callable[[PoolImage], bool] | None:
        caller = None if node.mirror is None else node.mirror.caller(authorization)
        return None if caller is None else lambda image: may_use(node.pool, caller, image)

    try:
        # All callers have one address here.
        mirror = RelayServer(
            PoolHoldings(node.pool, node.transfers.writer_of),
            RelaySettings(
                host=host.strip("[]"),
                port=int(port),
                most_connections=config.relay_connections,
                most_connections_a_host=config.relay_connections,
                most_strangers=config.strangers,
                most_strangers_a_host=config.strangers,
                stranger_s=config.stranger_timeout_s,
            ),
            node.clock,
            RateLimit(None, node.clock),
            node.log.debug,
            talk=partial(MirrorConversation, MirroredImages(node.pool), admit),
        )
    except OSError as error:
        raise BadRequest(f"the mirror cannot listen at {config.mirror_listen}: {error.strerror}") from error
    node.mirror = MirrorLogins(f"{host}:{mirror.port}", node.clock)
    node.log.info("mirror serves", address=host, port=mirror.port)
    return mirror


def make_control(config: NodeConfig, node: NodeContext) -> Server | None:
    """What lets other machines control this node, if the site wants that."""
    if not config.control_listen:
        return None
    if not node.keys:
        raise BadRequest("control_listen without relay_key admits nobody: set relay_key")
    entrance = NetworkEntrance(
        node.keys,
        node=config.node,
        service_uid=os.geteuid(),
        clock=node.clock,
        log=node.log,
        strangers=config.strangers,
        handshake_s=config.stranger_timeout_s,
    )
    node.shared += [entrance.strangers]
    listener = listen(config.control_listen)
    host, port = listener.getsockname()[:2]
    node.log.info("control serves", address=host, port=port, keys=len(node.keys))
    return Server(listener, VerbTable(node), entrance, clock=node.clock, log=node.log)
