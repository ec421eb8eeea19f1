"""What the packages bring, where no package has to be built to see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.packages import __main__ as packages
from tools.packages import tree


def test_shells_complete_the_commands_of_a_node(tmp_path: Path) -> None:
    tree.node(tmp_path)

    found = {
        place: (tmp_path / "usr/share" / place).read_text()
        for place in (
            "bash-completion/completions/cachemgr",
            "zsh/vendor-completions/_cachemgr",
            "fish/vendor_completions.d/cachemgr.fish",
        )
    }
    assert all("cachemgr" in text and "serve" in text for text in found.values()), found


def test_what_packages_are_made_with_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["tools.packages"])

    code = packages.main()

    assert code == 1
    assert "apt install dpkg gcc rpm" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
