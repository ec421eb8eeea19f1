"""The program itself reserves images as they are: the second of two that share layers takes what differs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.containers.test_converting_service import ConvertingProgram, program
from tests.daemons.registries.registry_server import Registry, digest_of

__all__ = ["program"]
WORKSPACE = """version: 1
metadata:
  name: {name}
  image: {{uri: "{uri}", format: layers}}
deployment: {{nodes: 2, duration: 10m, start: now+{minutes}minutes}}
"""


def reserve(program: ConvertingProgram, uri: str, name: str, minutes: int = 10) -> tuple[int, Any]:
    text = WORKSPACE.format(uri=uri, name=name, minutes=minutes)
    body = {"workspace": text, "file": "ws.yaml", "zone": "UTC"}
    return program.ask("POST", "/v1/reservations", body, key=name)


def plain(data: bytes) -> bytes:
    return data


def sent(registry: Registry, name: str) -> list[str]:
    """The digests of the blobs that the registry has sent of a repository."""
    lines = [line for line in registry.log() if f'"GET /v2/{name}/blobs/' in line]
    return [line.partition("/blobs/")[2].split()[0] for line in lines]


def whole(place: Path) -> set[str]:
    return {f"sha256:{path.parent.name}" for path in place.rglob("images/*/data")}


def test_second_image_is_planned_and_brought_with_the_layers_that_nodes_lack(
    program: ConvertingProgram, registry: Registry
) -> None:
    common = layer(entry("common", os.urandom(3_000_000)))
    left, right = layer(entry("left", os.urandom(200_000))), layer(entry("right", os.urandom(200_000)))
    first = push(
        registry, "team/l1", [common, left], kind="application/vnd.oci.image.layer.v1.tar", packed=plain
    )
    second = push(
        registry, "team/l2", [common, right], kind="application/vnd.oci.image.layer.v1.tar", packed=plain
    )
    program.start()
    status, before = reserve(program, first, "first")
    assert (status, before["result"]) == (201, "accepted"), before
    program.await_image(before["name"])

    status, decision = reserve(program, second, "second", 25)

    assert (status, decision["result"]) == (201, "accepted"), decision
    planned = [each["size_bytes"] for each in decision["transfers"]]
    assert all(len(right) <= size_bytes < len(right) + 1_000 for size_bytes in planned)
    program.await_image(decision["name"])
    assert digest_of(common) not in sent(registry, "team/l2")
    assert digest_of(right) in sent(registry, "team/l2")
    for node in (program.folder / "s/embedded/nodes").iterdir():
        if whole(node):
            assert {digest_of(common), digest_of(right), decision["image"]["digest"]} <= whole(node)


def test_plan_of_layers_survives_a_service_that_is_killed(
    program: ConvertingProgram, registry: Registry
) -> None:
    common = layer(entry("common", os.urandom(1_000_000)))
    uri = push(registry, "team/l3", [common], kind="application/vnd.oci.image.layer.v1.tar", packed=plain)
    program.start()
    _, decision = reserve(program, uri, "killed")

    program.end(signal.SIGKILL)
    program.start()

    details = program.await_image(decision["name"])
    assert details["reservation"]["image"]["digest"] == decision["image"]["digest"]
