"""What the service counts, and its form for Prometheus. What a name means stands in one table.

Labels come from small closed sets, never from users; should one grow all the same, what is too
many is counted under `other`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

MOST_ROWS = 200
"""How many combinations of labels one metric may have."""
OTHER = "other"

QUICK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TRANSFER_S = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)
SLACK_S = (-3600.0, -600.0, -60.0, -1.0, 0.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A line of the table."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="counter", meaning=meaning, labels=labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", meaning=meaning, labels=labels)


def _histogram(name: str, buckets: tuple[float, ...], meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="histogram", meaning=meaning, labels=labels, buckets=buckets)


METRICS = (
    _counter(
        "outrider_decisions_total",
        "decided requests for reservations, by outcome and cause; the cause of accepted ones is -",
        "result",
        "cause",
    ),
    _counter("outrider_requests_total", "requests at the API by route and status", "route", "code"),
    _histogram("outrider_request_seconds", QUICK_S, "time from a request to its answer", "route"),
    _histogram(
        "outrider_slack_at_start_seconds",
        SLACK_S,
        "how long before a reservation's start its image was on all nodes; negative if it was late",
    ),
    _histogram("outrider_transfer_seconds", TRANSFER_S, "how long transfers took"),
    _gauge("outrider_transfers", "transfers that are not over, by state", "state"),
    _gauge("outrider_reservations", "reservations that are not over, by state", "state"),
    _gauge("outrider_pools_used_bytes", "what is used of all pools that have reported"),
    _gauge("outrider_pools_limit_bytes", "what all pools that have reported may take"),
    _gauge("outrider_pool_most_used_ratio", "how full the fullest pool is, from 0 to 1"),
    _gauge("outrider_link_busy_ratio", "1 while a transfer for a reservation has the link, else 0"),
    _gauge(
        "outrider_link_doubted", "1 while transfers from several servers get much less than link.rate, else 0"
    ),
    _counter("outrider_link_bytes_total", "bytes of images whose transfers have ended"),
    _counter("outrider_saved_bytes_total", "bytes that needed no transfer: the image was there already"),
    _counter(
        "outrider_alarms_total", "promises that came into danger (endangered), and the link (link)", "kind"
    ),
    _gauge("outrider_jobs", "best-effort jobs that name an image, by state", "state"),
    _gauge("outrider_jobs_overdue", "of these, those that have waited longer than they should"),
    _counter("outrider_jobs_staged_total", "best-effort jobs whose image has come to where they may start"),
    _counter(
        "outrider_jobs_yielding_total",
        "preemptible jobs that made way: signalled, told to save their machine (saving), requeued, or late, "
        "if a reservation came into danger",
        "step",
    ),
    _histogram(
        "outrider_job_wait_seconds",
        TRANSFER_S,
        "how long best-effort jobs were held until their image was where they may start",
    ),
    _counter("outrider_best_effort_copies_total", "copies that best-effort transfers have brought"),
    _gauge("outrider_effects_waiting", "changes that the batch system has still to be told of"),
    _gauge("outrider_nodes", "nodes that are up, are not-up, or whose pool is away", "state"),
    _gauge("outrider_sight_age_seconds", "how long ago the batch system was seen"),
    _gauge("outrider_loop_lag_seconds", "how long the last event waited for the desk"),
    _gauge("outrider_inbox_requests", "requests that wait for the desk"),
    _histogram("outrider_desk_seconds", QUICK_S, "time that the desk took for an event", "event"),
    _histogram("outrider_store_commit_seconds", QUICK_S, "time until a change was on the disk"),
    _counter("outrider_desk_restarts_total", "times the desk was made again from the store after a fault"),
    _gauge(
        "outrider_calls_running",
        "calls under way, to nodes (node), the batch system (rms), for submissions, the policies' program, "
        "and for looking up images (lookup)",
        "to",
    ),
    _counter("outrider_calls_total", "calls that came back, by whether they did", "to", "result"),
    _gauge(
        "outrider_shared_held",
        "what all users have together of a thing that they share, on the head (head) or as nodes last "
        "reported (nodes); who has it: outrider top",
        "thing",
        "where",
    ),
    _gauge(
        "outrider_shared_limit", "what one user may have of it there; 0: there is no limit", "thing", "where"
    ),
    _gauge(
        "outrider_shared_most_ratio",
        "the largest part of that limit that any one user has, on any one node",
        "thing",
        "where",
    ),
    _counter("outrider_shared_refused_total", "how often more of it was refused to a user", "thing", "where"),
    _counter("outrider_reconcile_findings_total", "what store, batch system and nodes differed in", "kind"),
    _gauge("outrider_last_reconcile_timestamp_seconds", "when all was last compared"),
    _gauge("outrider_last_backup_timestamp_seconds", "when the store was last copied; 0 if never"),
    _counter("outrider_backups_total", "copies of the store by result", "result"),
    _gauge("outrider_start_timestamp_seconds", "when the service started"),
    _gauge("outrider_clock_doubtful", "1 while the clock was set and is not trusted yet, else 0"),
    _gauge("outrider_ready", "1 while reservations are accepted, else 0"),
)
TABLE = {each.name: each for each in METRICS}


class Metrics:
    """Counters, gauges and histograms of one service. Safe for several threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._rows: dict[str, set[tuple[str, ...]]] = {each.name: set() for each in METRICS}
        for each in METRICS:
            self._add(each)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        labels = self._checked(name, "counter", labels)
        found = self._counters[name]
        (found.labels(*labels) if labels else found).inc(by)

    def set(self, name: str, value: float, *labels: str) -> None:
        labels = self._checked(name, "gauge", labels)
        found = self._gauges[name]
        (found.labels(*labels) if labels else found).set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        labels = self._checked(name, "histogram", labels)
        found = self._histograms[name]
        (found.labels(*labels) if labels else found).observe(value)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(_WithoutCreated(self._registry))

    def value(self, name: str, *labels: str) -> float | None:
        """What a sample is now; the name is one of the text format, such as `…_count`."""
        known = TABLE.get(name) or TABLE[name.rpartition("_")[0]]
        return self._registry.get_sample_value(name, dict(zip(known.labels, labels, strict=True)))

    def _add(self, metric: Metric) -> None:
        if metric.kind == "counter":
            self._counters[metric.name] = Counter(
                metric.name, metric.meaning, metric.labels, registry=self._registry
            )
        elif metric.kind == "gauge":
            self._gauges[metric.name] = Gauge(
                metric.name, metric.meaning, metric.labels, registry=self._registry
            )
        else:
            self._histograms[metric.name] = Histogram(
                metric.name, metric.meaning, metric.labels, buckets=metric.buckets, registry=self._registry
            )

    def _checked(self, name: str, kind: Kind, labels: tuple[str, ...]) -> tuple[str, ...]:
        metric = TABLE.get(name)
        if metric is None or metric.kind != kind or len(metric.labels) != len(labels):
            raise ValueError(f"there is no {kind} {name} with {len(labels)} labels in the table of metrics")
        rows = self._rows[name]
        if labels in rows:
            return labels
        if len(rows) >= MOST_ROWS:
            return (OTHER,) * len(labels)
        # Two threads may add one each at the same time: the limit is not that exact.
        rows.add(labels)
        return labels


class _WithoutCreated(Collector):
    """All samples, but not when each series began: that doubles the text, and nobody reads it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


def table() -> str:
    """The metrics as a table for the documentation."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.meaning} |" for each in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
