"""What `tools/passage.py` counts is there to be counted."""

from __future__ import annotations

import pytest

from tools import passage


def test_every_shape_that_is_counted_is_a_class() -> None:
    assert passage.unknown_shapes() == set()


def test_shape_that_was_renamed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage, "ALL_SHAPES", frozenset(("Reserve", "Led")))

    assert passage.unknown_shapes() == {"Led"}
