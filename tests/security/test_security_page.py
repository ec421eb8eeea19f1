"""The page on security names tests that there are."""

from __future__ import annotations

import re

from tests.repository import ROOT

PAGE = ROOT / "docs" / "explanation/security.md"


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    defined = {
        name
        for path in (ROOT / "tests").glob("**/test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }

    assert len(named) > 30
    assert named - defined == set()


def test_each_attack_of_this_folder_is_on_the_page() -> None:
    text = PAGE.read_text()
    here = [
        name
        for path in (ROOT / "tests" / "security").glob("test_*.py")
        if path.name != "test_security_page.py"
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    ]

    # What is still possible is no attack.
    allowed = {"test_public_copy_of_another_node_is_a_source_after_a_failure"}
    assert [name for name in here if f"`{name}`" not in text and name not in allowed] == []
