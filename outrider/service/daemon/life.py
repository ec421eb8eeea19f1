"""The service's life: put together, serve, and stop in good order when told to.

Nothing is answered before the store is open and the batch system's side has been started; and
nothing is left behind but what was promised.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cachemgr.base.clock import Clock, SystemClock
from cachemgr.base.clock_offset import StoredOffset
from cachemgr.base.cores import forbid_cores
from cachemgr.daemon.notify import Supervisor, watchdog_s
from outrider.collector import collector_paused
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.metadata.policies import Policies
from outrider.rms.base import BatchSystem, JobUse
from outrider.service.answers.images import ImageList
from outrider.service.answers.jobs import Verdict
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.daemon.configuration.model import Config, administrators_of, effort_of, settings_of
from outrider.service.daemon.configuration.policies import PolicyBook, read_policy_book
from outrider.service.daemon.errors import ServiceError, SocketError, StuckError
from outrider.service.daemon.lead.keeping import StoreKeeper, leading
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.measures.gauges import meter_commits
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.measures.recent import RecentRequests
from outrider.service.daemon.measures.sharing import ShareBook
from outrider.service.daemon.sockets import Sockets
from outrider.service.daemon.threads.backups import Backups
from outrider.service.daemon.threads.loop import DeskLike, Loop, Opened
from outrider.service.daemon.threads.reception import Reception
from outrider.service.daemon.threads.web_thread import WebThread
from outrider.service.daemon.threads.workers import Workers
from outrider.service.daemon.world.start_markers import StartMarkerFolder
from outrider.service.daemon.world.turns import check_queues, turns_look
from outrider.service.daemon.world.wakefile import WakeFile
from outrider.service.daemon.world.world import World
from outrider.service.front import Busy, NotDone
from outrider.service.meter import Meter
from outrider.service.ports import AskProgram, Sign
from outrider.service.requests import AskStart, Caller, ListImages, Show
from outrider.service.settings import Settings
from outrider.service.task_threads import FutureTask, TaskThreads
from outrider.service.web.app import make_app
from outrider.service.web.connections.munge import Munge
from outrider.service.web.limits import Limits
from outrider.store.place import is_database
from outrider.store.records import Effect
from outrider.store.store import Store

TEND_S = 1.0
STOP_WEB_S = 8.0
STOP_LOOP_S = 10.0
PROMISED_S = 5.0
MOST_IMAGES = 1_000_000
MOST_FILES = 65_536
ITSELF = Caller(uid=0, user="outriderd", is_admin=True)


class Backend(Protocol):
    """The world that a service acts upon, with a beginning and an end."""

    @property
    def world(self) -> World: ...

    def start(self) -> None:
        """Raises BackendError."""

    def stop(self) -> None: ...


class MakeDesk(Protocol):
    def __call__(
        self,
        store: Store,
        settings: Settings,
        policies: Policies,
        now_s: int,
        *,
        batch_system: str,
        log: TracingLog,
        meter: Meter,
    ) -> DeskLike: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Providers:
    """What is put in from outside, so that tests can put in something else."""

    make_backend: Callable[[Config, TracingLog, Mapping[str, str]], Backend]
    make_desk: MakeDesk
    carry_effect: Callable[[Effect, BatchSystem, Sign | None], JobUse | None]
    ask_program: Callable[[AskProgram], Allowed | PolicyRefusal]


@dataclass(kw_only=True, slots=True)
class Orders:
    """What the service is told from outside; signals set these."""

    stop: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event = field(default_factory=threading.Event)


def serve(
    config: Config,
    providers: Providers,
    orders: Orders,
    log: TracingLog,
    environment: Mapping[str, str],
    *,
    accepts_loss: bool = False,
) -> None:
    """Serve until told to stop. Raises ServiceError or StoreError if it cannot, or cannot any more."""
    _raise_files()
    # Users' logins are in its memory.
    forbid_cores()
    sockets = Sockets(config)
    try:
        policies = read_policy_book(config)
        if is_database(config.store_path):
            # What this head knew when it led, another one may know better.
            StartMarkerFolder(config.socket, log).clear()
        with leading(config, sockets, orders.stop, log, environment, accepts_loss=accepts_loss) as keeper:
            if keeper is not None:
                _lead(config, keeper, policies, providers, sockets, orders, log, environment)
    finally:
        sockets.leave()
    log.info("service stopped")


def _lead(
    config: Config,
    keeper: StoreKeeper,
    policies: PolicyBook,
    providers: Providers,
    sockets: Sockets,
    orders: Orders,
    log: TracingLog,
    environment: Mapping[str, str],
) -> None:
    """Be the one service of the store."""
    if keeper.path is not None:
        config = config.model_copy(update={"store": str(keeper.path)})
    backend = providers.make_backend(config, log, environment)
    try:
        backend.start()
        check_queues(config, backend.world.rms, log)
        service = _Service(config, keeper, providers, policies, backend.world, log)
        service.live(sockets, orders, environment)
    finally:
        backend.stop()


def _raise_files() -> None:
    """Let there be open files for all connections that there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Service:
    """Everything that lives between the batch system's side and the sockets."""

    def __init__(
        self,
        config: Config,
        keeper: StoreKeeper,
        providers: Providers,
        policies: PolicyBook,
        world: World,
        log: TracingLog,
    ) -> None:
        self._config = config
        self._keeper = keeper
        self._providers = providers
        self._policies = policies
        self._world = world
        self._log = log
        self._clock: Clock = SystemClock()
        self._metrics = Metrics()
        self._settings = replace(settings_of(config), head=keeper.head, head_since_s=keeper.since_s)
        self._workers = Workers(
            world,
            self._settings,
            carry_effect=providers.carry_effect,
            ask_program=providers.ask_program,
            clock=self._clock,
            log=log,
            meter=self._metrics,
            call_timeout_s=config.timings.call_s,
            effort=effort_of(config),
            most_submissions_of_one=config.limits.user_submissions,
            most_decisions_of_one=config.limits.user_decisions,
            complete=turns_look(config, world.rms),
            may_act=keeper.is_sure,
        )
        self._markers = StartMarkerFolder(config.socket, log)
        self._markers.check()
        self._loop: Loop[Any] = Loop(
            self._open,
            self._workers.carry_out,
            log=log,
            meter=self._metrics,
            clock=SystemClock(),
            step_s=config.timings.clock_step_s,
            doubt_s=config.timings.clock_doubt_s,
            offset_store=StoredOffset(config.clock_path),
            most_requests=config.limits.requests,
            markers=self._markers,
        )
        self._clock = self._loop.clock  # from here on nobody takes the time from one that is set
        recent = RecentRequests(self._clock)
        self._shares = ShareBook(
            self._loop.desk_shares, self._workers.node_shares, self._metrics, self._clock
        )
        self._shares.learn("requests", recent)
        self._shares.learn("loop", self._loop)
        self._shares.learn("workers", self._workers)
        self._reception = Reception(
            loop=self._loop,
            workers=self._workers,
            config=config,
            policies=policies,
            metrics=self._metrics,
            log=log,
            shares=self._shares,
            recent=recent,
        )
        self._wake_file = WakeFile(config.socket, self._loop.wake, log)
        self._backups = self._make_backups()
        self._chores = TaskThreads("the service's own chores", 1, clock=self._clock, most_waiting=8)
        self._chore: Future[None] | None = None
        self._said = ""

    def live(self, sockets: Sockets, orders: Orders, environment: Mapping[str, str]) -> None:
        """From the store's opening to its closing."""
        self._loop.start()
        self._world.promised.learn(self._promised_digest)
        self._world.promised.learn_jobs(self._digest_of_job)
        self._world.promised.learn_needed(self._needed_digests)
        self._metrics.set("outrider_start_timestamp_seconds", self._clock.now_s())
        supervisor = Supervisor(environment)
        try:
            self._wake_file.start()
            self._web = self._begin_web(sockets)
            supervisor.tell("READY=1")
            self._log.info("service serves", socket=self._config.socket, store=self._keeper.shown)
            try:
                self._tend(orders, supervisor, sockets, environment)
            finally:
                supervisor.tell("STOPPING=1")
                self._log.info("service stops")
                has_web_ended = self._web.stop(STOP_WEB_S)
        finally:
            has_loop_ended = self._loop.stop(STOP_LOOP_S)
            self._wake_file.stop()
            self._markers.clear()
            self._workers.close()
            self._chores.close()
        if self._loop.failure is not None:
            raise self._loop.failure
        if not (has_web_ended and has_loop_ended):
            raise StuckError("the service did not end in time: what was under way is given up")

    def _promised_digest(self, reservation: str) -> str | None:
        """Which image a reservation was promised, for whoever makes its instances."""
        try:
            answer = self._loop.ask(ITSELF, Show(name=reservation)).result(PROMISED_S)
        except (TimeoutError, CancelledError, Busy) as error:
            self._log.warning("promise not looked up", reservation=reservation, reason=str(error))
            return None
        return answer.reservation.image.digest if isinstance(answer, ReservationDetails) else None

    def _digest_of_job(self, job: str) -> str | None:
        """Which image a job without a reservation names; None if nobody can say."""
        try:
            answer = self._loop.ask(ITSELF, AskStart(job=job)).result(PROMISED_S)
        except (TimeoutError, CancelledError, Busy) as error:
            self._log.warning("image of a job not looked up", job=job, reason=str(error))
            return None
        return answer.digest if isinstance(answer, Verdict) else None

    def _needed_digests(self) -> frozenset[str] | None:
        """The digests of all images that somebody was promised; None if nobody can say."""
        try:
            answer = self._loop.ask(ITSELF, ListImages(most=MOST_IMAGES)).result(PROMISED_S)
        except (TimeoutError, CancelledError, Busy) as error:
            self._log.warning("promised images not looked up", reason=str(error))
            return None
        if not isinstance(answer, ImageList) or not answer.is_complete:
            return None
        return frozenset(each.digest for each in answer.images if each.reservations or each.jobs)

    def _open(self) -> Opened[DeskLike]:
        """The store and a desk over it; by the loop's thread."""
        now_s = self._clock.now_s()
        store = self._keeper.open(now_s)
        meter_commits(store, self._metrics, self._clock.monotonic_s)
        try:
            desk = self._providers.make_desk(
                store,
                self._settings,
                self._policies.current,
                now_s,
                batch_system=self._world.rms.name,
                log=self._log,
                meter=self._metrics,
            )
        except BaseException:
            store.close()
            raise
        return Opened(
            desk=desk,
            close=store.close,
            is_broken=lambda: store.is_broken,
            is_shared=self._keeper.path is None,
        )

    def _app(self) -> Any:
        limits = self._config.limits
        app = make_app(
            self._reception,
            administrators=administrators_of(self._config),
            meter=self._metrics,
            log=self._log,
            munge=Munge() if self._config.tcp is not None else None,
            limits=Limits(
                connections=limits.connections,
                remote_connections=limits.connections,
                connections_per_user=limits.user_connections,
                connections_per_host=limits.host_connections,
                requests_per_user=limits.user_requests,
                requests_per_host=limits.host_requests,
                kept=limits.kept,
                probes=limits.probes,
                bodies_bytes=limits.bodies_bytes,
                polls=limits.polls,
                polls_per_user=limits.user_polls,
            ),
        )
        self._shares.learn("api", app)
        return app

    def _make_backups(self) -> Backups | None:
        backup = self._config.backup
        if backup.folder is None or self._keeper.path is None:
            return None
        return Backups(
            self._keeper.path,
            Path(backup.folder),
            every_s=backup.every_s,
            keep=backup.keep,
            clock=self._clock,
            log=self._log,
            meter=self._metrics,
        )

    def _tend(
        self, orders: Orders, supervisor: Supervisor, sockets: Sockets, environment: Mapping[str, str]
    ) -> None:
        """The main thread's work, until the service is told to stop or cannot go on."""
        every_s = min(TEND_S, watchdog_s(environment, 0) or TEND_S)
        while not orders.stop.wait(every_s):
            self._workers.tend()
            self._wake_file.tend()
            if not self._web.is_running:
                raise ServiceError("the API's server ended by itself; see the log")
            if not self._loop.is_running:
                return
            self._keeper.check()
            if not sockets.are_in_place:
                self._listen_again(sockets)
            health = self._reception.health()
            if health.is_alive:
                supervisor.tell("WATCHDOG=1")
            self._say(supervisor, "promises" if health.is_ready else "; ".join(health.troubles)[:300])
            if self._chore is not None and not self._chore.done():
                # What is ordered meanwhile is done after it.
                continue
            if orders.reload.is_set():
                orders.reload.clear()
                self._do(self._reload)
            elif self._backups is not None and self._backups.is_due:
                self._do(self._backups.tend)
            elif self._shares.is_due:
                self._do(self._shares.show)

    def _begin_web(self, sockets: Sockets) -> WebThread:
        with collector_paused():
            app = self._app()
        web = WebThread(app, sockets.listen(), self._log)
        if not web.start():
            raise SocketError("the API's server did not start; see the log")
        return web

    def _listen_again(self, sockets: Sockets) -> None:
        """Somebody has removed the socket, so nobody finds the service any more, though it lives."""
        self._log.error("socket is gone, and made again", socket=self._config.socket)
        self._web.stop(STOP_WEB_S)
        sockets.close()
        self._web = self._begin_web(sockets)

    def _say(self, supervisor: Supervisor, words: str) -> None:
        if words != self._said:
            self._said = words
            supervisor.tell(f"STATUS={words}")

    def _do(self, chore: Callable[[], None]) -> None:
        """One chore at a time, beside the main thread, which the watchdog waits for."""
        self._chore = Future()
        task = FutureTask(self._chore, chore, lambda words: StuckError(words), self._log, expected=())
        self._chores.add(task)

    def _reload(self) -> None:
        try:
            self._reception.reload_policies()
        except (NotDone, Busy) as error:
            self._log.error("policies not read", error=error)
