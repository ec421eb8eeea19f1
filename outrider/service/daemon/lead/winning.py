"""The lead of a database that several heads share: won, kept, and given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cachemgr.base.clock import Clock, SystemClock
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.lead.standby import Standby
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.sockets import Sockets
from outrider.service.daemon.threads.heartbeat import Heartbeat
from outrider.store.errors import ConnectionLost
from outrider.store.postgresql.connection import shown
from outrider.store.postgresql.leadership import Leadership
from outrider.store.postgresql.store import PostgresStore
from outrider.store.sql.reading import SqlStore

ACT_S = 5.0
"""For so long what changes the world waits until this head is sure to lead."""
STOP_S = 2.0
REOPEN_S = 12.0
"""For so long a database is waited for that was there before."""
REST_S = 0.5


class LeadKeeper:
    """The store of the head that leads."""

    path: Path | None = None

    def __init__(
        self, place: str, head: str, leadership: Leadership, heartbeat: Heartbeat, clock: Clock
    ) -> None:
        self.head, self.since_s, self.shown = head, clock.now_s(), shown(place)
        self._place = place
        self._leadership = leadership
        self._heartbeat = heartbeat
        self._clock = clock

    def open(self, now_s: int) -> SqlStore:
        """Its server may be about to be back: whoever waits for an answer is not sent away at once."""
        until_s = self._clock.monotonic_s() + REOPEN_S
        while True:
            self.check()
            try:
                return PostgresStore.open(self._place, self._leadership.epoch)
            except ConnectionLost:
                if self._clock.monotonic_s() > until_s:
                    raise
                self._clock.sleep(REST_S)

    def is_sure(self) -> bool:
        return self._heartbeat.wait_sure(ACT_S)

    def check(self) -> None:
        if (lost := self._heartbeat.lost) is not None:
            raise lost


@contextmanager
def take_lead(
    config: Config,
    head: str,
    sockets: Sockets,
    stop: threading.Event,
    log: TracingLog,
    environment: Mapping[str, str],
) -> Iterator[LeadKeeper | None]:
    """Stand by until this head leads; None if it was told to stop before."""
    clock = SystemClock()
    place, address = config.store_path, config.head.address or (config.tcp.listen if config.tcp else "")
    leadership = Leadership(place, head=head, address=address, monotonic_s=clock.monotonic_s)
    standby = Standby(leadership, head, sockets, clock=clock, log=log, environment=environment)
    if not standby.wait(stop):
        leadership.give_up()
        yield None
        return
    heartbeat = Heartbeat(leadership, log)
    heartbeat.start()
    try:
        yield LeadKeeper(place, head, leadership, heartbeat, clock)
    finally:
        heartbeat.stop(STOP_S)
