"""The page of the command line against the program: its screens, its tables, and the manual page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.cli.asking.reservations import STATES
from outrider.cli.completion import options, verbs
from outrider.cli.main import main, parser
from outrider.service.answers.leases import LeaseKind
from outrider.store.states import STEPS
from tests.repository import ROOT
from tests.unit.cli.canned import serving
from tests.unit.cli.samples import (
    ACCEPTED,
    DETAILS,
    LIST,
    NOW_S,
    REFUSED,
    SHARES,
    STATUS,
    TIMELINE,
    TRANSFERS,
)
from tools import site_tables, usermanpage

PAGE = site_tables.on_page_markdown((ROOT / "docs/reference/outrider.md").read_text())
LEASES = (ROOT / "docs/reference/workspaces.md").read_text()
LEAVES = [each for each in verbs(parser()) if each.words and not each.below]
SCREENS = [
    (command, screen)
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for command, _, screen in [block.removeprefix("$ ").partition("\n")]
    if screen
]


@pytest.mark.parametrize(("command", "screen"), SCREENS, ids=[str(number) for number in range(len(SCREENS))])
def test_screens_are_what_the_program_prints(
    command: str, screen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr("cachemgr.base.clock.SystemClock.now_s", lambda clock: NOW_S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws.yaml").write_text("version: 1\n")
    for name, value in {"TZ": "UTC", "COLUMNS": "100", "OUTRIDER_SOCKET": "s"}.items():
        monkeypatch.setenv(name, value)
    with serving(Path("s")) as service:
        service.on("POST", "/v1/reservations", REFUSED if "is refused" in screen else ACCEPTED)
        service.on("GET", "/v1/reservations/render-17", DETAILS)
        service.on("GET", "/v1/status", STATUS)
        service.on("GET", "/v1/reservations", LIST)
        service.on("GET", "/v1/timeline", TIMELINE)
        service.on("GET", "/v1/transfers", TRANSFERS)
        service.on("GET", "/v1/shares", SHARES)
        main(shlex.split(command)[1:])

    assert capsys.readouterr().out == screen


def test_page_shows_a_screen_of_each_command_that_has_one() -> None:
    assert {command.split()[1] for command, _ in SCREENS} >= {"reserve", "list", "show", "timeline", "status"}


def test_first_table_names_every_command_that_needs_the_service() -> None:
    named = [found.split() for found in re.findall(r"^\| `(.+?)`", PAGE.split("## ")[0], re.MULTILINE)]
    wanted = [each.words for each in LEAVES if not each.words.startswith(("sim ", "check"))]
    found = [" ".join(words[1:3]) if " ".join(words[1:3]) in wanted else words[1] for words in named]

    assert sorted(found) == sorted(wanted)


def test_states_are_named() -> None:
    assert [each for each in STATES if f"`{each}`" not in PAGE] == []


def test_manual_page_is_made_of_the_parsers() -> None:
    assert usermanpage.PAGE.read_text() == usermanpage.page(), "run `make man`"


def test_manual_page_names_every_command_and_option() -> None:
    text = usermanpage.PAGE.read_text().replace("\\-", "-")
    missing = [each.words for each in LEAVES if f'.SS "outrider {each.words}' not in text]
    missing += [
        name
        for each in LEAVES
        for action in options(each.parser)
        for name in action.option_strings
        if f"\\fB{name}\\fR" not in text
    ]

    assert missing == []


def test_manual_page_is_good_roff() -> None:
    if shutil.which("groff") is None:
        assert not os.environ.get("CI"), "groff is not installed"
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(usermanpage.PAGE)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "OUTRIDER(1)" in done.stdout


def test_steps_of_a_lease_are_those_that_the_store_allows() -> None:
    page = site_tables.on_page_markdown(LEASES.split("### Life of a lease")[1].split("\n## ")[0])
    rows = re.findall(r"^\| `(\w+)` \| (.*)\|$", page, re.MULTILINE)
    told = {state: sorted(re.findall(r"`(\w+)`", to)) for state, to in rows}

    assert told == {state.value: sorted(each.value for each in to) for state, to in STEPS.items()}


def test_kinds_of_lease_are_on_their_page() -> None:
    table = LEASES.split("\n## Leases\n")[1].split("\n### ")[0]

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [each.value for each in LeaseKind]
