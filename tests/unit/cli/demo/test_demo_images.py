"""The demo's images are what their digests and their format say."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from cachemgr.instances.qcow2 import inspect_qcow2
from outrider.cli.demo.images import CLUSTER_BYTES, DemoImageServer, write_image

CONTENT_BYTES = 3 * CLUSTER_BYTES - 1


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "render.qcow2"
    write_image(path, CONTENT_BYTES)
    return path


def test_image_has_its_digest_beside_it(image: Path) -> None:
    digest = hashlib.sha256(image.read_bytes()).hexdigest()

    assert image.with_name("render.qcow2.sha256").read_text() == f"{digest}  render.qcow2\n"


def test_pools_take_the_image_for_a_disk_of_full_clusters(image: Path) -> None:
    assert inspect_qcow2(image.read_bytes()[:CLUSTER_BYTES]).virtual_bytes == 3 * CLUSTER_BYTES


def test_disk_in_the_image_is_its_random_bytes(image: Path, tmp_path: Path) -> None:
    if shutil.which("qemu-img") is None:
        assert not os.environ.get("CI"), "qemu-img is not installed"
        pytest.skip("qemu-img is not installed")
    raw = tmp_path / "raw"
    for words in (("check", str(image)), ("convert", "-O", "raw", str(image), str(raw))):
        done = subprocess.run(["qemu-img", *words], capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    assert raw.read_bytes() == image.read_bytes()[5 * CLUSTER_BYTES :]


def test_server_gives_an_image_as_it_is(image: Path) -> None:
    server = DemoImageServer(image.parent)
    try:
        with urlopen(f"{server.address}/render.qcow2", timeout=240) as answer:
            given = answer.read()
    finally:
        server.stop()

    assert given == image.read_bytes()
