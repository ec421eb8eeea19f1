"""A library for submissions that is configured and not there is named when the service starts."""

from __future__ import annotations

import getpass
import io
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.steady import SteadyClock
from outrider.rms.base import BatchSystem
from outrider.service.daemon.configuration.backend import BackendSection
from outrider.service.daemon.errors import BackendError
from outrider.service.daemon.log import make_log
from outrider.service.daemon.world import cluster


def made(folder: Path, library: str) -> BatchSystem:
    for name in cluster.GRIDENGINE_COMMANDS:
        (folder / name).touch(0o755)
    section = BackendSection.model_validate(
        {
            "kind": "gridengine",
            "gridengine": {"commands": str(folder), "account": getpass.getuser(), "drmaa": library},
        }
    )
    clock = SystemClock()
    log = make_log(io.StringIO(), level="info", format="text", clock=clock, environment={})
    return cluster.CLUSTERS["gridengine"](section, SteadyClock(clock), log)


def test_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no library .*/libdrmaa.so: install gridengine-drmaa1.0"):
        made(tmp_path, f"{tmp_path}/libdrmaa.so")


def test_python_without_its_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libdrmaa.so"
    library.touch()
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)

    with pytest.raises(BackendError, match=r"no module drmaa.* install python3-drmaa"):
        made(tmp_path, str(library))


def test_with_both_the_service_starts(tmp_path: Path) -> None:
    library = tmp_path / "libdrmaa.so"
    library.touch()

    assert made(tmp_path, str(library)) is not None
