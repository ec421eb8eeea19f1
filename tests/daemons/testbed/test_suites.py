"""Trees of other suites: which one serves a version, and when one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.records import TestbedError
from testbed.suites import PACKAGES, STAMP, tree_of, version_in
from tests.daemons.testbed.clusters import needs_slurm


def test_machine_itself_is_the_tree_of_its_own_version(tmp_path: Path) -> None:
    needs_slurm()
    own = version_in(Path("/"))
    assert own is not None
    short = ".".join(own.split(".")[:2])

    assert tree_of(None, tmp_path) == Path("/")
    assert tree_of(short, tmp_path) == Path("/")
    assert list(tmp_path.iterdir()) == []


def test_version_that_no_suite_has_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"no testbed of Slurm 9\.9: there are 22\.05, 24\.11, 26\.05"):
        tree_of("9.9", tmp_path)


def test_tree_of_other_packages_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sid/etc").mkdir(parents=True)
    (tmp_path / "sid" / STAMP).write_text("slurmd\n")
    with pytest.raises(TestbedError, match=r"sid has not the packages of this testbed: rm -r it"):
        tree_of("26.05", tmp_path)


def test_tree_whose_suite_has_gone_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sid/etc").mkdir(parents=True)
    (tmp_path / "sid" / STAMP).write_text("\n".join(PACKAGES))
    with pytest.raises(TestbedError, match=r"sid has Slurm None, not 26\.05"):
        tree_of("26.05", tmp_path)
