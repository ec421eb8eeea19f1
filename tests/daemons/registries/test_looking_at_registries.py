"""The head asks a real registry which image a reference stands for."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import socket
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.service.images.slowness import host_of
from outrider.service.ports import FoundImage, ImageTrouble
from tests.daemons.registries.conftest import Ask
from tests.daemons.registries.registry_server import (
    CONFIG,
    INDEX,
    MANIFEST,
    SIF,
    Registry,
    digest_of,
    need,
    running,
)
from tests.unit.cachemgr.fetch.servers import Asked, head, serving

DATA = b"QFI\xfb" + b"outrider" * 100


def refusal(ask: Ask, uri: str) -> str:
    with pytest.raises(ImageTrouble) as refused:
        ask(uri)
    return str(refused.value)


def test_reference_stands_for_the_digest_and_size_of_its_only_blob(
    registry: Registry, asks: Callable[..., Ask]
) -> None:
    pushed = registry.push("team/render", "v1", DATA, title="render.qcow2")
    uri = f"{registry.address}/team/render"

    found = asks(registry.address)(f"oras://{uri}:v1")

    assert found == FoundImage(
        size_bytes=len(DATA), digest=digest_of(DATA), uri=f"oras://{uri}:v1@{pushed.manifest}"
    )
    assert asks(registry.address)(f"docker://{uri}@{pushed.manifest}").digest == pushed.digest


def test_image_of_apptainer_is_taken(registry: Registry, asks: Callable[..., Ask]) -> None:
    registry.push_files(
        "team/sif", "v1", [DATA], kind=SIF, config_kind="application/vnd.sylabs.sif.config.v1+json"
    )

    assert asks(registry.address)(f"oras://{registry.address}/team/sif:v1").digest == digest_of(DATA)


def test_what_was_found_stays_when_the_tag_is_moved(registry: Registry, asks: Callable[..., Ask]) -> None:
    registry.push("team/moved", "v1", DATA)
    ask = asks(registry.address)
    before = ask(f"oras://{registry.address}/team/moved:v1")
    registry.push("team/moved", "v1", DATA + b"more")

    assert ask(before.uri) == before
    assert ask(f"oras://{registry.address}/team/moved:v1").digest == digest_of(DATA + b"more")


def test_digest_that_the_user_writes_has_to_be_the_images(
    registry: Registry, asks: Callable[..., Ask]
) -> None:
    registry.push("team/given", "v1", DATA)
    uri = f"oras://{registry.address}/team/given:v1"

    assert asks(registry.address, digest=digest_of(DATA))(uri).digest == digest_of(DATA)
    words = refusal(asks(registry.address, digest=digest_of(b"")), uri)
    assert f"has the digest {digest_of(DATA)}, not {digest_of(b'')}: correct the digest" in words


def test_index_is_read_for_the_sites_platform(registry: Registry, asks: Callable[..., Ask]) -> None:
    pushed = registry.push("team/many", "amd64", DATA)
    other = registry.push("team/many", "arm64", DATA + b"arm")

    def entry(digest: str, machine: str) -> dict[str, object]:
        platform = {"os": "linux", "architecture": machine}
        return {"mediaType": MANIFEST, "digest": digest, "size": 1, "platform": platform}

    entries = [entry(other.manifest, "arm64"), entry(pushed.manifest, "amd64")]
    registry.manifest("team/many", "all", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
    registry.manifest("team/many", "arm", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries[:1]})
    ask = asks(registry.address)

    found = ask(f"oras://{registry.address}/team/many:all")

    assert (found.digest, found.uri.rpartition("@")[2]) == (pushed.digest, pushed.manifest)
    words = refusal(ask, f"oras://{registry.address}/team/many:arm")
    assert "has no image for linux/amd64, only for linux/arm64" in words


def test_index_in_an_index_is_refused(registry: Registry, asks: Callable[..., Ask]) -> None:
    pushed = registry.push("team/deep", "v1", DATA)
    entry: dict[str, object] = {"mediaType": MANIFEST, "digest": pushed.manifest, "size": 1}
    for tag in ("once", "twice"):
        content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        entry = {"mediaType": INDEX, "digest": registry.manifest("team/deep", tag, content), "size": 1}
    ask = asks(registry.address)

    assert ask(f"oras://{registry.address}/team/deep:once").digest == pushed.digest
    assert "has an index in an index" in refusal(ask, f"oras://{registry.address}/team/deep:twice")


def test_container_image_of_127_layers_is_refused_with_their_number(
    registry: Registry, asks: Callable[..., Ask], tmp_path: Path
) -> None:
    layout = container_layout(tmp_path / "layout", 127)
    target = f"docker://{registry.address}/team/container:v1"
    argv = [need("skopeo"), "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]
    subprocess.run([*argv, f"oci:{layout}:v1", target], check=True, capture_output=True, timeout=120)

    words = refusal(asks(registry.address), target)

    assert "is a container image of 127 layers, which would have to be converted" in words
    assert "apptainer push" in words


def container_layout(folder: Path, layers: int) -> Path:
    """A container image with so many layers, as a folder that skopeo reads."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    parts, plain = [], []
    for number in range(layers):
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                archive.addfile(tarfile.TarInfo(f"file-{number}"))
            plain.append(digest_of(buffer.getvalue()))
            packed = gzip.compress(buffer.getvalue(), mtime=0)
        parts.append(put(packed, "application/vnd.oci.image.layer.v1.tar+gzip"))
    settings = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": plain}}
    config = put(json.dumps(settings).encode(), CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": parts}
    manifest = put(json.dumps(content).encode(), MANIFEST)
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def test_what_is_not_one_file_is_refused(registry: Registry, asks: Callable[..., Ask]) -> None:
    registry.push_files("team/two", "v1", [DATA, b"readme"])
    registry.push_files("team/none", "v1", [DATA], config_kind=CONFIG)
    registry.push_files("team/packed", "v1", [DATA], notes={"io.deis.oras.content.unpack": "true"})
    ask = asks(registry.address)

    assert "has 2 layers: an image is one file" in refusal(ask, f"oras://{registry.address}/team/two:v1")
    assert "container image of 1 layer," in refusal(ask, f"docker://{registry.address}/team/none:v1")
    assert "is a folder that oras has packed" in refusal(ask, f"oras://{registry.address}/team/packed:v1")


def test_what_the_registry_does_not_have_is_said(registry: Registry, asks: Callable[..., Ask]) -> None:
    ask = asks(registry.address)

    words = refusal(ask, f"oras://{registry.address}/team/absent:v9")

    assert "the registry has no team/absent that is v9: correct the name or the tag" in words


def test_registry_without_tls_is_asked_only_if_the_site_names_it(
    registry: Registry, asks: Callable[..., Ask]
) -> None:
    registry.push("team/plain", "v1", DATA)

    words = refusal(asks("other:5000"), f"oras://{registry.address}/team/plain:v1")

    assert f"{registry.address} does not speak TLS: the administrators can name it in plain_http" in words


def test_registry_with_tls_is_asked_if_its_authority_is_known(
    tmp_path: Path, asks: Callable[..., Ask]
) -> None:
    certificate, key = certified(tmp_path)
    with running(tmp_path / "data") as plain:
        plain.push("team/secret", "v1", DATA)
    tls = {"http": {"tls": {"certificate": str(certificate), "key": str(key)}}}
    with running(tmp_path / "data", tls) as registry:
        uri = f"oras://{registry.address}/team/secret:v1"

        assert asks(ca_file=certificate)(uri).digest == digest_of(DATA)
        assert "is not trusted" in refusal(asks(), uri)


def certified(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
    command += " -addext subjectAltName=IP:127.0.0.1"
    argv = [*command.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True, timeout=240)
    return certificate, key


class Front:
    """Stands before a registry: says what a test wants, or sends on to the registry itself."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.says: list[bytes] = []
        self.asked: list[Asked] = []

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        self.asked.append(asked)
        if self.says:
            sock.sendall(self.says.pop(0))
        else:
            target = f"http://{self._registry.address}{asked.target}"
            sock.sendall(head("307 Temporary Redirect", Location=target, Content_Length="0"))


@pytest.fixture
def front(registry: Registry) -> Front:
    return Front(registry)


def test_busy_registry_is_asked_again_when_it_says_so(
    registry: Registry, front: Front, asks: Callable[..., Ask]
) -> None:
    registry.push("team/busy", "v1", DATA)
    front.says = [
        head("429 Too Many Requests", Retry_After="0", Content_Length="0"),
        head("503 Service Unavailable", Retry_After="0", Content_Length="0"),
    ]
    with serving(front.answer) as server:
        address = f"127.0.0.1:{server.port}"

        found = asks(address, registry.address)(f"oras://{address}/team/busy:v1")

        assert found.digest == digest_of(DATA)
        assert len(front.asked) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (head("429 Too Many Requests", Retry_After="60", Content_Length="0"), "Requests; ask again in 60 s"),
        (head("502 Bad Gateway", Retry_After="60", Content_Length="0"), "502 Bad Gateway; ask again in 60 s"),
        (head("403 Forbidden", Content_Length="0"), "forbids to read team/busy: let everybody pull it"),
        (head("401 Unauthorized", Content_Length="0"), "lets nobody read team/busy without a name"),
        (head("200 OK", Content_Length="3") + b"abc", "a manifest that is not JSON"),
        (head("200 OK", Content_Length="9") + b"{}", "sends 2 of 9 bytes of a manifest"),
        (head("200 OK", Content_Length="2") + b"{}", "a manifest of an unknown kind (schema None)"),
        (head("200 OK", Content_Length="5000000") + b" " * 5_000_000, "has more than 4194304 bytes"),
        (head("200 OK", Content_Length="200000") + b"[" * 200_000, "a manifest that is not JSON"),
    ],
)  # fmt: skip
def test_registry_that_does_not_answer_well_is_refused_in_words(
    registry: Registry, front: Front, asks: Callable[..., Ask], answer: bytes, words: str
) -> None:
    front.says = [answer]
    with serving(front.answer) as server:
        address = f"127.0.0.1:{server.port}"

        assert words in refusal(asks(address, registry.address), f"oras://{address}/team/busy:v1")


def test_manifest_that_is_another_than_the_digest_says_is_refused(
    registry: Registry, front: Front, asks: Callable[..., Ask]
) -> None:
    front.says = [head("200 OK", Content_Length="2") + b"{}"]
    with serving(front.answer) as server:
        address = f"127.0.0.1:{server.port}"
        uri = f"oras://{address}/team/busy@{digest_of(b'other')}"

        assert "sends another manifest" in refusal(asks(address), uri)


def test_redirection_to_a_host_without_tls_that_the_site_does_not_name_is_not_followed(
    registry: Registry, front: Front, asks: Callable[..., Ask]
) -> None:
    with serving(front.answer) as server:
        address = f"127.0.0.1:{server.port}"

        words = refusal(asks(address), f"oras://{address}/team/busy:v1")

        assert f"{registry.address} would be asked without TLS, which the site does not allow" in words


def test_registry_that_trickles_is_given_up_in_time(asks: Callable[..., Ask]) -> None:
    is_over = threading.Event()

    def trickle(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Content_Length="1000"))
        while not is_over.wait(0.05):
            sock.sendall(b" ")

    with serving(trickle) as server:
        address = f"127.0.0.1:{server.port}"
        try:
            words = refusal(asks(address, limit_s=0.5), f"oras://{address}/team/slow:v1")
        finally:
            is_over.set()

    assert "no whole manifest in time" in words


def test_look_ups_of_a_registry_are_counted_at_its_host() -> None:
    assert host_of("oras://images:5000/team/render:v1") == "images"
    assert host_of("docker://docker.io/library/ubuntu:24.04") == "docker.io"
