"""The daemon's life: put together, serve, and stop in good order when told to.

It serves before it has looked around: a hit needs no index, and whoever waits in a prolog
does not wait for the sweeping up of what a crash left.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import socket
import threading
from dataclasses import dataclass

from cachemgr.base.clock import SystemClock
from cachemgr.base.clock_offset import StoredOffset
from cachemgr.base.cores import forbid_cores
from cachemgr.base.disk import FileLock, RealDisk
from cachemgr.base.errors import BadRequest, CacheError, InUse
from cachemgr.base.rate import RateLimit
from cachemgr.base.steady import BACK, DOUBTFUL, ClockChange, SteadyClock
from cachemgr.daemon.copy_queue import CopyQueue
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.metrics import CountedIndex, NodeMetrics
from cachemgr.daemon.network import peer
from cachemgr.daemon.network.listener import ListeningPlace
from cachemgr.daemon.network.server import Server, UserEntrance
from cachemgr.daemon.node import NodeContext, UserLocks
from cachemgr.daemon.notify import Supervisor, inherited_listener, watchdog_s
from cachemgr.daemon.parts import make_carrier, make_control, make_maker, make_mirror, make_relay
from cachemgr.daemon.timer import Timer
from cachemgr.daemon.transfers.bounds import Bounds
from cachemgr.daemon.transfers.tally import Holders, Tally, count_pins
from cachemgr.daemon.transfers.transfers import Transfers
from cachemgr.daemon.verbs import quota
from cachemgr.daemon.verbs.adding import resume
from cachemgr.daemon.verbs.names import Names
from cachemgr.daemon.verbs.table import VerbTable
from cachemgr.machines.batch.arrivals import Arrivals
from cachemgr.machines.batch.kept import Removals
from cachemgr.network.keys import is_open, read_keys
from cachemgr.pool.layout import PoolLayout, disk_errors
from cachemgr.pool.pool import ImagePool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from cachemgr.base.clock import Clock
    from cachemgr.config import NodeConfig
    from cachemgr.fetch.bring import Carrier
    from cachemgr.pool.instance_book import Maker
    from cachemgr.relay.server import RelayServer

STOP_TRANSFERS_S = 5.0
STOP_SERVING_S = 2.0
DESCRIPTORS = 65_536


@dataclass
class Daemon:
    """Everything that lives while the daemon does."""

    node: NodeContext
    timer: Timer
    relay: RelayServer | None = None
    mirror: RelayServer | None = None
    control: Server | None = None

    def stop(self) -> None:
        """End what is under way: transfers first, since others wait for what they say."""
        self.node.copyist.end()
        self.node.transfers.stop(STOP_TRANSFERS_S)
        if self.control is not None:
            self.control.stop(STOP_SERVING_S)
        for each in (self.relay, self.mirror):
            if each is not None:
                each.close(STOP_SERVING_S)
        self.timer.stop(STOP_SERVING_S)
        self.node.copyist.stop(STOP_SERVING_S)

    def resume_ingests(self) -> None:
        """Go on with what was arriving when the last daemon died, if somebody still wants it."""
        try:
            ingests = self.node.pool.ingests()
        except CacheError as error:
            self.node.log.warning("no transfers resumed", error=error)
            return
        for ingest in ingests:
            try:
                with disk_errors(f"resuming the transfer of {ingest.image.short}"):
                    resume(self.node, ingest)
            except CacheError as error:
                # Whoever wants it asks for it; what is here is served all the same.
                self.node.log.warning("transfer not resumed", uri=ingest.image.uri, error=error)


def run(config: NodeConfig, environment: Mapping[str, str], stream: TextIO) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    log = DaemonLog(stream, level=config.log_level, is_journal="JOURNAL_STREAM" in environment)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopping.set())
    have_descriptors()
    forbid_cores()
    try:
        serve(config, environment, log, stopping)
    except CacheError as error:
        log.error("daemon failed", error=error)
        return error.exit_code
    return 0


def have_descriptors() -> None:
    """As many open files as the system allows: connections, transfers and users' files need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def serve(
    config: NodeConfig,
    environment: Mapping[str, str],
    log: DaemonLog,
    stopping: threading.Event,
    make: Callable[..., Daemon] | None = None,
) -> None:
    """The daemon from the first lock to the last; returns after `stopping` was set."""
    place = ListeningPlace(config.socket)
    listener = tenancy = None
    try:
        # Before root is given up, which may be all that can write there.
        listener = inherited_listener(environment) or place.listen()
        if config.user:
            become(config.user)
        daemon = (make or put_together)(config, environment, log)
        tenancy = _take_pool(daemon.node.pool.layout.root)
        daemon.relay = make_relay(config, daemon.node)
        daemon.mirror = make_mirror(config, daemon.node)
        daemon.control = make_control(config, daemon.node)
        _serve(
            daemon, listener, Supervisor(environment), watchdog_s(environment, config.watchdog_s), stopping
        )
        log.info("daemon stopped")
    finally:
        if listener is not None:
            listener.close()
        if tenancy is not None:
            tenancy.release()
        place.leave()


def _serve(
    daemon: Daemon,
    listener: socket.socket,
    supervisor: Supervisor,
    tell_every_s: float | None,
    stopping: threading.Event,
) -> None:
    node, log, control = daemon.node, daemon.node.log, daemon.control
    config = node.config
    entrance = UserEntrance(
        os.geteuid(),
        node.clock,
        most=config.connections,
        kept=config.connections_kept,
        most_of_user=config.user_connections,
    )
    server = Server(listener, VerbTable(node), entrance, clock=node.clock, log=log)
    node.shared += [server.places]
    if control is not None:
        node.shared += [control.places]
    if daemon.relay is not None:
        node.shared += [daemon.relay.places]
    node.connections = lambda: server.connections() + (control.connections() if control else 0)
    server.start()
    if control is not None:
        control.start()
    supervisor.tell("READY=1")
    log.info("daemon serves", socket=node.config.socket, pool=node.config.pool, pid=os.getpid())
    daemon.timer.start()
    daemon.resume_ingests()
    while not stopping.wait(tell_every_s):
        supervisor.tell("WATCHDOG=1")
    supervisor.tell("STOPPING=1")
    log.info("daemon stops", transfers=node.transfers.counts()["running"])
    daemon.stop()
    server.stop(STOP_SERVING_S)
    node.pool.close()


def put_together(
    config: NodeConfig,
    environment: Mapping[str, str],
    log: DaemonLog,
    *,
    clock: Clock | None = None,
    carrier: Carrier | None = None,
    maker: Maker | None = None,
) -> Daemon:
    """The parts of a daemon, connected; nothing runs yet."""
    metrics = NodeMetrics()
    clock = clock or _steady_clock(config, log, metrics)
    # Links are followed once: one that is turned elsewhere later does not lead into another pool.
    config = dataclasses.replace(config, pool=os.path.realpath(config.pool))
    log.bound(config.user_log_bytes_per_minute, clock)
    if is_open(config.relay_key):
        log.warning("every user can read the site's key", path=config.relay_key, remedy="chmod 600")
    index = CountedIndex(PoolLayout(config.pool).index, metrics)
    pool = ImagePool(RealDisk(), config.pool, clock, index)
    transfers = Transfers(
        slots=max(1, config.transfers),
        most_waiting=config.transfers_waiting,
        rate_bytes_per_s=config.rate_bytes_per_s or None,
        clock=clock,
        log=log,
        bounds=Bounds(
            kept=config.transfers_kept,
            places_of_user=config.user_transfers_waiting,
            slots_of_user=config.user_transfers,
            turn_s=config.user_turn_s,
            longest_s=config.user_transfer_time_s,
            rate_bytes_per_s=config.user_rate_bytes_per_s or None,
            files=max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2),
            files_of_user=config.user_files,
        ),
    )
    node = NodeContext(
        config=config,
        pool=pool,
        index=index,
        maker=maker or make_maker(config, pool, log),
        carrier=carrier or make_carrier(config, environment, clock, metrics),
        transfers=transfers,
        holders=Holders(),
        pins=Tally(
            "pins",
            config.user_pins,
            lambda: count_pins(pool),
            clock,
            option="user_pins",
            remedy="give some back",
        ),
        names=Names(pool, config.user_names),
        one_at_a_time=UserLocks(),
        copyist=CopyQueue(),
        arrivals=Arrivals(clock),
        removals=Removals(),
        metrics=metrics,
        clock=clock,
        log=log,
        started_s=clock.now_s(),
        began_s=clock.monotonic_s(),
        relay_limit=RateLimit(config.relay_rate_bytes_per_s or None, clock),
        shared_bytes=quota.shared_bytes(config, pool.settings.limit_bytes),
        poke=lambda name, due_s: timer.poke(name, due_s),
        keys=read_keys(config.relay_key),
    )
    timer = Timer(node)
    metrics.set("outrider_start_timestamp_seconds", node.started_s)
    return Daemon(node, timer)


def _take_pool(root: str) -> FileLock:
    """The right to be the pool's daemon, whatever path led to it: two would count rates, slots and users'
    quotas each for itself. Other programs may use the pool beside it."""
    with disk_errors(f"locking the pool {root}"):
        lock = RealDisk().lock(root, is_shared=False, waits=False)
    if lock is None:
        raise InUse(
            f"another daemon serves the pool {root}, perhaps by another path to it: stop it, or set "
            "another pool"
        )
    return lock


def _steady_clock(config: NodeConfig, log: DaemonLog, metrics: NodeMetrics) -> Clock:
    """This machine's clock, that may be set while the daemon runs."""

    def tell(change: ClockChange) -> None:
        metrics.set("outrider_clock_doubtful", change.kind == DOUBTFUL)
        say = log.info if change.kind == BACK else log.warning
        say(f"clock is {change.kind}", words=change.words, doubt_s=config.clock_doubt_s)

    metrics.set("outrider_clock_doubtful", 0)
    return SteadyClock(
        SystemClock(),
        step_s=config.clock_step_s,
        doubt_s=config.clock_doubt_s,
        tell=tell,
        offset_store=StoredOffset(PoolLayout(os.path.realpath(config.pool)).clock),
    )


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
