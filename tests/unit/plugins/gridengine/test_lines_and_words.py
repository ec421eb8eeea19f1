"""Lines that stand in a context, and what refusals tell users to write instead."""

from __future__ import annotations

import base64

import pytest

from tests.unit.plugins.gridengine.test_jsv_alone import DIGEST, UNSIGNED, answered


def test_lines_in_a_context_are_handed_on_in_base64() -> None:
    lines = ["image: http://h/a", f"digest: {DIGEST}", "size: 3 GiB"]
    hold, context, *rest = answered("PARAM ac A=1,OUTRIDER=" + lines[0], *lines[1:-1], lines[-1] + ",B=2")

    assert (hold, rest) == ("PARAM h u", [UNSIGNED, "RESULT STATE CORRECT"])
    words = context.removeprefix("PARAM ac ").split(",")
    assert [word.partition("=")[0] for word in words] == ["A", "B", "OUTRIDER", "OUTRIDER_HELD"]
    coded = words[2].removeprefix("OUTRIDER=base64:")
    assert base64.urlsafe_b64decode(coded).decode().splitlines() == lines


@pytest.mark.parametrize(
    "word", ["image=a b", "image=a;digest=12", "image=a;size=2 gigs", "image=a;private=no;format=Ü"]
)
def test_refusal_says_what_to_write(word: str) -> None:
    (line,) = answered(f"PARAM ac OUTRIDER={word}")

    assert ": write " in line
    assert "outrider help" not in line


def test_line_break_does_not_hide_an_image_in_a_context() -> None:
    (line,) = answered("PARAM ac K=a", ",OUTRIDER=http://h/a")

    assert line.startswith("RESULT STATE REJECT outrider: its context cannot be added to")
