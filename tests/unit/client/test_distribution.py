"""The client's own wheel: it has all that it needs, and nothing of the service."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import outrider
import outrider_client
from outrider_client.answers import Decision
from testbed.wheel import client
from tests.repository import ROOT
from tests.unit.cli.canned import serving
from tests.unit.cli.samples import STATUS
from tools.client_answers import TARGET, formatted, written
from tools.client_reference import reference
from tools.site_tables import on_page_markdown

ASK = "from outrider_client import Outrider; print(Outrider(socket={socket!r}).status().site)"
LOADED = "import outrider_client.service; print(*{each.partition('.')[0] for each in sys.modules})"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client(tmp_path_factory.mktemp("wheel"))


def test_wheel_alone_asks_the_service(wheel: Path, tmp_path: Path) -> None:
    socket = str(tmp_path / "s")
    with serving(Path(socket)) as service:
        service.on("GET", "/v1/status", STATUS)
        done = alone(wheel, ASK.format(socket=socket))

    assert done == STATUS.site


def test_wheel_loads_nothing_beside_itself_and_the_standard_library(wheel: Path) -> None:
    loaded = set(alone(wheel, LOADED).split())

    assert loaded - set(sys.stdlib_module_names) - {"__main__"} == {"outrider_client"}


def test_wheel_says_from_which_python_on_and_that_it_has_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(archive.read(each).decode() for each in names if each.endswith("/METADATA"))

    assert re.search(r"^Requires-Python: >=3\.9$", about, re.MULTILINE)
    assert not re.search(r"^Requires-Dist:", about, re.MULTILINE)
    assert "outrider_client/py.typed" in names
    assert not [each for each in names if each.startswith("outrider/")]


def test_client_and_service_are_of_one_version() -> None:
    assert outrider_client.__version__ == outrider.__version__


def test_answers_are_those_of_the_service() -> None:
    assert formatted(written()) == TARGET.read_text(), "run python -m tools.client_answers"


def test_every_offered_name_is_there() -> None:
    assert all(hasattr(outrider_client, name) for name in outrider_client.__all__)
    assert outrider_client.Decision is Decision


def test_reference_has_every_method_with_its_signature() -> None:
    text = reference()

    for name in ("reserve", "plan", "wait", "submit", "reservations", "jobs", "show", "cancel"):
        assert f"`{name}(" in text, name
    page = (ROOT / "docs/reference/api.md").read_text()
    assert text in on_page_markdown(page)


def alone(wheel: Path, program: str) -> str:
    """What a program prints that has the wheel and the standard library, and nothing else."""
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {program}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
