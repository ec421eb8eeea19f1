"""Eight nodes and a registry that wants a token from everybody: each blob leaves it once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.containers.test_converting_service import ConvertingProgram
from tests.daemons.containers.test_layered_reservations import plain, whole
from tests.daemons.registries.registry_server import Registry, digest_of, need, running
from tests.daemons.registries.test_looking_at_registries import certified
from tests.daemons.registries.token_server import TokenServer
from tests.unit.cachemgr.fetch.servers import serving
from tests.unit.service.daemon.fakes import PATIENCE_S

NODES = 8
WORKSPACE = """version: 1
metadata:
  name: {name}
  image: {{uri: "{uri}"{more}}}
deployment: {{nodes: 8, duration: 1m, start: now+{minutes}minutes}}
"""
FILE = os.urandom(300_000)
LAYERS = [layer(entry(name, os.urandom(200_000))) for name in ("a", "b", "c")]


def given(registry: Registry, name: str) -> list[str]:
    """The digests of the blobs of which the registry has given bytes."""
    lines = [line for line in registry.log() if f'"GET /v2/team/{name}/blobs/' in line]
    return [line.partition("/blobs/")[2].split()[0] for line in lines if ' HTTP/1.1" 20' in line]


class TokenSite(ConvertingProgram):
    """Eight nodes of the embedded batch system, whose registry and its tokens are real."""

    def __init__(self, folder: Path, registry: Registry, tokens: TokenServer, port: int) -> None:
        super().__init__(folder, registry, is_forked=False)
        self.registry, self.tokens = registry, tokens
        text = self.file.read_text().replace("n[1-2]", f"n[1-{NODES}]")
        text = text.replace(f"'{registry.address}'", f"'{registry.address} 127.0.0.1:{port}'")
        self.file.write_text(text)

    def promised(self, name: str, uri: str, more: str, minutes: int) -> Any:
        text = WORKSPACE.format(name=name, uri=uri, more=more, minutes=minutes)
        body = {"workspace": text, "file": "ws.yaml", "zone": "UTC"}
        status = 503
        while status == 503:
            status, answer = self.ask("POST", "/v1/reservations", body, key=name)
        assert (status, answer["result"]) == (201, "accepted"), answer
        self.await_image(answer["name"])
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenSite]:
    need("sqfstar")
    tmp_path = tmp_path_factory.mktemp("tokens")
    with running(tmp_path / "served") as plain_registry:
        plain_registry.push("team/file", "v1", FILE)
        push(
            plain_registry, "team/layers", LAYERS, kind="application/vnd.oci.image.layer.v1.tar", packed=plain
        )
        push(plain_registry, "team/made", LAYERS)
    folder = Path(tempfile.mkdtemp(prefix="tokens-", dir="/tmp"))
    folder.chmod(0o755)
    certificate, key = certified(tmp_path)
    tokens = TokenServer(certificate, key)
    with (
        serving(tokens.answer) as server,
        running(tmp_path / "served", tokens.section(server.port, certificate)) as registry,
    ):
        made = TokenSite(folder, registry, tokens, server.port)
        made.start()
        yield made
        assert made.process is not None
        made.process.kill()
        made.process.wait(PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("name", "scheme", "more", "blobs"),
    [
        ("file", "oras", "", 1),
        ("layers", "docker", ", format: layers", 1 + len(LAYERS)),
        ("made", "docker", ", format: sif", 1 + len(LAYERS)),
    ],
)
def test_each_blob_leaves_the_registry_once_for_eight_nodes(
    site: TokenSite, name: str, scheme: str, more: str, blobs: int
) -> None:
    before = len(site.tokens.asked)
    uri = f"{scheme}://{site.registry.address}/team/{name}:v1"
    minutes = 10 + 5 * ["file", "layers", "made"].index(name)

    promised = site.promised(name, uri, more, minutes)

    refused = [line for line in site.registry.log() if f"/v2/team/{name}/" in line and " 401 " in line]
    assert refused, "the registry lets nobody in without a token"
    assert len(site.tokens.asked) > before
    assert Counter(Counter(given(site.registry, name)).values()) == {1: blobs}
    nodes = sorted((site.folder / "s/embedded/nodes").glob("n[1-8]"))
    assert len(nodes) == NODES
    wanted = {digest_of(data) for data in LAYERS} if name == "layers" else {promised["image"]["digest"]}
    assert [node.name for node in nodes if not wanted <= whole(node)] == []
