"""Promises on a private Slurm: a file of its own, since it takes Slurm's shortest limit, a minute."""

from __future__ import annotations

import pytest

from tests.daemons.bench.forms import measured


@pytest.mark.long
def test_few_promises_are_followed_to_their_end() -> None:
    said = measured("slurm_accuracy")

    assert "accepted 2" in said
    assert said.splitlines()[-1].endswith("everything holds")
