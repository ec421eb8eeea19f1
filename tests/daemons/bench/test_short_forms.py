"""Every benchmark is on the list, has a short form that runs, and says what it needs where it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.frame import NOT_MEASURED
from bench.run import BENCHMARKS
from tests.daemons.bench.forms import ALL, LONGEST_S, measured, quick, said_here
from tests.repository import ROOT

# Imported by others, or run by them.
PARTS = (
    "frame",
    "machines_start",
    "relay_node",
    "relay_torrent",
    "run",
    "service_fill",
    "service_load",
    "service_process",
    "service_site",
    "service_world",
    "slurm_records",
)
ANYBODY = (
    *("mixed", "leases", "gangs", "admission", "options", "backfill", "schedule", "switch"),
    *("pool", "machines", "machines_beside", "desk_scale", "stress"),
)
# `service`, `heads`, `page` and `kill` can, too; what takes longer is tried once, by whoever runs the tests.
NEED_ROOT = sorted(set(ALL) - {*ANYBODY, "service", "heads", "page", "kill"})


@pytest.fixture(scope="module")
def plain_python() -> Iterator[tuple[str, ...]]:
    """A Python that has what ours has, for a user who is not root."""
    if os.geteuid() != 0:
        yield (sys.executable,)
        return
    system = "/usr/bin/python3"
    new = subprocess.run([system, "-c", "import sys; raise SystemExit(sys.version_info < (3, 11))"])
    packages = next(Path(each) for each in sys.path if each.endswith("site-packages"))
    closed = [each for each in (*ROOT.parents, *packages.parents) if not each.stat().st_mode & 0o001]
    if new.returncode or closed:
        pytest.skip(f"other users have no Python 3.11 here, or may not enter {closed}")
    with tempfile.TemporaryDirectory(prefix="plain-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([system, "-m", "venv", "--without-pip", name], check=True, timeout=240)
        (next(folder.glob("lib/python3*/site-packages")) / "ours.pth").write_text(f"{packages}\n{ROOT}\n")
        who = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "TMPDIR=/tmp")
        yield (*who, str(folder / "bin" / "python"))


def test_each_file_is_on_the_list_or_part_of_one_that_is() -> None:
    files = {path.stem for path in (ROOT / "bench").glob("*.py")}
    packages = {path.parent.name for path in (ROOT / "bench").glob("*/__main__.py")}

    assert sorted((files | packages) - set(PARTS)) == sorted(each.name for each in BENCHMARKS)


LONG_ONES = ("machines_beside",)
"""Guests that are emulated: `machines` has one of them in the short form."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG_ONES else []) for name in ANYBODY],
)
def test_short_form_runs_to_its_end_for_a_plain_user(name: str, plain_python: tuple[str, ...]) -> None:
    code, said = quick(name, python=plain_python)

    assert code == 0, said
    assert any(character.isdigit() for character in said)


@pytest.fixture(scope="module")
def told_to_plain_users(plain_python: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    """What they say that need root, one after the other in one process."""
    program = (
        "import json, sys; from tests.daemons.bench.forms import said_here; "
        "print(json.dumps({name: said_here(name, '--quick') for name in sys.argv[1:]}))"
    )
    argv = [*plain_python, "-c", program, *NEED_ROOT]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    told: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("name", NEED_ROOT)
def test_plain_user_is_told_what_a_benchmark_needs(
    name: str, told_to_plain_users: dict[str, tuple[int, str]]
) -> None:
    code, said = told_to_plain_users[name]

    assert code == NOT_MEASURED, said
    assert said.startswith("nothing was measured: ")
    assert "root" in said


@pytest.mark.parametrize("name", sorted(ALL))
def test_help_names_the_short_form(name: str) -> None:
    code, said = said_here(name, "--help")

    assert code == 0
    assert "--quick" in said


def test_log_that_is_missing_is_named() -> None:
    argv = [sys.executable, "bench/backfill.py", "nowhere.swf"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240)

    assert done.returncode == NOT_MEASURED
    assert "OUTRIDER_DATA" in done.stdout


def test_hook_waits_for_the_instance_and_keeps_its_key_to_itself() -> None:
    said = measured("hook")

    assert said.count("prolog and task prolog") == 3
    assert "of their bound with one made before" in said
    assert "key" not in said


def test_relay_reaches_all_nodes_in_each_way() -> None:
    said = measured("relay", "--only", "chain,killed,http")

    assert [line.split()[0] for line in said.splitlines()[1:]] == ["chain", "killed", "http"]


@pytest.mark.long
def test_service_answers_all_and_nothing_is_wrong_after_kills() -> None:
    assert " 0 errors; " in measured("service")
    assert "nothing is wrong" in measured("kill")
