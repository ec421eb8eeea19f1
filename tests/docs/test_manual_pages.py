"""The manual pages of the service and of files: made of what checks them, good roff, each in a package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from outrider.service.daemon.errors import MEANINGS
from outrider.service.daemon.main import _parser as parser
from tests.repository import ROOT
from tools.packages import filemanpages, servicemanpage, tree

PAGES = sorted((ROOT / "docs/man").iterdir())
ENTRY = re.compile(r"^\.TP\n\.B (.+)$", re.MULTILINE)


def entries(name: str) -> list[str]:
    text = (ROOT / "docs/man" / name).read_text()
    return [each.replace("\\-", "-") for each in ENTRY.findall(text)]


def test_pages_are_what_make_man_writes() -> None:
    made = {name: make() for name, make in filemanpages.PAGES.items()}
    made[servicemanpage.PAGE.name] = servicemanpage.page()

    assert {name: (ROOT / "docs/man" / name).read_text() for name in made} == made, "run `make man`"


def test_page_of_the_service_names_every_option_and_exit_code() -> None:
    text = servicemanpage.PAGE.read_text().replace("\\-", "-")
    wanted = {each for action in parser()._actions for each in action.option_strings}

    assert {each for each in wanted if f"\\fB{each}\\fR" not in text} <= {"-h", "--help", "--version"}
    assert {str(code) for code in MEANINGS} <= set(entries("outriderd.8"))


def test_page_of_the_configuration_names_the_keys_of_its_example_and_no_other() -> None:
    text = (ROOT / "outrider/service/daemon/units/outriderd.example.yaml").read_text()
    # Comments begin with one blank, keys with an even number of them.
    lines = [line[1:] for line in text.splitlines() if re.match(r"#(  )*[\w-]+:( |$)", line)]
    example = yaml.safe_load("\n".join(lines))

    def keys(part: object, path: str) -> set[str]:
        if not isinstance(part, dict):
            return {path}
        return {each for name, below in part.items() for each in keys(below, f"{path}.{name}".lstrip("."))}

    assert set(entries("outriderd.yaml.5")) == keys(example, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_good_roff(page: Path) -> None:
    if shutil.which("groff") is None:
        assert not os.environ.get("CI"), "groff is not installed"
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(page)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    name, _, section = page.name.rpartition(".")
    assert f"{name}({section})".upper() in done.stdout.upper()


def test_every_page_is_in_a_package() -> None:
    assert sorted([*tree.HEAD_PAGES, *tree.NODE_PAGES]) == [page.name for page in PAGES]
