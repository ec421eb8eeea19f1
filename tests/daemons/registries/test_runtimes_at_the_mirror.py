"""The container runtimes that users have, as Debian has them, pull from the node's mirror."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemons.node.daemons import Inside, eventually
from tests.daemons.registries.registry_server import Registry, need
from tests.daemons.registries.test_images_of_layers import add, login, pin, push, start, tarred

__all__ = ["start"]
TIMEOUT_S = 120
LAYERS = [tarred("usr/common", os.urandom(200_000)), tarred("own", os.urandom(50_000))]


@pytest.fixture(scope="module", autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("container runtimes keep images of root's here")


def ran(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Nothing of this machine's own configuration and storage."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n')
    environment = {
        "PATH": "/usr/bin:/usr/sbin:/bin:/sbin",
        "HOME": str(home),
        "TMPDIR": str(folder),
        "CONTAINERS_STORAGE_CONF": str(storage),
        "REGISTRY_AUTH_FILE": str(folder / "auth-0.json"),
    }
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment
    )


@pytest.fixture
def mirrored(registry: Registry, start: Callable[..., Inside], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The mirror's address, and the digest of an image there whose registry is away."""
    daemon = start()
    digest = push(registry, "team/app", LAYERS)
    add(daemon, registry, "team/app", pin=pin("one"))
    login(daemon, tmp_path)
    registry.kill()
    yield daemon.node.mirror.address, digest
    registry.start()


@pytest.mark.parametrize("program", ["podman", "buildah"])
def test_podman_and_buildah_have_the_image_without_its_registry(
    mirrored: tuple[str, str], tmp_path: Path, program: str
) -> None:
    address, digest = mirrored
    words = [need(program), "pull", "--quiet", "--tls-verify=false"]
    words += ["--signature-policy", str(tmp_path / "policy.json")]

    done = ran([*words, f"{address}/team/app:v1"], tmp_path)
    by_digest = ran([*words, f"{address}/team/app@{digest}"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert by_digest.returncode == 0, by_digest.stderr
    there = ran([need(program), "images", "--digests", "--format", "{{.Digest}}"], tmp_path)
    assert there.stdout.split()
    assert set(there.stdout.split()) == {digest}
    layers = [path.read_bytes() for path in (tmp_path / "graph").rglob("own")]
    assert LAYERS[1][512 : 512 + 50_000] in layers


@contextmanager
def containerd(folder: Path) -> Iterator[str]:
    """A containerd of the test's own; its socket."""
    socket = folder / "containerd.sock"
    config = folder / "containerd.toml"
    disabled = '"io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"'
    config.write_text(
        f'version = 2\nroot = "{folder}/kept"\nstate = "{folder}/state"\ndisabled_plugins = [{disabled}]\n'
        f'[grpc]\naddress = "{socket}"\n'
    )
    with (folder / "containerd.log").open("wb") as log:
        process = subprocess.Popen([need("containerd"), "--config", str(config)], stdout=log, stderr=log)
    try:
        eventually("containerd serves", socket.exists, (folder / "containerd.log").read_text)
        yield str(socket)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)


def test_containerd_has_the_image_without_its_registry(mirrored: tuple[str, str], tmp_path: Path) -> None:
    address, digest = mirrored
    auths = json.loads((tmp_path / "auth-0.json").read_text())["auths"]
    user = subprocess.run(
        ["base64", "-d"], input=auths[address]["auth"], capture_output=True, text=True, check=True
    ).stdout
    with containerd(tmp_path) as socket:
        ctr = [need("ctr"), "--address", socket, "images"]
        words = ["pull", "--plain-http", "--snapshotter", "native", "--user", user]

        done = ran([*ctr, *words, f"{address}/team/app:v1"], tmp_path)
        there = ran([*ctr, "ls"], tmp_path)

    assert done.returncode == 0, done.stderr + done.stdout
    assert digest in there.stdout
