"""The daemon's life: put together, serve, and stop in good order when told to.

It serves before it has looked around: a hit needs no index, and whoever waits in a prolog
does not wait for the sweeping up of what a crash left.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import dataclass

from cachemgr.carrier import FetchCarrier
from cachemgr.clock import SystemClock
from cachemgr.daemon import peer
from cachemgr.daemon.access import Holders
from cachemgr.daemon.adding import resume
from cachemgr.daemon.listener import Place
from cachemgr.daemon.log import Log
from cachemgr.daemon.metrics import CountedIndex, Metrics
from cachemgr.daemon.node import Node
from cachemgr.daemon.notify import Supervisor, inherited_listener, watchdog_s
from cachemgr.daemon.server import Server
from cachemgr.daemon.timer import Timer
from cachemgr.daemon.transfers import Transfers
from cachemgr.daemon.verbs import Dispatcher
from cachemgr.disk import RealDisk
from cachemgr.errors import BadRequest, CacheError, Unsuitable
from cachemgr.fetch.connect import WebSettings
from cachemgr.fetch.rate import RateLimit
from cachemgr.fetch.sources import Settings
from cachemgr.instances.kernel import Kernel
from cachemgr.instances.maker import InstanceMaker
from cachemgr.instances.probing import probe
from cachemgr.layout import Layout, disk_errors
from cachemgr.pool import Pool
from cachemgr.relay.tickets import make_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from cachemgr.bring import Carrier
    from cachemgr.clock import Clock
    from cachemgr.config import Config
    from cachemgr.instance_book import Maker
    from cachemgr.records import Image

STOP_TRANSFERS_S = 5.0
STOP_SERVING_S = 2.0
TICKET_S = 86_400
MOST_KEY_BYTES = 4096
PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


@dataclass
class Daemon:
    """Everything that lives while the daemon does."""

    node: Node
    timer: Timer

    def resume_ingests(self) -> None:
        """Go on with what was arriving when the last daemon died, if somebody still wants it."""
        for ingest in self.node.pool.ingests():
            resume(self.node, ingest)


def run(config: Config, environment: Mapping[str, str], stream: TextIO) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    log = Log(stream, level=config.log_level, is_journal="JOURNAL_STREAM" in environment)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopping.set())
    try:
        serve(config, environment, log, stopping)
    except CacheError as error:
        log.error("daemon failed", error=error)
        return error.exit_code
    return 0


def serve(
    config: Config,
    environment: Mapping[str, str],
    log: Log,
    stopping: threading.Event,
    make: Callable[..., Daemon] | None = None,
) -> None:
    """The daemon from the first lock to the last; returns after `stopping` was set."""
    place = Place(config.socket)
    try:
        if config.user:
            become(config.user)
        daemon = (make or put_together)(config, environment, log)
        node, supervisor = daemon.node, Supervisor(environment)
        listener = inherited_listener(environment) or place.listen()
        server = Server(listener, Dispatcher(node), service_uid=os.geteuid(), clock=node.clock, log=log)
        server.start()
        supervisor.tell("READY=1")
        log.info("daemon serves", socket=config.socket, pool=config.pool, pid=os.getpid())
        daemon.timer.start()
        daemon.resume_ingests()
        _watch(stopping, supervisor, watchdog_s(environment, config.watchdog_s))
        supervisor.tell("STOPPING=1")
        log.info("daemon stops", transfers=node.transfers.counts()["running"])
        node.transfers.stop(STOP_TRANSFERS_S)
        server.stop(STOP_SERVING_S)
        daemon.timer.stop(STOP_SERVING_S)
        node.pool.close()
        log.info("daemon stopped")
    finally:
        place.leave()


def put_together(
    config: Config,
    environment: Mapping[str, str],
    log: Log,
    *,
    clock: Clock | None = None,
    carrier: Carrier | None = None,
    maker: Maker | None = None,
) -> Daemon:
    """The parts of a daemon, connected; nothing runs yet."""
    clock = clock or SystemClock()
    metrics = Metrics()
    index = CountedIndex(Layout(config.pool).index, metrics)
    pool = Pool(RealDisk(), config.pool, clock, index)
    transfers = Transfers(
        slots=max(1, config.transfers),
        most_waiting=config.transfers_waiting,
        rate_bytes_per_s=config.rate_bytes_per_s or None,
        clock=clock,
        log=log,
    )
    node = Node(
        config=config,
        pool=pool,
        index=index,
        maker=maker or make_maker(config, pool),
        carrier=carrier or make_carrier(config, environment, clock, metrics),
        transfers=transfers,
        holders=Holders(),
        metrics=metrics,
        clock=clock,
        log=log,
        started_s=clock.now_s(),
        relay_limit=RateLimit(config.relay_rate_bytes_per_s or None, clock),
        poke=lambda name, due_s: timer.poke(name, due_s),
    )
    timer = Timer(node)
    metrics.set("outrider_start_timestamp_seconds", node.started_s)
    return Daemon(node, timer)


def make_maker(config: Config, pool: Pool) -> Maker:
    """What makes instances here, after finding out by trying what this pool's disk allows."""
    kernel, disk, folder = Kernel(), pool.disk, pool.layout.trash(f"probe-{os.getpid()}")
    is_root = os.geteuid() == 0
    denied = () if config.mount_squashfs else ("squashfs",)
    with disk_errors(f"trying what the disk of {config.pool} can do"):
        if disk.exists(folder):
            disk.remove_all(folder)
        disk.make_folder(folder, 0o700)
        try:
            abilities = probe(disk, folder, kernel if is_root else None, denied=denied)
        finally:
            disk.remove_all(folder)
    made = InstanceMaker(disk, config.pool, abilities=abilities, mounter=kernel, mounts_itself=is_root)
    return PreferringMaker(made, config.methods) if config.methods else made


class PreferringMaker:
    """A maker that tries the site's methods in the site's order, and no others."""

    def __init__(self, maker: InstanceMaker, methods: tuple[str, ...]) -> None:
        self._maker = maker
        self._methods = methods
        self.taken_bytes = maker.taken_bytes
        self.make = maker.make
        self.remove = maker.remove

    def choose(self, image: Image, wanted: str | None, *, is_writable: bool) -> str:
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
    config: Config, environment: Mapping[str, str], clock: Clock, metrics: Metrics
) -> FetchCarrier:
    """The fetch package with the site's certificates, passwords and keys."""
    proxies = {name: environment[name] for name in PROXIES if name in environment}
    web = WebSettings(ca_file=config.ca_file or None, netrc_file=config.netrc or None, environment=proxies)
    key = read_key(config.relay_key)

    def ticket(digest: str) -> str | None:
        return make_ticket(key, digest, clock.now_s() + TICKET_S) if key else None

    return FetchCarrier(
        settings=Settings(web=web),
        clock=clock,
        random=random.Random(),
        ticket=ticket,
        count=lambda scheme, size: metrics.count("outrider_fetched_bytes_total", scheme, by=size),
    )


def read_key(path: str) -> bytes:
    """The relay's key; nothing if none is configured."""
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(MOST_KEY_BYTES).strip()
    except OSError as error:
        raise BadRequest(f"the relay's key {path} cannot be read: {error.strerror}") from error


def become(user: str) -> None:
    """Give up root for good."""
    if os.geteuid() != 0:
        return
    try:
        uid, gid, gids = peer.identity(user)
    except KeyError as error:
        raise BadRequest(f"there is no user {user!r}, as whom the daemon should run") from error
    os.setgroups(gids)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _watch(stopping: threading.Event, supervisor: Supervisor, every_s: float | None) -> None:
    """Wait for the end, telling the supervisor meanwhile that all is well."""
    while not stopping.wait(every_s):
        supervisor.tell("WATCHDOG=1")
