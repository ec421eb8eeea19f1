"""Which of several heads may write: a lock that belongs to a session, and the epoch that was won with it.

The server gives the lock back when the session's owner dies. Of one that only stands still, or that the
network has cut off, it does not know: it is seen by this, that its session, which asks something twice a
second, has asked nothing for a while. Who stands by ends that session and takes the lock, and with the next
epoch whatever the old leader still writes fails.

What cannot be fenced (commands to the batch system, orders to nodes) an owner does only while it is sure:
shorter after its last answer than others wait before they end its session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from outrider.store.errors import NotLeader, StoreError, StoreFailed
from outrider.store.postgresql import schema
from outrider.store.postgresql.connection import connect, named_errors, shown, statement_of
from outrider.store.postgresql.tables import WRITER

BEAT_S = 0.5
SURE_S = 2.5
"""For so long after its last answered question a leader takes itself for the leader."""
STALE_S = 4.0
"""A leader that has asked nothing for so long is taken for dead."""
UNWATCHED_S = 2.0
"""Who has not looked for longer than this has stood still itself, and begins to watch anew."""
SESSION = "outriderd leads"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leader:
    """Who leads, as it has said itself when it began."""

    head: str
    address: str
    since_s: int
    epoch: int


class Leadership:
    """One head's claim. `beat` and `try_take` by one thread at a time, `is_sure` by any."""

    def __init__(self, place: str, *, head: str, address: str, monotonic_s: Callable[[], float]) -> None:
        self._place = place
        self._head, self._address = head, address
        self._monotonic_s = monotonic_s
        self._session: psycopg.Connection[tuple[Any, ...]] | None = None
        self._epoch: int | None = None
        self._confirmed_s = float("-inf")
        self._watched: tuple[object, ...] | None = None
        self._unchanged_since_s = self._looked_s = float("-inf")
        self._pid = self._former_pid = 0
        self._is_new = True
        """Whether the session has not asked for the lock yet."""

    @property
    def epoch(self) -> int:
        """The epoch that was won. Raises NotLeader."""
        if self._epoch is None:
            raise NotLeader(f"store {shown(self._place)}: this head does not lead")
        return self._epoch

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have begun to lead."""
        return self._epoch is not None and self._monotonic_s() - self._confirmed_s < SURE_S

    @property
    def doubt_s(self) -> float:
        """For how long the database has not said that this head leads."""
        return self._monotonic_s() - self._confirmed_s

    def try_take(self, now_s: int) -> bool:
        """Lead, if nobody does who is alive. Raises a StoreError if the database cannot be asked."""
        with self._asking():
            if not self._ask(schema.TRY_LOCK)[0][0]:
                self._watch()
                return False
            # What the former leader has begun to write holds rows that are needed now.
            self._ask(schema.END_WRITERS, WRITER)
            began_s = self._monotonic_s()
            row = self._ask(schema.LEAD, self._head, self._address, now_s)[0]
            self._epoch, self._confirmed_s, self._is_new = int(row[0]), began_s, False
        return True

    def beat(self) -> None:
        """Ask the database whether this head still leads. Raises NotLeader, for good, or a StoreError."""
        epoch = self.epoch
        with self._asking():
            if self._is_new:
                self._take_again()
            began_s = self._monotonic_s()
            found = self._ask(schema.LEADER)[0][0]
            if found != epoch:
                self._epoch = None
                raise NotLeader(
                    f"store {shown(self._place)}: another head leads, in epoch {found} and not {epoch}"
                )
            self._is_new, self._confirmed_s = False, began_s

    def leader(self) -> Leader | None:
        """Who began to lead last."""
        with self._asking():
            epoch, head, address, since_s = self._ask(schema.LEADER)[0]
        if not epoch:
            return None
        return Leader(head=str(head), address=str(address), since_s=int(str(since_s)), epoch=int(str(epoch)))

    def count_sessions(self) -> int:
        """How many others lead or stand by."""
        with self._asking():
            return int(self._ask(schema.OTHERS, SESSION)[0][0])

    def give_up(self) -> None:
        """Lead no more: another head may begin at once."""
        self._epoch = None
        self._drop()

    def _take_again(self) -> None:
        """The session was lost, as when the server was restarted; perhaps nobody has led since."""
        if self._ask(schema.TRY_LOCK)[0][0]:
            return
        held = self._ask(schema.LOCK_HOLDER)
        if held and held[0][0] == self._former_pid:
            # It is the session that was lost, of which the server does not know that yet.
            self._ask(schema.END_SESSION, self._former_pid)
            raise StoreFailed(f"store {shown(self._place)}: the session that was lost is still there")
        self._epoch = None
        raise NotLeader(f"store {shown(self._place)}: another head has the lock")

    def _watch(self) -> None:
        """Look whether whoever has the lock is alive, and end its session if it is not."""
        now_s = self._monotonic_s()
        held = self._ask(schema.LOCK_HOLDER)
        found = held[0] if held else None
        if found != self._watched or now_s - self._looked_s > UNWATCHED_S:
            self._watched, self._unchanged_since_s = found, now_s
        elif found is not None and now_s - self._unchanged_since_s >= STALE_S:
            self._ask(schema.END_SESSION, found[0])
            self._unchanged_since_s = now_s
        self._looked_s = now_s

    def _ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        assert self._session is not None
        return self._session.execute(statement_of(statement), values).fetchall()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """With a session that stands."""
        try:
            if self._session is None:
                self._session, self._is_new = connect(self._place, SESSION), True
                self._former_pid, self._pid = self._pid, self._session.info.backend_pid
            with named_errors(self._place):
                yield
        except StoreError:
            self._drop()
            raise

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(psycopg.Error):
                session.close()
