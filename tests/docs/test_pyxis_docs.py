"""docs/howto/tools.md against the programs: every option once, each name of an image as it is read."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.repository import ROOT

PAGE = (ROOT / "docs/howto/tools.md").read_text()
EXAMPLE = ROOT / "plugins/pyxis/pyxis.conf.example"
HUB = "docker:registry-1.docker.io/library/ubuntu"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package beside the importer, which is no part of the distribution."""
    monkeypatch.syspath_prepend(ROOT / "plugins/pyxis")
    return lambda name: importlib.import_module(f"outrider_pyxis.{name}")


def test_example_has_every_option_with_its_default_and_meaning(plugin: Any) -> None:
    options = plugin("config").OPTIONS
    lines = [f"# {meaning}\n# {name} = {default}".rstrip() for name, (default, meaning) in options.items()]

    assert EXAMPLE.read_text().split("[pyxis]\n")[1].splitlines() == "\n".join(lines).splitlines()
    assert (
        f'--8<-- "{EXAMPLE.relative_to(ROOT)}"'
        in PAGE.split("### Configuration of the importer")[1].split("\n### ")[0]
    )


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("docker://ubuntu", "registry", f"{HUB}:latest"),
        ("docker://ubuntu:24.04", "registry", f"{HUB}:24.04"),
        ("docker://library/ubuntu:24.04", "registry", f"{HUB}:24.04"),
        (f"docker://ubuntu:24.04@{DIGEST}", "registry", f"{HUB}@{DIGEST}"),
        ("docker://localhost:5000#team/a_b.c:1", "registry", "docker:localhost:5000/team/a_b.c:1"),
        ("docker://$oauthtoken@nvcr.io#nvidia/cuda:12", "registry", "docker:nvcr.io/nvidia/cuda:12"),
        ("docker://http://h/a.sqsh", "address", "http://h/a.sqsh"),
        ("docker://file:///a%20b", "file", "/a b"),
        ("docker://outrider://name", "pool", "name"),
        ("dockerd://ubuntu", "local", "dockerd://ubuntu"),
    ],
)
def test_each_way_to_name_an_image_is_read_as_the_page_says(
    plugin: Any, text: str, kind: str, name: str
) -> None:
    found = plugin("reference").read_wanted(text)

    assert (found.kind, found.reference.pool_name if found.reference else found.text) == (kind, name)


@pytest.mark.parametrize(
    "text",
    [
        "[pyxis]\nlease = 0\n",
        "[pyxis]\nlese = 1h\n",
        "[other]\n",
        "no section",
        "[pyxis]\nimport_command = enroot import\n",
        "[pyxis]\nsocket = s\n",
        "[pyxis]\nfallback = maybe\n",
        "[pyxis]\nconverter_waiting = many\n",
    ],
)
def test_wrong_configuration_is_an_error_that_names_the_file(plugin: Any, tmp_path: Any, text: str) -> None:
    path = tmp_path / "pyxis.conf"
    path.write_text(text)

    with pytest.raises(Exception, match=r"pyxis\.conf"):
        plugin("config").load(str(path))


def test_without_a_file_the_defaults_hold(plugin: Any, tmp_path: Any) -> None:
    found = plugin("config").load(str(tmp_path / "none"))

    assert (found.lease_s, found.import_command[0], found.converter) == (3600, "enroot", "")
