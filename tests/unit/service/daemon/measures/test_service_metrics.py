"""What is counted: the table, its form, its limits, and that all code keeps to it."""

from __future__ import annotations

import ast
import re

import pytest

from outrider.service.daemon.measures.metrics import METRICS, MOST_ROWS, TABLE, Metrics
from tests.repository import ROOT

SERVICE = ROOT / "outrider" / "service"
KINDS = {"count": "counter", "set": "gauge", "observe": "histogram"}


def test_text_has_every_metric_with_its_kind() -> None:
    text = Metrics().text().decode()

    for each in METRICS:
        assert f"# TYPE {each.name} {each.kind}\n" in text or (f"# TYPE {each.name} {each.kind}" in text), (
            each.name
        )


def test_numbers_are_what_was_counted() -> None:
    metrics = Metrics()
    metrics.count("outrider_decisions_total", "refused", "link")
    metrics.count("outrider_decisions_total", "refused", "link", by=2)
    metrics.set("outrider_nodes", 7, "up")
    metrics.observe("outrider_slack_at_start_seconds", -61)
    text = metrics.text().decode()

    assert 'outrider_decisions_total{cause="link",result="refused"} 3.0\n' in text
    assert 'outrider_nodes{state="up"} 7.0\n' in text
    assert 'outrider_slack_at_start_seconds_bucket{le="-600.0"} 0.0\n' in text
    assert 'outrider_slack_at_start_seconds_bucket{le="-60.0"} 1.0\n' in text
    assert "_created" not in text


def test_two_services_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.count("outrider_saved_bytes_total", by=5)

    assert (one.value("outrider_saved_bytes_total"), other.value("outrider_saved_bytes_total")) == (5, 0)


def test_labels_cannot_grow_without_end() -> None:
    metrics = Metrics()
    for number in range(MOST_ROWS + 50):
        metrics.count("outrider_alarms_total", f"kind-{number}")
    rows = re.findall(r"^outrider_alarms_total\{", metrics.text().decode(), re.MULTILINE)

    assert len(rows) == MOST_ROWS + 1
    assert metrics.value("outrider_alarms_total", "other") == 50


@pytest.mark.parametrize(
    ("verb", "name", "labels"),
    [
        ("count", "outrider_nodes", ("up",)),
        ("count", "outrider_unheard_of_total", ()),
        ("set", "outrider_nodes", ()),
        ("observe", "outrider_transfer_seconds", ("n1",)),
    ],
)
def test_what_is_not_in_the_table_is_refused(verb: str, name: str, labels: tuple[str, ...]) -> None:
    metrics = Metrics()
    arguments = labels if verb == "count" else (1.0, *labels)
    with pytest.raises(ValueError, match=re.escape(name)):
        getattr(metrics, verb)(name, *arguments)


def uses() -> list[tuple[str, str, str, ast.Call]]:
    """Every call of a meter with a name that is written out: where, how, which."""
    found = []
    for path in sorted(SERVICE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            verb, first = node.func.attr, node.args[0]
            if verb in KINDS and isinstance(first, ast.Constant) and str(first.value).startswith("outrider_"):
                found.append((f"{path.name}:{node.lineno}", verb, str(first.value), node))
    return found


def test_all_code_keeps_to_the_table() -> None:
    wrong = []
    for place, verb, name, call in uses():
        metric = TABLE.get(name)
        labels = len(call.args) - (1 if verb == "count" else 2)
        if metric is None or metric.kind != KINDS[verb]:
            wrong.append(f"{place}: {name}")
        elif labels != len(metric.labels):
            wrong.append(f"{place}: {name} has the labels {metric.labels}")

    assert len(uses()) > 10
    assert wrong == []


def test_every_metric_of_the_table_is_written_somewhere() -> None:
    written = {name for _, _, name, _ in uses()}

    assert sorted(each.name for each in METRICS if each.name not in written) == []
