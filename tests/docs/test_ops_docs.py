"""What is installed and written beside the service: docs, units, alerts, the dashboard."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.service.daemon import errors
from outrider.service.daemon.configuration import table as configtable
from outrider.service.daemon.configuration.files import load_config
from outrider.service.daemon.main import _parser
from outrider.service.daemon.measures import metrics
from tests.repository import ROOT
from tools import site_tables

UNITS = ROOT / "outrider/service/daemon/units"
RULES = ROOT / "packaging/outrider.rules.yml"
EXAMPLE = UNITS / "outriderd.example.yaml"
DASHBOARD = ROOT / "packaging/grafana-outrider.json"
PAGE = (ROOT / "docs/reference/outriderd.md").read_text()
OPERATIONS = (ROOT / "docs/howto/operations.md").read_text()


def needed(tool: str, package: str) -> str:
    path = shutil.which(tool)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"{tool} is missing in CI: install the package {package}")
        pytest.skip(f"{tool} is not installed")
    return path


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]


def test_every_key_is_documented_once_with_its_variable_and_default() -> None:
    shown = site_tables.on_page_markdown(section(PAGE, "Configuration"))

    assert "| `link.rate` | `OUTRIDER_LINK_RATE` | `125MB` |" in shown
    assert configtable.table() in shown


def test_every_metric_is_documented_once() -> None:
    assert metrics.table() in site_tables.on_page_markdown(section(PAGE, "Metrics"))


def test_installed_example_has_every_key() -> None:
    assert EXAMPLE.read_text() == configtable.example(), "run outriderd --example"


def without_nothing(value: dict[str, Any]) -> dict[str, Any]:
    """Without keys that have no value, and sections that have no other keys."""
    plain = {key: without_nothing(each) if isinstance(each, dict) else each for key, each in value.items()}
    return {key: each for key, each in plain.items() if each not in (None, {})}


def test_keys_of_the_example_say_what_holds_without_them(tmp_path: Path) -> None:
    """All keys that have a default, as the file has them, change nothing."""
    keys = [line[1:] for line in EXAMPLE.read_text().splitlines() if re.match(r"#(  )*\w+:", line)]
    written = without_nothing(yaml.safe_load("\n".join(keys)))
    written["backend"]["kind"] = "embedded"
    # Who listens there has to say where, too.
    del written["tcp"]
    # Nor does anybody name a bucket, a server or a registry without saying more.
    del written["buckets"], written["tokens"]
    written.pop("logins", None)
    (tmp_path / "written.yaml").write_text(yaml.safe_dump(written))
    (tmp_path / "least.yaml").write_text("version: 1\nbackend: {kind: embedded}\n")

    assert len(keys) > 80
    assert load_config([tmp_path / "written.yaml"], {}) == load_config([tmp_path / "least.yaml"], {})


def test_every_exit_code_is_documented_once() -> None:
    assert errors.table() in site_tables.on_page_markdown(section(PAGE, "Exit codes"))


def test_every_option_is_documented_with_its_help() -> None:
    shown = site_tables.on_page_markdown(section(PAGE, "The command"))
    rows = dict(re.findall(r"^\| `(--[a-z-]+)(?: FILE)?` \| (.+) \|$", shown, re.MULTILINE))
    options = {action.option_strings[-1] for action in _parser()._actions if action.dest != "help"}

    assert set(rows) == options
    for action in _parser()._actions:
        if action.dest not in ("help", "version", "config"):
            assert rows[action.option_strings[-1]] == action.help


def test_configuration_shown_and_the_one_shipped_are_right(tmp_path: Path) -> None:
    shown = re.search(r"<<END\n(.*?)^END$", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    path = tmp_path / "shown.yaml"
    path.write_text(shown[1])

    assert load_config([path], {}).backend.kind == "embedded"
    assert load_config([UNITS / "outriderd.yaml"], {}).site == "my-cluster"


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(UNITS / "outriderd.service")
    return found


def test_unit_is_told_of_the_services_life_and_keeps_to_its_times() -> None:
    service = unit()["Service"]

    assert service["ExecStart"] == "/usr/bin/outriderd"
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert int(service["WatchdogSec"]) > 30, "health looks for a loop that hangs for 30 s"
    assert int(service["TimeoutStopSec"]) >= 8 + 10 + 10
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes <= set(errors.MEANINGS)
    assert all(str(code) in OPERATIONS for code in codes)


def test_entry_point_is_the_one_that_the_unit_starts() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    assert "outriderd = outrider.service.daemon.main:run" in setup["options.entry_points"]["console_scripts"]
    assert "units/*" in setup["options.package_data"]["outrider.service.daemon"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    tool = needed("systemd-analyze", "systemd")
    # The program need not be installed where this is tested.
    text = (UNITS / "outriderd.service").read_text().replace("/usr/bin/outriderd", "/bin/true")
    (tmp_path / "outriderd.service").write_text(text)
    done = subprocess.run(
        [tool, "verify", "--man=no", str(tmp_path / "outriderd.service")],
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert (done.returncode, done.stderr) == (0, "")


def alerts() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def samples() -> dict[str, set[str]]:
    """Every name of a sample, and the labels that it has."""
    found: dict[str, set[str]] = {}
    for each in metrics.METRICS:
        found[each.name] = set(each.labels)
        if each.kind == "histogram":
            del found[each.name]
            found[f"{each.name}_bucket"] = {*each.labels, "le"}
            found[f"{each.name}_sum"] = found[f"{each.name}_count"] = set(each.labels)
    return found


@pytest.mark.parametrize(("where", "expression"), [*alerts(), *expressions()])
def test_alerts_and_dashboard_name_what_is_counted(where: str, expression: str) -> None:
    known = samples()
    used = re.findall(r"(outrider_\w+)(?:\{([^}]*)\})?", expression)

    assert used, where
    for name, matchers in used:
        assert name in known, where
        labels = set(re.findall(r"(\w+)(?:=|!)", matchers)) - {"job"}
        assert labels <= known[name], where


def test_bounds_that_alerts_name_are_bounds_of_histograms() -> None:
    for where, expression in alerts():
        for name, bound in re.findall(r"(outrider_\w+)_bucket\{[^}]*le=\"([^\"]+)\"", expression):
            assert float(bound) in metrics.TABLE[name].buckets, where


def test_every_alert_says_what_to_do() -> None:
    rows = re.findall(
        r"^\| `(Outrider\w+)` \| .{20,} \|$", section(OPERATIONS, "What to watch"), re.MULTILINE
    )

    assert sorted(rows) == sorted(name for name, _ in alerts())


def test_dashboards_panels_do_not_lie_over_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_prometheus_accepts_the_alerts() -> None:
    tool = needed("promtool", "prometheus")
    done = subprocess.run([tool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stdout
