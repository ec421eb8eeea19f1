"""Every contract of setup.cfg finds an import that it forbids: in a copy where one is planted for each."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

PACKAGES = ("outrider", "outrider_client", "cachemgr")
CONTRACT = "importlinter:contract:"
# What no module of the product imports so; the contract that forbids it comes first.
PLANTED = (
    ("layers", "outrider.metadata.fields", "outrider.store.records"),
    ("client", "outrider_client.errors", "cachemgr.protocol"),
    ("installations", "outrider.cli.installing.slurm.plan", "outrider.cli.installing.gridengine.plan"),
    ("installations", "outrider.cli.installing.systems", "outrider.cli.installing.common.ports"),
    ("core", "outrider.core.images.pools", "outrider.core.reservations.book"),
    ("core", "outrider.core.nodes.capacity", "outrider.core.besteffort.queue"),
    ("core-besteffort", "outrider.core.besteffort.board", "outrider.core.besteffort.queue"),
    ("core-reservations", "outrider.core.reservations.book", "outrider.core.reservations.admission"),
    ("core-switch", "outrider.core.switch.room", "outrider.core.switch.planner"),
    ("core-rooms", "outrider.core.nodes.capacity", "outrider.core.nodes.timeline"),
    ("pure", "outrider.core.besteffort.jobs.free_spans", "time"),
    ("pure", "outrider.core.model", "cachemgr.base.sizes"),
    ("desk", "outrider.service.desk.jobs.release", "subprocess"),
    ("desk", "outrider.service.desk.views.site", "outrider.service.web.app"),
    ("desk-rooms", "outrider.service.desk.nodes.orders", "outrider.service.desk.jobs.manager"),
    ("desk-rooms", "outrider.service.desk.state.site", "outrider.service.desk.nodes.orders"),
    ("desk-rooms", "outrider.service.desk.reservations.repair", "outrider.service.desk.jobs.job"),
    ("desk-rooms", "outrider.service.desk.jobs.release", "outrider.service.desk.components"),
    ("store-rooms", "outrider.store.sqlite.database", "outrider.store.postgresql.schema"),
    ("node", "cachemgr.pool.policies", "outrider.core.model"),
)
# Rooms of their own must be named in the contract of those around them.
UNTOLD = (
    ("core", "outrider.core"),
    ("core-besteffort", "outrider.core.besteffort"),
    ("core-reservations", "outrider.core.reservations"),
    ("core-switch", "outrider.core.switch"),
    ("desk-rooms", "outrider.service.desk"),
)
SECTION = re.compile(r"^(.+)\n-+\n", re.MULTILINE)


@pytest.fixture(scope="module")
def contracts() -> dict[str, str]:
    """The contracts of setup.cfg: identifier and name."""
    return {
        section.removeprefix(CONTRACT): each["name"]
        for section, each in _configuration().items()
        if section.startswith(CONTRACT)
    }


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, contracts: dict[str, str]) -> dict[str, str]:
    """What import-linter says of each contract after all is planted."""
    folder = _copied(tmp_path_factory.mktemp("contracts"))
    for _, module, imported in PLANTED:
        path = _file_of(folder, module)
        path.write_text(path.read_text() + f"\nimport {imported}\n")
    for _, package in UNTOLD:
        _file_of(folder, f"{package}.untold").write_text('"""Named in no contract."""\n')
    done = _lint_imports(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    texts = SECTION.split(done.stdout.partition("Broken contracts")[2])
    said = dict(zip(texts[1::2], texts[2::2], strict=True))
    return {contract: said.get(name, "") for contract, name in contracts.items()}


def test_contract_of_each_name_has_something_planted(contracts: dict[str, str]) -> None:
    assert {contract for contract, _, _ in PLANTED} == set(contracts)


@pytest.mark.parametrize(("contract", "module", "imported"), PLANTED)
def test_forbidden_import_is_found(broken: dict[str, str], contract: str, module: str, imported: str) -> None:
    assert re.search(rf"^-?\s*{re.escape(module)} -> {re.escape(imported)} ", broken[contract], re.MULTILINE)


@pytest.mark.parametrize(("contract", "package"), UNTOLD)
def test_module_that_its_contract_does_not_name_is_found(
    broken: dict[str, str], contract: str, package: str
) -> None:
    assert f"{package}.untold" in broken[contract]


def _configuration() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / "setup.cfg")
    return found


def _copied(folder: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", folder)
    return folder


def _file_of(folder: Path, module: str) -> Path:
    return folder / (module.replace(".", "/") + ".py")


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run(
        [str(program), "--config", "setup.cfg", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ".", "COLUMNS": "1000"},
    )
