"""What the daemon counts, in the form that Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cachemgr.base.errors import CacheError
from cachemgr.daemon import metrics
from cachemgr.daemon.log import quoted
from cachemgr.daemon.verbs import table as verbs
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier
from tests.repository import ROOT
from tools import site_tables

Start = Callable[..., Inside]
A = "http://x/a"
LINE = re.compile(r'([a-z_]+)(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (-?\d+(\.\d+)?(e-?\d+)?)')


@pytest.fixture
def text(inside: Start, carrier: ScriptedCarrier) -> str:
    carrier.contents = {A: b"a" * MIB}
    daemon = inside()
    daemon.ask("add", uri=A)
    daemon.settle()
    daemon.ask("add", uri=A)
    daemon.ask("instance", name=A, owner="o", until_s=CLOCK.now_s() + 60, method="copy")
    with pytest.raises(CacheError):
        daemon.ask("find", name="none")
    with pytest.raises(CacheError):
        daemon.ask('odd"verb\n')
    daemon.ask("release", owner="o")
    daemon.ask("evict", name=A)
    return str(daemon.ask("metrics")["text"])


def test_every_line_is_of_the_format_and_of_a_described_metric(text: str) -> None:
    described = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = {re.sub("_(bucket|sum|count)$", "", line.split("{")[0].split(" ")[0]) for line in lines}

    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert names <= described
    assert described == {metric.name for metric in metrics.METRICS}


@pytest.mark.parametrize(
    "line",
    [
        'outrider_image_requests_total{result="miss"} 1',
        'outrider_image_requests_total{result="hit"} 2',
        'outrider_requests_total{verb="add",result="ok"} 2',
        'outrider_requests_total{verb="find",result="missing"} 1',
        'outrider_requests_total{verb="unknown",result="bad-request"} 1',
        'outrider_evicted_images_total{reason="asked"} 1',
        'outrider_instance_seconds_count{method="copy"} 1',
        'outrider_instance_seconds_bucket{method="copy",le="+Inf"} 1',
        'outrider_transfers{state="done"} 1',
        "outrider_pool_used_bytes 0",
        "outrider_pool_images 0",
        f"outrider_pool_limit_bytes {64 * MIB}",
    ],
)
def test_what_happened_is_counted(text: str, line: str) -> None:
    assert line in text.splitlines()


def test_buckets_hold_everything_below_their_bound() -> None:
    found = metrics.NodeMetrics()
    for seconds in (0.0005, 0.006, 0.006, 9.0):
        found.observe("outrider_instance_seconds", seconds, "reflink")
    lines = found.text().splitlines()

    assert 'outrider_instance_seconds_bucket{method="reflink",le="0.001"} 1' in lines
    assert 'outrider_instance_seconds_bucket{method="reflink",le="0.01"} 3' in lines
    assert 'outrider_instance_seconds_bucket{method="reflink",le="5.0"} 3' in lines
    assert 'outrider_instance_seconds_bucket{method="reflink",le="+Inf"} 4' in lines
    assert 'outrider_instance_seconds_sum{method="reflink"} 9.012500' in lines


def test_label_cannot_end_its_line() -> None:
    found = metrics.NodeMetrics()
    found.count("outrider_fetched_bytes_total", 'a"\n\\', by=3)

    assert r'outrider_fetched_bytes_total{source="a\"\n\\"} 3' in found.text().splitlines()


@pytest.mark.parametrize(
    ("name", "labels"), [("outrider_transfers", ("done",)), ("outrider_requests_total", ("add",))]
)
def test_metric_is_used_as_the_table_says(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="with the labels"):
        metrics.NodeMetrics().count(name, *labels)


def test_documented_verbs_are_the_table() -> None:
    page = (ROOT / "docs/reference/daemon.md").read_text()
    table = site_tables.on_page_markdown(page).split("| verb | fields | answer |")[1].split("\n\n")[0]

    assert re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE) == list(verbs.VERBS)


@pytest.mark.parametrize(
    ("value", "shown"), [("a/b:c", "a/b:c"), ("a b", '"a b"'), ("a\nb=c", '"a\\nb=c"'), ("", '""'), (7, "7")]
)
def test_values_in_the_log_are_one_word_or_quoted(value: object, shown: str) -> None:
    assert quoted(value) == shown


def test_open_connections_are_told(inside: Callable[..., Inside]) -> None:
    daemon = inside()
    with DaemonClient(daemon.socket) as one, DaemonClient(daemon.socket) as other:
        one.ask("ping")
        told = other.ask("stats")["outrider_connections"]

    assert told == 2
