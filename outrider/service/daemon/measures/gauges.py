"""Numbers that show how things are now, made of what the desk and the nodes say anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable

from outrider.service.answers.site import Status
from outrider.service.meter import Meter
from outrider.service.ports import NodeReport
from outrider.store.sql.reading import SqlStore


def show_status(status: Status, meter: Meter) -> None:
    """The desk's account of itself as gauges."""
    for state, count in status.reservations.items():
        meter.set("outrider_reservations", count, state)
    for state, count in status.jobs.items():
        meter.set("outrider_jobs", count, state)
    meter.set("outrider_jobs_overdue", status.jobs_overdue)
    meter.set("outrider_transfers", status.transfers_waiting, "waiting")
    meter.set("outrider_transfers", status.transfers_running, "running")
    meter.set("outrider_nodes", status.nodes_up, "up")
    meter.set("outrider_nodes", status.nodes - status.nodes_up, "not-up")
    meter.set("outrider_nodes", status.nodes_away, "away")
    meter.set("outrider_effects_waiting", status.effects_waiting)
    meter.set("outrider_link_busy_ratio", int(status.link_busy_until_s is not None))
    meter.set("outrider_link_doubted", int(status.is_link_doubted))
    seen_s = status.started_s if status.last_look_s is None else status.last_look_s
    meter.set("outrider_sight_age_seconds", max(0, status.now_s - seen_s))
    meter.set("outrider_ready", int(status.is_promising))


class PoolGauges:
    """How full the pools are, all together: a gauge for each of thousands of nodes would be too many,
    and each node has its own. Any thread may note."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._pools: dict[str, tuple[int, int]] = {}
        self._used_bytes = 0
        self._limit_bytes = 0
        self._guard = threading.Lock()

    def note(self, report: NodeReport) -> None:
        with self._guard:
            used_bytes, limit_bytes = self._pools.get(report.node, (0, 0))
            self._pools[report.node] = report.used_bytes, report.limit_bytes
            self._used_bytes += report.used_bytes - used_bytes
            self._limit_bytes += report.limit_bytes - limit_bytes

    def show(self) -> None:
        with self._guard:
            used_bytes, limit_bytes = self._used_bytes, self._limit_bytes
            fullest = max((used / limit for used, limit in self._pools.values() if limit), default=0.0)
        self._meter.set("outrider_pools_used_bytes", used_bytes)
        self._meter.set("outrider_pools_limit_bytes", limit_bytes)
        self._meter.set("outrider_pool_most_used_ratio", fullest)


def meter_commits(store: SqlStore, meter: Meter, monotonic_s: Callable[[], float]) -> None:
    """Let it be told how long it takes until a promise is on the disk."""
    store.watch_commits(lambda took_s: meter.observe("outrider_store_commit_seconds", took_s), monotonic_s)
