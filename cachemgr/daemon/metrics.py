"""What the daemon counts, and its form for Prometheus. What a name means stands in one table."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cachemgr.pool.index import SqliteIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Labels = tuple[str, ...]


@dataclass(frozen=True)
class NodeMetric:
    """A line of the table."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()


METRICS = (
    NodeMetric("outrider_pool_limit_bytes", "gauge", "what the pool may take of the disk"),
    NodeMetric("outrider_pool_used_bytes", "gauge", "what images, arriving images and full copies take"),
    NodeMetric("outrider_pool_reserved_bytes", "gauge", "what is reserved for images that are arriving"),
    NodeMetric(
        "outrider_pool_capacity_bytes",
        "gauge",
        "what the pool can hold: its limit, or less if its disk is full",
    ),
    NodeMetric("outrider_pool_promised_bytes", "gauge", "what is held for reservations, at the last look"),
    NodeMetric(
        "outrider_pool_held_bytes", "gauge", "what others hold: what cannot be evicted, at the last look"
    ),
    NodeMetric("outrider_pool_images", "gauge", "images in the pool"),
    NodeMetric("outrider_pool_instances", "gauge", "instances of images"),
    NodeMetric("outrider_pool_expired_pins", "gauge", "pins whose time is over, at the last sweep"),
    NodeMetric(
        "outrider_image_requests_total",
        "counter",
        "requests for an image by whether it was here",
        ("result",),
    ),
    NodeMetric(
        "outrider_fetched_bytes_total", "counter", "bytes brought in, by the kind of source", ("source",)
    ),
    NodeMetric("outrider_evicted_images_total", "counter", "images evicted, by the reason", ("reason",)),
    NodeMetric("outrider_transfers", "gauge", "transfers that are remembered, by state", ("state",)),
    NodeMetric("outrider_late_transfers_total", "counter", "transfers that ended after their deadline"),
    NodeMetric(
        "outrider_deadline_slack_seconds", "gauge", "time between the last transfer's end and its deadline"
    ),
    NodeMetric("outrider_requests_total", "counter", "requests on the socket", ("verb", "result")),
    NodeMetric("outrider_connections", "gauge", "open connections on the socket"),
    NodeMetric(
        "outrider_instance_seconds", "histogram", "time from a request to a ready instance", ("method",)
    ),
    NodeMetric(
        "outrider_share_refused_total",
        "counter",
        "how often users were refused more of a shared thing",
        ("thing",),
    ),
    NodeMetric(
        "outrider_share_largest_ratio",
        "gauge",
        "of a shared thing, what the user with most of it has, divided by what one user may have",
        ("thing",),
    ),
    NodeMetric("outrider_start_timestamp_seconds", "gauge", "when the daemon started"),
    NodeMetric(
        "outrider_clock_doubtful", "gauge", "1 while the clock was set and is not trusted yet, else 0"
    ),
    NodeMetric("outrider_last_sweep_timestamp_seconds", "gauge", "when expired things were last looked for"),
)
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.06, 0.1, 0.25, 0.5, 1.0, 5.0)
KINDS = {metric.name: metric for metric in METRICS}


class NodeMetrics:
    """Counters, gauges and histograms of this process. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._values: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        key = self._key(name, labels, "counter")
        with self._guard:
            self._values[key] = self._values.get(key, 0) + by

    def set(self, name: str, value: float, *labels: str) -> None:
        key = self._key(name, labels, "gauge")
        with self._guard:
            self._values[key] = value

    def set_total(self, name: str, value: float, *labels: str) -> None:
        """A counter that is kept elsewhere."""
        key = self._key(name, labels, "counter")
        with self._guard:
            self._values[key] = value

    def set_all(self, name: str, values: Mapping[Labels, float]) -> None:
        """A gauge with all its labels: others than these are nothing now."""
        keys = {self._key(name, labels, "gauge"): value for labels, value in values.items()}
        with self._guard:
            before = dict.fromkeys((key for key in self._values if key[0] == name), 0.0)
            self._values.update({**before, **keys})

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        key = self._key(name, labels, "histogram")
        with self._guard:
            row = self._histograms.setdefault(key, [0.0] * (len(BUCKETS_S) + 2))
            for place, bound in enumerate(BUCKETS_S):
                row[place] += seconds <= bound
            row[-2] += 1
            row[-1] += seconds

    def value(self, name: str, *labels: str) -> float:
        """What a counter or gauge stands at."""
        with self._guard:
            return self._values.get((name, labels), 0)

    def numbers(self) -> dict[str, float]:
        """Everything but histograms, for the verb `stats`."""
        with self._guard:
            return {_named(name, labels): value for (name, labels), value in sorted(self._values.items())}

    def text(self) -> str:
        """Prometheus' text format, version 0.0.4."""
        with self._guard:
            values, histograms = dict(self._values), {key: list(row) for key, row in self._histograms.items()}
        lines: list[str] = []
        for metric in METRICS:
            lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
            if metric.kind == "histogram":
                for (name, labels), row in sorted(histograms.items()):
                    if name == metric.name:
                        lines += _histogram(name, labels, row)
                continue
            rows = sorted((labels, value) for (name, labels), value in values.items() if name == metric.name)
            if not rows and not metric.labels and metric.kind == "counter":
                rows = [((), 0)]
            lines += [f"{_named(metric.name, labels)} {_number(value)}" for labels, value in rows]
        return "\n".join(lines) + "\n"

    def _key(self, name: str, labels: Labels, kind: str) -> tuple[str, Labels]:
        metric = KINDS[name]
        if metric.kind != kind or len(metric.labels) != len(labels):
            raise ValueError(f"{name} is a {metric.kind} with the labels {metric.labels}")
        return name, labels


class CountedIndex(SqliteIndex):
    """The pool's index, telling how many images leave it and why."""

    def __init__(self, path: str, metrics: NodeMetrics) -> None:
        super().__init__(path)
        self._metrics = metrics
        self.reason = threading.local()

    def drop(self, key: str) -> None:
        super().drop(key)
        self._metrics.count("outrider_evicted_images_total", getattr(self.reason, "word", "room"))


def table() -> str:
    """The metrics as a table for the documentation."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.meaning} |" for each in METRICS
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _named(name: str, labels: Iterable[str], more: Mapping[str, str] | None = None) -> str:
    names = KINDS[name].labels if name in KINDS else ()
    pairs = {**dict(zip(names, labels)), **(more or {})}
    inner = ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs.items())
    return f"{name}{{{inner}}}" if inner else name


def _histogram(name: str, labels: Labels, row: list[float]) -> list[str]:
    names = dict(zip(KINDS[name].labels, labels))
    lines = []
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), row):
        lines.append(f"{_named(f'{name}_bucket', (), {**names, 'le': bound})} {_number(count)}")
    lines.append(f"{_named(f'{name}_sum', (), names)} {row[-1]:.6f}")
    lines.append(f"{_named(f'{name}_count', (), names)} {_number(row[-2])}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
