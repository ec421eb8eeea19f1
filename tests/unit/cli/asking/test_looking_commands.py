"""`outrider status`, `nodes`, `images`, `transfers`, `config`, and what administrators do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cli.asking.configuration import leaves
from outrider.cli.main import main
from outrider.service.answers.leases import Report, ReportLine
from outrider.service.answers.nodes import NodeList, Reconciled
from outrider.store.sqlite.store import SqliteStore
from tests.unit.cli.canned import Reply, Service, serving
from tests.unit.cli.samples import IMAGES, NODES, NOW_S, STATUS, TRANSFERS

Capture = pytest.CaptureFixture[str]


def test_status_is_one_screen(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/status", STATUS)

    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "physics: outriderd 0.1.0"
    assert [line.split("  ")[1] for line in lines[1:] if line[2] != " "] == [
        "running", "promising", "batch system", "nodes", "reservations", "transfers", "link", "decisions",
    ]  # fmt: skip
    assert "  nodes         8 nodes, 7 up, 1 away" in lines
    assert "  reservations  2 accepted, 1 preparing" in lines
    assert "  batch system  embedded, last seen 4 s ago" in lines


def test_status_says_why_nothing_is_promised(service: Service, capsys: Capture) -> None:
    troubles = ("the batch system was not seen since 13:55", "the store's disk is nearly full")
    service.on("GET", "/v1/status", replace(STATUS, is_promising=False, troubles=troubles))
    main(["status"])
    text = capsys.readouterr().out

    assert "  promising     no\n                the batch system was not seen since 13:55\n" in text
    assert "                the store's disk is nearly full\n" in text


def test_nodes_are_a_table_whose_unknown_cells_are_hyphens(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/nodes", NODES)

    assert main(["nodes", "n[1,8]", "-n"]) == 0
    up, away = capsys.readouterr().out.splitlines()
    assert service.last("GET").query == {"names": "n[1,8]"}
    assert up.split() == [
        "n1", "up", "cpus=16,memory=64GiB", "3.0GiB", "20.0GiB", "2", "1", "render-17",
        "2030-03-29T14:30", "-",
    ]  # fmt: skip
    assert away.split(maxsplit=9)[3:] == [
        "-",
        "-",
        "0",
        "0",
        "-",
        "-",
        "its pool does not answer since 14:01",
    ]


def test_nodes_go_on_after_the_last_name(service: Service, capsys: Capture) -> None:
    first = NodeList(nodes=NODES.nodes[:1], next_after="n1")
    service.on("GET", "/v1/nodes", first, replace(NODES, nodes=NODES.nodes[1:]))
    main(["nodes", "-n"])

    assert [each.query for each in service.asked] == [{}, {"after": "n1"}]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["n1", "n8"]


def test_images_say_where_they_are_and_where_they_come_to(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/images", replace(IMAGES, is_complete=False))
    main(["images", "-n"])
    captured = capsys.readouterr()

    assert captured.out.split() == [
        "9f86d081884c", "2.0GiB", "2", "n[3-4]", "n[1-2]", "1", "no", "-", "https://images.example.org/ubuntu.qcow2"
    ]  # fmt: skip
    assert captured.err == "outrider: there are more than the service lists at once\n"


def test_transfers_say_which_is_late(service: Service, capsys: Capture) -> None:
    service.on("GET", "/v1/transfers", TRANSFERS)
    main(["transfers", "-n"])
    running, late = capsys.readouterr().out.splitlines()

    assert running.split()[:7] == ["7", "running", "n[1-2]", "ubuntu.qcow2", "4.0GiB", "41%", "48.0MiB/s"]
    assert running.split()[-1] == "render-17"
    assert late.split()[:2] == ["8", "late"]


@pytest.mark.parametrize("verb", ["status", "nodes", "images", "transfers"])
def test_json_is_the_answer(service: Service, capsys: Capture, verb: str) -> None:
    answers: dict[str, object] = {"status": STATUS, "nodes": NODES, "images": IMAGES, "transfers": TRANSFERS}
    service.on("GET", f"/v1/{verb}", answers[verb])

    assert main([verb, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Reply(value=answers[verb]).content)


def test_configuration_is_lines_of_a_key_and_a_value(service: Service, capsys: Capture) -> None:
    service.on(
        "GET", "/v1/config", {"settings": {"link": {"rate": 5}, "on": True}, "policies": {"rules": []}}
    )

    assert main(["config", "show"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "settings.link.rate = 5", "settings.on = true", "policies.rules = "
    ]  # fmt: skip


def test_every_value_of_a_configuration_has_its_own_key() -> None:
    assert leaves({"rules": [{"a": 1}, {"a": [2, 3]}], "none": None}) == [
        ("rules[0].a", "1"), ("rules[1].a", "2, 3"), ("none", "")
    ]  # fmt: skip


def test_administration_asks_and_tells(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    service.on("POST", "/v1/policies/reload", {"rules": 4})
    service.on(
        "POST",
        "/v1/reconcile",
        Reconciled(findings=("n3 lacks ubuntu.qcow2: sent again",)),
        Reconciled(findings=()),
    )
    service.on("POST", "/v1/backups", {"path": "/b/store.db", "reservations": 12})
    codes = [main(line.split()) for line in ("policies reload", "reconcile", "reconcile", "backup store.db")]

    assert codes == [0, 0, 0, 0]
    assert capsys.readouterr().out.splitlines() == [
        "policies are in force: 4 rules",
        "n3 lacks ubuntu.qcow2: sent again",
        "nothing differs",
        "/b/store.db: 12 reservations, read again and whole",
    ]
    assert service.last("POST").body == {"path": str(tmp_path / "store.db")}


@pytest.mark.parametrize(("theirs", "ours"), [(0, 0), (1, 1), (3, 3), (20, 1)])
def test_configuration_is_checked_by_the_service_s_own_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: int, ours: int
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit {theirs}\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    assert main(["config", "check", "a b.yaml"]) == ours
    assert (tmp_path / "asked").read_text() == "-m outrider.service --check --config a b.yaml\n"


def test_copy_of_a_store_is_put_back_and_what_was_there_is_kept(tmp_path: Path, capsys: Capture) -> None:
    for name in ("store.db", "copy.db"):
        SqliteStore.create(tmp_path / name, NOW_S).close()

    assert main(["restore", str(tmp_path / "copy.db"), "--store", str(tmp_path / "store.db")]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"{tmp_path / 'store.db'} is what {tmp_path / 'copy.db'} was"
    assert others
    assert all(Path(line.removeprefix("what was there before: ")).exists() for line in others)


def test_copy_that_is_not_there_has_the_store_s_exit_code(tmp_path: Path, capsys: Capture) -> None:
    assert main(["restore", str(tmp_path / "none.db"), "--store", str(tmp_path / "store.db")]) == 21
    assert capsys.readouterr().err.startswith("outrider: store ")


@pytest.mark.parametrize("line", [["config"], ["policies"], ["policies", "reloadd"], ["nodes", "a", "b"]])
def test_command_that_is_none_is_an_input_error(line: list[str], capsys: Capture) -> None:
    assert main(line) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_status_imports_nothing_but_the_standard_library_and_ourselves() -> None:
    program = (
        "import sys; from outrider.cli.main import main; code = main(['status']); "
        "foreign = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names); "
        "print(sorted(name for name in foreign if not name.startswith('_')), code)"
    )
    with tempfile.TemporaryDirectory(prefix="or-") as folder, serving(Path(folder) / "s") as service:
        service.on("GET", "/v1/status", STATUS)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False,
            env={**os.environ, "OUTRIDER_SOCKET": str(service.path)},
        )  # fmt: skip

    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "['cachemgr', 'outrider', 'outrider_client'] 0"


def test_report_is_a_table_and_as_values_unrounded(service: Service, capsys: Capture) -> None:
    line = ReportLine(
        payer="physics", reservations=1_200, node_seconds=5_400, charged=1_234_567, booked_reservations=2,
        booked=500, refused=3, lost_to_refusals=900, too_dear=1, lost_to_price=42, machines=4,
        machine_node_seconds=5_400, machine_cpu_seconds=10_800,
    )  # fmt: skip
    answer = Report(by="account", from_s=0, until_s=NOW_S, is_of_all=True, lines=(line,))
    service.on("GET", "/v1/report", answer)

    assert main(["report", "--by", "account", "--from", "2030-03-01", "--to", "2030-04-01"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert main(["report", "--by", "account", "--csv"]) == 0
    values = capsys.readouterr().out.splitlines()

    asked = service.asked[0].query
    assert (asked["by"], asked["since"], asked["until"]) == ("account", "2030-03-01", "2030-04-01")
    charged = ["physics", "1,200", "1.5", "1,234.567", "0.500", "3", "0.900", "1", "0.042"]
    assert table[1].split() == [*charged, "4", "3.0"]
    assert values[1] == "physics,1200,5400,1234567,2,500,3,900,1,42,4,5400,10800"
