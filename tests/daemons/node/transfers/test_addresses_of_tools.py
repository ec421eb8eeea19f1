"""A daemon that fetches by ssh, sftp and rsync, as its configuration says."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.errors import Unsuitable
from tests.daemons.node.daemons import MIB, Outside, sha256
from tests.unit.cachemgr.fetch.programs import rsync_server, ssh_server

Start = Callable[..., Outside]
CONTENT = b"an image" * (MIB // 8)


@pytest.fixture
def served(tmp_path: Path) -> Path:
    path = tmp_path / "served"
    path.mkdir()
    (path / "image").write_bytes(CONTENT)
    return path


def arrives(daemon: Outside, uri: str) -> bool:
    daemon.ask("add", uri=uri, wait=True)
    return bool(daemon.ask("find", name=uri)["digest"] == f"sha256:{sha256(CONTENT)}")


@pytest.mark.parametrize("scheme", ["ssh", "sftp"])
def test_image_comes_by_ssh_with_the_options_of_the_site(
    outside: Start, served: Path, tmp_path: Path, scheme: str
) -> None:
    with ssh_server(tmp_path) as (port, options):
        daemon = outside(ssh_options=" ".join(options))

        assert arrives(daemon, f"{scheme}://{getpass.getuser()}@127.0.0.1:{port}{served}/image")


def test_image_comes_by_rsync_through_a_scratch_file_that_goes_again(
    outside: Start, served: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with rsync_server(tmp_path, served) as port:
        daemon = outside(rsync_scratch=str(scratch))

        assert arrives(daemon, f"rsync://127.0.0.1:{port}/images/image")
    assert list(scratch.iterdir()) == []


def test_rsync_without_scratch_space_names_the_option(outside: Start) -> None:
    daemon = outside()

    with pytest.raises(Unsuitable, match="set rsync_scratch"):
        daemon.ask("add", uri="rsync://127.0.0.1:1/images/image")
