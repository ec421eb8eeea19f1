"""The thread that asks the database twice a second whether this head still leads."""

from __future__ import annotations

import threading

from outrider.service.meter import Log
from outrider.store.errors import NotLeader, StoreError
from outrider.store.postgresql.leadership import BEAT_S, Leadership

ENOUGH_S = 15.0
"""For so long a leader waits for a database that does not answer: it may be about to be back."""


class Heartbeat:
    """Keeps a leadership, or finds that it is lost. Any thread may look."""

    def __init__(self, leadership: Leadership, log: Log) -> None:
        self._leadership = leadership
        self._log = log
        self._stop = threading.Event()
        self._beaten = threading.Condition()
        self._lost: NotLeader | None = None
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Let another head lead."""
        self._stop.set()
        self._thread.join(within_s)
        if not self._thread.is_alive():
            self._leadership.give_up()

    @property
    def lost(self) -> NotLeader | None:
        """Why this head leads no more."""
        if self._lost is None and self._leadership.doubt_s > ENOUGH_S:
            return NotLeader(
                f"the database has not answered for {ENOUGH_S:.0f} s: {self._trouble or 'it hangs'}"
            )
        return self._lost

    def wait_sure(self, within_s: float) -> bool:
        """Whether this head leads for certain, now or within some seconds."""
        with self._beaten:
            return (
                self._beaten.wait_for(lambda: self._leadership.is_sure or self._lost is not None, within_s)
                and self._leadership.is_sure
            )

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                self._leadership.beat()
                trouble = ""
            except NotLeader as error:
                self._lost = error
                self._log.error("leadership lost", words=str(error))
            except StoreError as error:
                trouble = str(error)
            if trouble and not self._trouble:
                self._log.warning("leadership in doubt", words=trouble)
            self._trouble = trouble
            with self._beaten:
                self._beaten.notify_all()
            if self._lost is not None:
                return
