"""What happens because time passes: nobody has to call for something to expire.

Each task does what is due and says when it wants to be asked again, at the latest after the
sweep interval, because other processes use the pool too. A request that brings something
that expires says when, so that its end is not slept through.
"""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass

from cachemgr.base.errors import CacheError, PoolDamaged
from cachemgr.base.steady import past_s
from cachemgr.daemon.transfers.stalled import sweep_stalled
from cachemgr.daemon.verbs.looking import count_expired_pins, gauge
from cachemgr.daemon.verbs.promising import gauge_held
from cachemgr.daemon.verbs.quota import account_of
from cachemgr.daemon.verbs.taking import gauge_shares
from cachemgr.pool import ingest, instance_book, pins, room
from cachemgr.pool.records import MOST_BYTES, Alias, decode_alias, is_alias_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.daemon.node import NodeContext

# Damage that a task meets again and again is not logged again and again.
AFTER_FAILURE_S = 60
# So often the clock is looked at, whatever else is due.
LOOK_S = 5


@dataclass(frozen=True)
class TimerTask:
    """One kind of things that expire. `rarely` is how many sweep intervals it may wait."""

    name: str
    work: Callable[[NodeContext], int | None]
    rarely: int = 1


class Timer:
    """One thread that carries out the tasks when they are due."""

    def __init__(self, node: NodeContext, tasks: tuple[TimerTask, ...] | None = None) -> None:
        self._node = node
        self._tasks = TASKS if tasks is None else tasks
        self._changed = threading.Condition()
        self._due_s = dict.fromkeys((task.name for task in self._tasks), 0)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._work, name="timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self, name: str, due_s: int) -> None:
        """Something of that kind expires then."""
        with self._changed:
            if due_s < self._due_s[name]:
                self._due_s[name] = due_s
                self._changed.notify_all()

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def sweep(self) -> None:
        """Do what is due."""
        for task in self._tasks:
            now_s = past_s(self._node.clock)
            with self._changed:
                if self._is_stopping or self._due_in_s(task, now_s) > 0:
                    continue
                latest_s = now_s + task.rarely * self._node.config.sweep_interval_s
                # Whatever is said while the task works counts from here.
                self._due_s[task.name] = latest_s
            due_s = self._carry_out(task)
            if due_s is not None:
                self.poke(task.name, due_s)
        self._node.metrics.set("outrider_last_sweep_timestamp_seconds", past_s(self._node.clock))

    def _work(self) -> None:
        while not self._is_stopping:
            self.sweep()
            with self._changed:
                # Each poke may have brought the end nearer, so it is computed anew.
                while not self._is_stopping and self._wait_s() > 0:
                    self._changed.wait(self._wait_s())

    def _wait_s(self) -> int:
        now_s = past_s(self._node.clock)
        # A clock that is set must not be slept through, nor the end of the doubt about it.
        most_s = min(self._node.config.sweep_interval_s, LOOK_S)
        return min(*(self._due_in_s(task, now_s) for task in self._tasks), most_s)

    def _due_in_s(self, task: TimerTask, now_s: int) -> int:
        """Nothing is ever due later than the interval says, unless the clock was set back."""
        left_s = self._due_s[task.name] - now_s
        return left_s if left_s <= task.rarely * self._node.config.sweep_interval_s else 0

    def _carry_out(self, task: TimerTask) -> int | None:
        node = self._node
        try:
            return task.work(node)
        except CacheError as error:
            node.log.warning("sweep failed", task=task.name, error=error)
        except Exception:  # noqa: BLE001 - a thread's outermost loop: the next sweep may work
            node.log.trace(f"sweep of {task.name} failed", traceback.format_exc())
        return past_s(node.clock) + AFTER_FAILURE_S


def sweep_images(node: NodeContext) -> int | None:
    """Evict what has outlived its promise."""
    pool = node.pool
    with pool.changing("looking for expired images"):
        node.is_index_ready = True
        now_s = past_s(node.clock)
        entries = [entry for entry in pool.index.entries() if entry.expires_s is not None]
        evicted: list[str] = []
        if any(entry.expires_s <= now_s for entry in entries if entry.expires_s is not None):
            node.index.reason.word = "expired"
            try:
                evicted = room.evict_expired(pool)
            finally:
                node.index.reason.word = "room"
    for digest in evicted:
        node.log.info("image expired", digest=digest[:12])
    gone = set(evicted)
    ends = [_end_s(node, entry.key, entry.expires_s, now_s) for entry in entries if entry.key not in gone]
    return min((end_s for end_s in ends if end_s > now_s), default=None)


def _end_s(node: NodeContext, digest: str, expires_s: int | None, now_s: int) -> int:
    """When an image may go: at its promise's end or, if it is held beyond that, at a pin's."""
    if expires_s is None or expires_s > now_s:
        return expires_s or 0
    held = [pin.expires_s for pin in node.pool.pins(digest) if pins.holds(pin, now_s)]
    return min(held, default=now_s + 1)


def sweep_ingests(node: NodeContext) -> int | None:
    """Drop what is arriving for nobody."""
    for key in ingest.drop_stale(node.pool):
        node.log.info("ingest dropped", key=key[:13])
    now_s = past_s(node.clock)
    leases = [each.lease_s() for each in node.pool.ingests()]
    return min((lease_s for lease_s in leases if lease_s > now_s), default=None)


def sweep_instances(node: NodeContext) -> int | None:
    """Remove instances whose lease is over, or that an earlier boot has left."""
    pool = node.pool
    now_s = past_s(node.clock)
    again_s = []
    for key in instance_book.leftovers(pool):
        try:
            if instance_book.remove_leftover(pool, node.maker, key):
                node.log.info("instance expired", instance=key)
        except CacheError as error:
            # One that only root can remove must not keep all others.
            node.log.warning("instance stays", instance=key, error=error)
            again_s.append(now_s + AFTER_FAILURE_S)
    now_s = past_s(node.clock)
    ends = again_s + [each.expires_s for each in instance_book.instances(pool)]
    return min((end_s for end_s in ends if end_s > now_s), default=None)


def sweep_aliases(node: NodeContext) -> int | None:
    """Delete the files of names that are not believed any more."""
    pool, now_s = node.pool, past_s(node.clock)
    folder = pool.layout.folder("aliases")
    ends = []
    for name in pool.disk.names(folder):
        if not is_alias_file(name):
            continue
        try:
            alias = decode_alias(pool.disk.read(f"{folder}/{name}", MOST_BYTES), name)
        except (FileNotFoundError, PoolDamaged):
            continue
        if alias.expires_s is not None and alias.expires_s <= now_s:
            pool.remove_alias(alias.name)
            node.log.info("alias expired", culprit=alias.uid, alias=alias.name)
        elif _is_gone(node, alias):
            _remove_stale(node, alias)
        elif alias.expires_s is not None:
            ends.append(alias.expires_s)
    node.names.forget_gone()
    return min(ends, default=None)


def _is_gone(node: NodeContext, alias: Alias) -> bool:
    """Whether the image was evicted; one that is damaged is `check`'s business."""
    try:
        return node.pool.image(alias.digest) is None
    except PoolDamaged:
        return False


def _remove_stale(node: NodeContext, alias: Alias) -> None:
    """Remove the name of an image that was evicted, unless the image comes back meanwhile."""
    with node.pool.changing(f"removing the alias {alias.name[:100]}"):
        if _is_gone(node, alias) and node.pool.remove_alias(alias.name):
            node.log.info("alias of an evicted image removed", culprit=alias.uid, alias=alias.name)


def sweep_memory(node: NodeContext) -> int | None:
    """Forget old transfers, end overdue ones, and bring the gauges up to date."""
    node.transfers.forget_old()
    node.transfers.end_overdue()
    node.log.tell_left_out()
    gauge(node)
    gauge_shares(node)
    return None


def take_turns(node: NodeContext) -> int | None:
    """Let other users' transfers run, if any wait."""
    return node.clock.now_s() + node.config.user_turn_s if node.transfers.take_turns() else None


def sweep_pins(node: NodeContext) -> int | None:
    """Pins end by themselves; how many have is only counted, and seldom, since it reads them all."""
    node.metrics.set("outrider_pool_expired_pins", count_expired_pins(node))
    gauge_held(node, account_of(node))
    return None


# What frees the most comes first.
TASKS = (
    TimerTask("instances", sweep_instances),
    TimerTask("ingests", sweep_ingests),
    TimerTask("stalled", sweep_stalled),
    TimerTask("images", sweep_images),
    TimerTask("aliases", sweep_aliases, rarely=10),
    TimerTask("memory", sweep_memory),
    TimerTask("turns", take_turns),
    TimerTask("pins", sweep_pins, rarely=10),
)
