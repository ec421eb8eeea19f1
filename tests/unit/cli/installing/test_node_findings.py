"""What the doctor says of a node's disk."""

from __future__ import annotations

import pytest

from outrider.cli.installing.common.findings import Level
from outrider.cli.installing.nodechecks import of_disk

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size_gib", "free_gib", "has_reflinks", "level", "words"),
    [
        (0.5, 0.5, True, Level.WARNING, "is on a file system of 512.0 MiB: mount a larger one there"),
        (100, 0.5, True, Level.WARNING, "only 512.0 MiB free in /var/cache/outrider: see what takes it"),
        (100, 50, True, Level.OK, "instances are reflinks"),
        (
            100,
            50,
            False,
            Level.OK,
            "no reflinks: disk images get overlays of qcow2, what is not a disk image is copied",
        ),
    ],
)
def test_remedy_for_a_disk_fits_what_is_wrong_with_it(
    size_gib: float, free_gib: float, has_reflinks: bool, level: Level, words: str
) -> None:
    pool = {
        "size_bytes": int(size_gib * GIB), "free_bytes": int(free_gib * GIB), "has_reflinks": has_reflinks,
    }  # fmt: skip

    found = of_disk("n1", pool)

    assert [each.level for each in found] == [level]
    assert words in found[0].words
