"""A batch system that is added by one package and one line of `systems.SYSTEMS`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from outrider.cli.installing.common import headfiles, nodefiles
from outrider.cli.installing.common.findings import Check, ok
from outrider.cli.installing.common.headfiles import file
from outrider.cli.installing.common.nodefiles import NodeKit
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.port import (
    BatchSystemInstallation,
    CommandOption,
    InstallationPlan,
    InstallOutcome,
    SystemOptions,
    UndoneChanges,
)
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.running import SystemRunner
from outrider.cli.installing.systems import SYSTEMS
from outrider.cli.main import main

HOOK = "/usr/lib/outrider/lsf/starter"


class LsfInstallation(BatchSystemInstallation):
    unready = "The queues have no starter yet: without it the first job would fail on"

    def __init__(self, options: argparse.Namespace) -> None:
        self.runner = SystemRunner()
        self.proved_on = ""
        self._queue: str = getattr(options, "queue", "normal")

    def facts(self) -> Mapping[str, object]:
        return {"clusters": ["c1"]}

    def heading(self) -> str:
        return "LSF 10, cluster c1"

    def plan(self) -> InstallationPlan:
        return InstallationPlan(
            missing_users=(), configuration="", folders=(), files=(), changes={"queues": (self._queue,)},
            advice=(), troubles=(), waits_for_nodes="n1", again="outrider init lsf --apply",
            deploy_options="",
        )  # fmt: skip

    def prepare(self) -> None:
        pass

    def apply(self, put: Sequence[str], *, are_others_ready: bool) -> None:
        pass

    def undo(self) -> UndoneChanges:
        return UndoneChanges(changes={"queues": ()})

    def shown(self, outcome: InstallOutcome, *, is_removal: bool) -> Iterator[tuple[str, Sequence[str]]]:
        yield "queues", (self._queue,)

    def node_kit(self, ports: Ports, key: bytes) -> NodeKit:
        return NodeKit(files=(file(HOOK, b"#!/bin/sh\n"),), folders=(), ports=ports)

    def head_checks(self, socket: str) -> Sequence[Check]:
        return [lambda: [ok("head", "lsf", "lim answers")]]


@pytest.fixture(autouse=True)
def lsf(monkeypatch: pytest.MonkeyPatch) -> None:
    options, installation = ModuleType("lsf_installer.options"), ModuleType("lsf_installer.installation")
    vars(options)["OPTIONS"] = SystemOptions(
        summary="install beside LSF", epilog="", parts={"unit": "the unit of systemd"},
        of_init=(CommandOption(name="--queue", metavar="QUEUE", default="normal", help="the queue"),),
    )  # fmt: skip
    vars(installation)["INSTALLATION"] = LsfInstallation
    for module in (ModuleType("lsf_installer"), options, installation):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(SYSTEMS, "lsf", "lsf_installer")


def test_init_plans_and_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "lsf", "--queue", "night"]) == 0
    told = capsys.readouterr().out
    assert main(["init", "lsf", "--queue", "night", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert told.startswith("LSF 10, cluster c1\n\nqueues:\n  night\n")
    assert "first job would fail on n1." in told
    assert told.endswith("next:\n  outrider init lsf --apply\n")
    assert (shown["clusters"], shown["queues"], shown["is_applied"]) == (["c1"], ["night"], False)


def test_init_names_every_batch_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 1
    assert "outrider init slurm, or gridengine, or lsf" in capsys.readouterr().err


def test_deploy_brings_its_files_to_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Remote:
        def call(self, node: str, request: Json) -> Json:
            states = {each["path"]: "missing" for each in request["files"]}
            return {"files": states, "uid": 0, "has_systemd": False}

    monkeypatch.setattr(nodefiles, "site_key", lambda: b"key")
    monkeypatch.setattr("outrider.cli.installing.deploy._remote", lambda arguments: Remote())

    assert main(["deploy", "n1", "--for", "lsf", "--dry-run", "--json"]) == 0
    assert HOOK in json.loads(capsys.readouterr().out)["nodes"][0]["files"]


def test_doctor_looks_at_the_one_that_the_service_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outriderd.yaml").write_text("version: 1\nbackend:\n  kind: lsf\n")
    monkeypatch.setattr(headfiles, "CONFIG", str(tmp_path / "outriderd.yaml"))

    main(["doctor", "--no-nodes", "--json"])

    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"level": "ok", "where": "head", "what": "lsf", "words": "lim answers"} in findings
