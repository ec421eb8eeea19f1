"""Nodes fetch the blob that a reference stands for; what goes wrong leaves nothing half there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr import config as configs
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import Daemon, put_together
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import Inside, as_user, eventually, make_pool, needs_root
from tests.daemons.registries.registry_server import Registry
from tests.daemons.registries.test_looking_at_registries import Front
from tests.repository import ROOT
from tests.unit.cachemgr.cli.outcomes import Run
from tests.unit.cachemgr.fetch.servers import head, serving

DATA = b"disk" + os.urandom(200_000)
PATIENCE_S = 90
ALICE, BOB = 2001, 2002


def images(cachemgr: Run) -> list[str]:
    return [str(each["digest"]) for each in json.loads(cachemgr("ls", "--json").out)["images"]]


def blobs(registry: Registry, name: str) -> list[int]:
    """The status of each answer with bytes of a repository's blobs."""
    lines = [line for line in registry.log() if f'"GET /v2/{name}/blobs/' in line]
    return [int(line.partition("HTTP/1.1")[2].split()[1]) for line in lines]


def test_reference_is_fetched_once_and_found_by_its_digest(
    registry: Registry, node: Callable[..., Run]
) -> None:
    cachemgr = node(registry.address)
    pushed = registry.push("team/one", "v1", DATA)
    registry.push("team/one", "again", DATA)

    first = cachemgr("add", f"oras://{registry.address}/team/one:v1")
    second = cachemgr("add", f"docker://{registry.address}/team/one:again")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert images(cachemgr) == [pushed.digest]
    assert blobs(registry, "team/one") == [200]


def test_promised_digest_is_fetched_after_its_tag_was_moved(
    registry: Registry, node: Callable[..., Run]
) -> None:
    cachemgr = node(registry.address)
    pushed = registry.push("team/moved", "v1", DATA)
    registry.push("team/moved", "v1", DATA + b"more")
    uri = f"oras://{registry.address}/team/moved:v1"

    found = cachemgr("add", uri, "--digest", pushed.digest)

    assert found.code == 0, found.err
    assert images(cachemgr) == [pushed.digest]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "sha256"),
        (lambda data: data[: len(data) // 2], "it has 100002 bytes instead of 200004"),
        (lambda data: data + b"more", "it has 200008 bytes instead of 200004"),
        (None, "the registry has no team/bad that is sha256:"),
    ],
)
def test_blob_that_is_not_what_its_digest_says_is_no_image(
    registry: Registry,
    node: Callable[..., Run],
    damage: Callable[[bytes], bytes] | None,
    words: str,
) -> None:
    cachemgr = node(registry.address)
    data = DATA[:-4] + os.urandom(4)
    pushed = registry.push("team/bad", "v1", data)
    path = registry.blob_path(pushed.digest)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(data))

    found = cachemgr("add", f"oras://{registry.address}/team/bad:v1")

    assert found.code != 0
    assert words in found.err
    assert images(cachemgr) == []


def test_registry_that_dies_midway_is_asked_for_the_rest_when_it_is_back(
    registry: Registry, node: Callable[..., Run], configuration: Callable[..., Path]
) -> None:
    cachemgr = node(registry.address)
    pushed = registry.push("team/dies", "v1", os.urandom(40_000_000))
    argv = [sys.executable, "-m", "cachemgr", "--config", str(configuration(registry.address)), "--no-daemon"]
    argv += ["add", f"oras://{registry.address}/team/dies:v1", "--rate", "15MB/s"]

    def has_begun() -> bool:
        arriving = json.loads(cachemgr("ls", "--json").out)["arriving"]
        return any(int(each["arrived_bytes"]) > 1_000_000 for each in arriving)

    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as adding:
        try:
            eventually("some bytes are there", has_begun, lambda: cachemgr("ls").out)
            registry.kill()
            seen = images(cachemgr)
            registry.start()
            _, said = adding.communicate(timeout=PATIENCE_S)
        finally:
            adding.kill()

    assert seen == []
    assert adding.returncode == 0, said
    assert images(cachemgr) == [pushed.digest]
    assert blobs(registry, "team/dies")[-1] == 206, registry.log()[-4:]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (head("403 Forbidden", Content_Length="0"), "forbids to read team/front"),
        (head("404 Not Found", Content_Length="0"), "has no team/front that is sha256:"),
        (head("401 Unauthorized", Content_Length="0"), "lets nobody read team/front"),
    ],
)
def test_registry_that_refuses_the_blob_is_said_with_its_words(
    registry: Registry, node: Callable[..., Run], answer: bytes, words: str
) -> None:
    pushed = registry.push("team/front", "v1", DATA)
    front = Front(registry)
    front.says = [answer]
    with serving(front.answer) as server:
        cachemgr = node(registry.address, f"127.0.0.1:{server.port}")
        uri = f"oras://127.0.0.1:{server.port}/team/front:v1"

        found = cachemgr("add", uri, "--digest", pushed.digest, "--size", str(len(DATA)))

        assert found.code != 0
        assert words in found.err
        assert images(cachemgr) == []


def test_registry_that_is_busy_for_a_moment_is_asked_again_for_the_blob(
    registry: Registry, node: Callable[..., Run]
) -> None:
    pushed = registry.push("team/later", "v1", DATA)
    front = Front(registry)
    front.says = [head("429 Too Many Requests", Retry_After="1", Content_Length="0")]
    with serving(front.answer) as server:
        cachemgr = node(registry.address, f"127.0.0.1:{server.port}")
        uri = f"oras://127.0.0.1:{server.port}/team/later:v1"

        found = cachemgr("add", uri, "--digest", pushed.digest, "--size", str(len(DATA)))

        assert found.code == 0, found.err
        assert len(front.asked) == 2
        assert images(cachemgr) == [pushed.digest]


@pytest.fixture
def daemon(registry: Registry, folder: Path) -> Iterator[Inside]:
    """With real transfers, for ordinary users."""
    needs_root()
    make_pool(folder / "pool")

    def make(config: configs.NodeConfig, log: DaemonLog) -> Daemon:
        return put_together(config, {}, log)

    found = Inside(folder, make, plain_http=registry.address)
    yield found
    found.stop()


def asks(daemon: Inside, uid: int, **fields: Any) -> Any:
    """What an ordinary user's `add` gives, or the error's name."""

    def work() -> Any:
        with DaemonClient(daemon.socket) as client:
            return client.ask("add", {"wait": True, **fields}, on_progress=lambda _: None)

    found = as_user(uid, work)
    return found["gives"] if "gives" in found else found["raises"]


def test_user_cannot_let_a_tag_stand_for_another_blob_of_its_repository(
    registry: Registry, daemon: Inside
) -> None:
    older = registry.push("team/poisoned", "v1", DATA)
    newer = registry.push("team/poisoned", "v1", DATA + b"new")
    uri = f"oras://{registry.address}/team/poisoned:v1"

    assert asks(daemon, ALICE, uri=uri, digest=older.digest) == "WrongBytes"
    assert asks(daemon, BOB, uri=uri)["digest"] == newer.digest
    assert asks(daemon, ALICE, uri=uri, digest=newer.digest)["digest"] == newer.digest


def test_private_image_is_for_whoever_can_pull_the_same_bytes(registry: Registry, daemon: Inside) -> None:
    pushed = registry.push("team/private", "v1", DATA)
    uri = f"oras://{registry.address}/team/private:v1"

    assert asks(daemon, ALICE, uri=uri, private=True)["digest"] == pushed.digest
    other = registry.push("team/private", "v1", DATA[:-1] + bytes([DATA[-1] ^ 1]))

    # The tag stands for other bytes of the same length by now: the old ones are not proved by it.
    assert asks(daemon, BOB, uri=uri, digest=pushed.digest) == "NotAllowed"
    assert (
        asks(daemon, BOB, uri=f"oras://{registry.address}/team/private@{other.manifest}")["digest"]
        == other.digest
    )
