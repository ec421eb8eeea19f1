"""`outrider check`: what it prints, its exit codes, and that the docs show just that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.core.model import Resources, Workspace
from outrider.metadata.decision import Allowed, PolicyRefusal, Requester
from outrider.metadata.external import ask, program_runner, question_of
from outrider.metadata.notation import durations, hostlists
from outrider.metadata.notation.times import parse_instant
from outrider.metadata.policies import ExternalSection, Policies
from outrider.metadata.validation import Circumstances, json_schema
from outrider.metadata.workspace import WorkspaceFile
from tests.repository import ROOT
from tools import site_tables

PAGE = site_tables.on_page_markdown((ROOT / "docs/reference/workspaces.md").read_text())
# The page on both kinds of file: what it says of workspaces, and what it says of policies.
PAGES = dict(zip(("workspaces", "policies"), PAGE.split("\n## Policies\n"), strict=True))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| (`.*?) \|", re.MULTILINE)
"""The first cell of a row whose table is about code."""
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d")


def blocks(kind: str, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(PAGES[kind]) if found == language]


def section(kind: str, heading: str) -> str:
    """What stands below a heading of either level, up to the next."""
    return re.split(rf"^##+ {re.escape(heading)}\n", PAGES[kind], flags=re.MULTILINE)[1].split("\n##")[0]


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all files that the docs show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    for kind in PAGES:
        for body in blocks(kind, "yaml"):
            (tmp_path / body.split("\n")[0].removeprefix("# ")).write_text(body.split("\n", 1)[1])
    return tmp_path


@pytest.mark.parametrize("kind", PAGES)
def test_docs_show_what_is_printed(kind: str, examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions = [each for body in blocks(kind, "console") for each in body.split("$ outrider ")[1:]]
    for session in sessions:
        command, expected = session.split("\n", 1)
        code = main(command.split())
        printed = capsys.readouterr()

        assert INSTANT.sub("TIME", printed.out + printed.err) == INSTANT.sub("TIME", expected)
        assert code == (1 if "faults found" in expected else 0)
    assert sessions


@pytest.mark.parametrize(("name", "model"), [("workspace", WorkspaceFile), ("policies", Policies)])
def test_committed_schema_is_that_of_the_models(
    name: str, model: type[WorkspaceFile] | type[Policies], capsys: pytest.CaptureFixture[str]
) -> None:
    committed = (ROOT / f"outrider/metadata/{name}.schema.json").read_text()
    options = ["--policies"] if name == "policies" else []

    assert json.loads(committed) == json_schema(model), (
        f"write it anew with outrider check --schema, {options}"
    )
    assert main(["check", "--schema", *options]) == 0
    assert capsys.readouterr().out == committed


@pytest.mark.parametrize(("kind", "model"), list(zip(PAGES, (WorkspaceFile, Policies), strict=True)))
def test_every_key_is_documented_with_its_section(
    kind: str, model: type[WorkspaceFile] | type[Policies]
) -> None:
    schema = json_schema(model)
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    tables = section(kind, f"Keys of {kind}").split("\nOf ")
    documented = [{code for row in ROW.findall(table) for code in CODE.findall(row)} for table in tables]

    for part in (schema, *definitions.values()):
        assert set(part["properties"]) in documented


@pytest.mark.parametrize(("heading", "least"), [("Times", 25), ("Durations", 10), ("Sets of nodes", 4)])
def test_every_form_in_the_docs_is_understood(heading: str, least: int, circumstances: Circumstances) -> None:
    forms = [form for row in ROW.findall(section("workspaces", heading)) for form in CODE.findall(row)]
    for form in forms:
        if heading == "Times":
            assert parse_instant(form, now_s=circumstances.now_s, zone=circumstances.zone) > 0
        elif heading == "Durations":
            assert durations.parse_duration(form) > 0
        else:
            assert len(hostlists.expand(form)) > 3

    assert len(forms) >= least


def wanted(nodes: int) -> Workspace:
    return Workspace(
        name="web", instances=nodes, resources=Resources.of(cpus=1), start_s=1_800_000_000, duration_s=60
    )


def test_program_in_the_docs_does_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "may-reserve"
    path.write_text(blocks("policies", "python")[0].replace("/usr/bin/env python3", sys.executable))
    path.chmod(0o755)
    section_ = ExternalSection.model_validate({"command": [str(path)], "timeout": "60s"})

    def answer(nodes: int) -> Allowed | PolicyRefusal:
        return ask(
            section_, wanted(nodes), Requester(user="ada"), program_runner(lambda: 0.0), now_s=1_795_280_400
        )

    assert answer(32) == Allowed(rule="external")
    assert answer(33) == PolicyRefusal(
        rule="external",
        sentence="the site's own policy: no more than 32 nodes in the week of the conference",
    )


def test_question_in_the_docs_has_the_keys_of_a_real_one() -> None:
    shown = json.loads(blocks("policies", "json")[0])

    assert set(shown) == set(question_of(wanted(1), Requester(user="ada"), 0))
    assert set(shown["who"]) == set(Requester.__dataclass_fields__)


def test_json_says_what_was_found(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "web.yaml", "draft.yaml"]) == 1

    web, draft = json.loads(capsys.readouterr().out)["files"]
    assert web == {
        "file": "web.yaml",
        "is_valid": True,
        "understood": "workspace web, metadata alone",
        "notes": [],
        "faults": [],
    }
    assert not draft["is_valid"]
    assert draft["faults"][1] == {
        "line": 8,
        "column": 10,
        "key": "deployment.nodes",
        "message": '"four" is not a whole number',
    }


def test_best_effort_and_deadlines_are_said(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = Path("web.yaml").read_text()
    Path("a.yaml").write_text(web + "deployment: {nodes: 2, duration: 90}\n")
    Path("b.yaml").write_text(web + "deployment: {nodes: 2, duration: 90, finish_by: now+3hours}\n")

    assert main(["check", "a.yaml", "b.yaml"]) == 0
    best_effort, deadline = capsys.readouterr().out.splitlines()
    assert best_effort == "a.yaml: workspace web, 2 nodes for 1h30m, best effort"
    assert INSTANT.sub("TIME", deadline) == "b.yaml: workspace web, 2 nodes for 1h30m to end by TIME"


def test_file_that_cannot_be_read_does_not_hide_the_others(
    examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "none.yaml", "web.yaml", "."]) == 1

    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "none.yaml:1:1: cannot be read (No such file or directory): check its name, and who may read it",
        "web.yaml: workspace web, metadata alone",
        ".:1:1: cannot be read (Is a directory): check its name, and who may read it",
    ]
    assert printed.err == "outrider: faults found: 2 in 2 of 3 files\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name files to check, or give --schema alone"),
        (["--schema", "web.yaml"], "name files to check, or give --schema alone"),
        (["--json", "--schema"], "not allowed with"),
    ],
)
def test_command_line_that_means_nothing_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_unknown_zone_is_refused(
    examples: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Nowhere")

    assert main(["check", "web.yaml"]) == 1
    assert 'TZ="Europe/Nowhere" is not a zone' in capsys.readouterr().err


@pytest.mark.parametrize("library", ["yaml", "pydantic"])
def test_missing_library_is_said_with_what_installs_it(
    library: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    assert main(["check", "web.yaml"]) == 3
    assert f"needs {library}: in a clone of Outrider, pip install '.[service]'" in capsys.readouterr().err


def test_help_and_other_commands_need_neither_library() -> None:
    program = (
        "import sys; from outrider.cli.main import main; main(['check', '--help']); main(['sim', '--help']); "
        "print(sorted({'yaml', 'pydantic'} & set(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, cwd=ROOT, check=True
    )

    assert finished.stdout.splitlines()[-1] == "[]"
