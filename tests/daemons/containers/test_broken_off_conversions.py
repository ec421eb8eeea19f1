"""A conversion that is killed at any of its steps, and registries that fail while it fetches: never a part of
an image under a name, and what is done once is not done twice."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.service.images.containers import layers as fetching
from tests.amount import examples
from tests.daemons.containers.container_images import Head, entry, layer, push
from tests.daemons.registries.registry_server import Registry, digest_of, need
from tests.unit.cachemgr.fetch.servers import Asked, head, serving

STEPS = ("rename", "replace", "fsync", "mkdir", "unlink", "chmod", "fchmod", "fchown", "rmdir", "write")
MOST_STEPS = 200
FETCHED = '"GET /v2/team/{name}/blobs/'


def converted_until(step: int, make: Callable[[], Head], uri: str) -> bool:
    """In a process of its own, killed before that step on its disk; whether it came to an end before."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        count = 0

        def planted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*words: object, **options: object) -> object:
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*words, **options)

            return call

        asks = make()
        for name in STEPS:
            setattr(os, name, planted(getattr(os, name)))
        asks.ask(uri)
    except BaseException:  # noqa: BLE001 - it is a process of its own, and must not go on as the test
        os._exit(3)
    os._exit(0)


def wrong(folder: Path) -> list[str]:
    """What a reader could take for an image and is none."""
    found = []
    for record in (folder / "records").glob("*.json"):
        said = json.loads(record.read_bytes())
        path = folder / "made" / said["digest"].removeprefix("sha256:")
        if not path.exists() or digest_of(path.read_bytes()) != said["digest"]:
            found.append(f"{record.name} without its image")
    for path in (folder / "made").iterdir():
        if digest_of(path.read_bytes()) != f"sha256:{path.name}":
            found.append(f"made/{path.name} is a part")
    for path in (folder / "layers").iterdir():
        if path.suffix != ".part" and digest_of(path.read_bytes()) != f"sha256:{path.name}":
            found.append(f"layers/{path.name} is a part")
    return found


def test_conversion_that_is_killed_at_any_step_shows_no_part_and_is_made_once_in_the_end(
    folder: Path, registry: Registry
) -> None:
    need("sqfstar")
    data = [layer(entry("a", os.urandom(3_000))), layer(entry("b", b"second"))]
    expected, step, ends = "", 0, 0
    rounds = range(1, MOST_STEPS) if examples(3) == 3 else range(1, MOST_STEPS, 3)
    for step in rounds:
        uri = push(registry, f"team/step{step}", data)
        place = folder / f"step{step}"

        def make(place: Path = place) -> Head:
            return Head(place, registry.address)

        has_ended = converted_until(step, make, uri)
        assert wrong(place) == [], f"killed before step {step}"
        has_records = any((place / "records").glob("[!.]*.json"))
        whole = {each.name for each in (place / "layers").iterdir() if each.suffix != ".part"}
        before = sum(FETCHED.format(name=f"step{step}") in line for line in registry.log())
        again = make()
        assert (list((place / "work").iterdir()), list((place / "layers").glob("*.part"))) == ([], [])
        image = again.ask(uri)
        after = sum(FETCHED.format(name=f"step{step}") in line for line in registry.log())

        assert len(list((place / "made").iterdir())) == len(list((place / "records").iterdir())) == 1
        assert digest_of(again.path(image).read_bytes()) == image.digest
        assert image.digest == (expected := expected or image.digest), "the same bytes, however often begun"
        is_made = has_records and before == 3
        assert after - before == (0 if is_made else 3 - len(whole)), "what was whole is not fetched again"
        if has_ended:
            ends = step
            break

    assert ends > 20, "all steps on the disk were tried, and the last one was none"


Failing = Callable[[Asked, socket.socket, int], None]


class FailingBlobs:
    """Stands before a registry, whose manifests are well, and answers in its own way for a blob."""

    def __init__(self, registry: Registry, fail: Failing) -> None:
        self._registry, self._fail = registry, fail

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        if "/blobs/" in asked.target:
            digest = asked.target.rpartition("/")[2]
            self._fail(asked, sock, self._registry.blob_path(digest).stat().st_size)
            return
        target = f"http://{self._registry.address}{asked.target}"
        sock.sendall(head("307 Temporary Redirect", Location=target, Content_Length="0"))


def with_status(status: str) -> Failing:
    return lambda asked, sock, size_bytes: sock.sendall(head(status, Content_Length="0"))


def cut_off(asked: Asked, sock: socket.socket, size_bytes: int) -> None:
    sock.sendall(head("200 OK", Content_Length="100000") + b"x" * 10)


def other_bytes(asked: Asked, sock: socket.socket, size_bytes: int) -> None:
    sock.sendall(head("200 OK", Content_Length=str(size_bytes)) + b"x" * size_bytes)


def nothing(asked: Asked, sock: socket.socket, size_bytes: int) -> None:
    """It is dead: the line ends without a word."""


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (with_status("401 Unauthorized"), "without a name and a password"),
        (with_status("403 Forbidden"), "forbids to read"),
        (with_status("404 Not Found"), "has no"),
        (with_status("429 Too Many Requests"), "429"),
        (with_status("500 Internal Server Error"), "500"),
        (with_status("503 Service Unavailable"), "503"),
        (cut_off, "cannot be fetched"),
        (nothing, "cannot be fetched"),
        (other_bytes, "sends other bytes"),
    ],
)
def test_registry_that_fails_while_its_image_is_converted_ends_in_a_message_and_nothing_is_left(
    folder: Path,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    fail: Failing,
    words: str,
) -> None:
    need("sqfstar")
    monkeypatch.setattr(fetching, "FIRST_WAIT_S", 0)
    uri = push(registry, "team/failing", [layer(entry("a", os.urandom(99_000)))])
    with serving(FailingBlobs(registry, fail).answer) as server:
        address = f"127.0.0.1:{server.port}"
        asks = Head(folder / "failing", registry.address, address)

        said = asks.refusal(uri.replace(registry.address, address))

    assert words in said
    assert "ask again when the registry is well" in said or "push the image again" in said
    assert asks.left() == []
    assert asks.path(Head(folder / "failing", registry.address).ask(uri)).exists()


def test_registry_that_dies_midway_in_a_conversion_costs_only_what_was_not_there(
    folder: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("sqfstar")
    monkeypatch.setattr(fetching, "FIRST_WAIT_S", 0)
    uri = push(registry, "team/dies", [layer(entry(name, os.urandom(50_000))) for name in "abc"])
    answered: list[str] = []

    def two_then_nothing(asked: Asked, sock: socket.socket, size_bytes: int) -> None:
        if len(answered) < 2:
            answered.append(asked.target)
            target = f"http://{registry.address}{asked.target}"
            sock.sendall(head("307 Temporary Redirect", Location=target, Content_Length="0"))

    with serving(FailingBlobs(registry, two_then_nothing).answer) as server:
        address = f"127.0.0.1:{server.port}"
        said = Head(folder / "dies", registry.address, address).refusal(
            uri.replace(registry.address, address)
        )
    before = sum(FETCHED.format(name="dies") in line for line in registry.log())
    asks = Head(folder / "dies", registry.address)
    image = asks.ask(uri)
    after = sum(FETCHED.format(name="dies") in line for line in registry.log())

    assert "cannot be fetched" in said
    assert asks.path(image).exists()
    assert (before, after - before) == (2, 2), "of four blobs the two that were here are not fetched again"
