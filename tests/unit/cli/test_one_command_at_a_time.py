"""A command line imports the module of its command alone, and notices no difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outrider.cli.completion import Verb, verbs
from outrider.cli.main import MODULES, parser
from outrider.cli.simulate import MODULES as SIMULATED
from tests.repository import ROOT

WORDS = sorted(word for words in MODULES.values() for word in words)


def helps(found: list[Verb], word: str) -> dict[str, str]:
    return {each.words: each.parser.format_help() for each in found if each.words.split()[:1] == [word]}


@pytest.mark.parametrize("word", WORDS)
def test_command_alone_is_as_it_is_among_all(word: str) -> None:
    everything, alone = list(verbs(parser())), list(verbs(parser(word)))

    assert helps(alone, word)
    assert helps(alone, word) == helps(everything, word)


@pytest.mark.parametrize("word", SIMULATED)
def test_command_of_the_simulator_alone_is_as_it_is_among_all(word: str) -> None:
    whole = f"sim {word}"
    everything = {each.words: each.parser.format_help() for each in verbs(parser())}
    alone = {each.words: each.parser.format_help() for each in verbs(parser("sim", word))}

    assert {words for words in alone if words.startswith("sim ") and not words.startswith(whole)} == set()
    assert alone[whole] == everything[whole]


def test_every_command_but_completion_has_its_module() -> None:
    known = {each.words for each in verbs(parser()) if each.words and " " not in each.words}

    assert known - {"completion"} == set(WORDS)


def test_status_does_not_import_the_simulator_or_other_commands() -> None:
    code = "import sys; from outrider.cli.main import parser; parser('status'); print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    loaded = set(said.stdout.split())
    assert "outrider.cli.asking.listing" in loaded
    assert not {"outrider.cli.simulate", "outrider.cli.asking.reserve", "outrider.cli.check"} & loaded


def test_run_of_a_site_imports_neither_batch_systems_nor_other_commands() -> None:
    workload = str(ROOT / "tests" / "data" / "leases.lwf")
    code = (
        "import sys; from outrider.cli.main import main; "
        f"print(main(['sim', 'run', {workload!r}])); print(*sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    loaded = set(said.stdout.splitlines()[-1].split())
    assert "outrider.sim.world" in loaded
    assert not {
        each for each in loaded if each.startswith(("outrider.sim.batch.", "outrider.core.besteffort.jobs."))
    }
    assert not {"outrider.cli.simulate.table", "outrider.cli.simulate.sweep"} & loaded
