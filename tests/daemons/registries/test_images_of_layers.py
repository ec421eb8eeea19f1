"""Container images as they are: what nodes lack is fetched, and runtimes have it from the node's mirror."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemgr import config as configs
from cachemgr.base.errors import CacheError
from cachemgr.cli.verbs.mirror import write_login
from cachemgr.daemon.log import DaemonLog
from cachemgr.daemon.main import Daemon, put_together
from tests.daemons.node.daemons import CLOCK, MIB, Inside, Outside, eventually, make_pool
from tests.daemons.registries.registry_server import CONFIG, LAYER, MANIFEST, Registry, digest_of, need

HOUR_S = 3_600
ALICE = 2001


def tarred(name: str, data: bytes) -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        return buffer.getvalue()


COMMON = [tarred(f"usr/{number}", os.urandom(900_000)) for number in range(3)]
FIRST, SECOND = tarred("first", os.urandom(300_000)), tarred("second", os.urandom(300_000))


def push(registry: Registry, name: str, layers: list[bytes], tag: str = "v1") -> str:
    """Push a container image of plain layers; the digest of its manifest."""
    diffs = list(map(digest_of, layers))
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}}
    text = json.dumps(config).encode()
    parts = [{"mediaType": LAYER, "digest": registry.blob(name, each), "size": len(each)} for each in layers]
    first = {"mediaType": CONFIG, "digest": registry.blob(name, text), "size": len(text)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": first, "layers": parts}
    return registry.manifest(name, tag, manifest)


def blob_bytes(registry: Registry, name: str) -> int:
    """What the registry has sent of a repository's blobs."""
    lines = [line for line in registry.log() if f'"GET /v2/{name}/blobs/' in line]
    return sum(int(line.partition("HTTP/1.1")[2].split()[2]) for line in lines)


@pytest.fixture
def start(folder: Path, registry: Registry) -> Iterator[Callable[..., Inside]]:
    """Makes a node's daemon that has the real sources."""
    started: list[Inside] = []

    def make(config: configs.NodeConfig, log: DaemonLog) -> Daemon:
        return put_together(config, {}, log, clock=CLOCK)

    def daemon(name: str = "node", *, limit_bytes: int = 64 * MIB, **texts: str) -> Inside:
        place = folder / name
        place.mkdir()
        make_pool(place / "pool", limit_bytes)
        given = {"plain_http": registry.address, "mirror_listen": "127.0.0.1:0", **texts}
        started.append(Inside(place, make, **given))
        return started[-1]

    yield daemon
    for each in started:
        each.stop()


def add(daemon: Inside, registry: Registry, name: str, **fields: object) -> dict[str, Any]:
    uri = f"docker://{registry.address}/{name}:v1"
    return daemon.ask("add", uri=uri, format="layers", wait=True, **fields)


def pin(owner: str) -> dict[str, object]:
    return {"owner": owner, "until_s": CLOCK.now_s() + HOUR_S}


def listed(daemon: Inside) -> dict[str, Any]:
    return {each["digest"]: each for each in daemon.ask("ls")["images"]}


def login(daemon: Inside, folder: Path, uid: int = 0) -> Path:
    """A file of logins for the daemon's mirror, as that user."""
    found = daemon.ask("mirror", until_s=CLOCK.now_s() + HOUR_S, uid=uid)
    path = folder / f"auth-{uid}.json"
    write_login(str(path), found["address"], found["user"], found["password"])
    return path


def pull(daemon: Inside, name: str, target: Path, auth: Path | None) -> subprocess.CompletedProcess[str]:
    words = [need("skopeo"), "copy", "--src-tls-verify=false", "--retry-times=0"]
    words += ["--authfile", str(auth)] if auth else ["--src-no-creds"]
    words += [f"docker://{daemon.node.mirror.address}/{name}", f"dir:{target}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_second_image_brings_only_the_layers_that_the_first_has_not(
    registry: Registry, start: Callable[..., Inside]
) -> None:
    daemon = start()
    push(registry, "team/a", [*COMMON, FIRST])
    second = push(registry, "team/b", [*COMMON, SECOND])
    add(daemon, registry, "team/a", pin=pin("one"))

    add(daemon, registry, "team/b", pin=pin("two"))

    config_bytes = len(
        json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "rootfs": {"type": "layers", "diff_ids": list(map(digest_of, [*COMMON, SECOND]))},
            }
        )
    )
    assert blob_bytes(registry, "team/b") == len(SECOND) + config_bytes
    assert listed(daemon)[second]["format"] == "layers"
    # Common layers, each image's own, configurations, manifests.
    assert len(listed(daemon)) == 3 + 2 + 2 + 2


def test_skopeo_pulls_the_image_from_the_mirror_with_the_registry_gone(
    registry: Registry, start: Callable[..., Inside], tmp_path: Path
) -> None:
    daemon = start()
    digest = push(registry, "team/pulled", [*COMMON, FIRST])
    add(daemon, registry, "team/pulled", pin=pin("one"))
    port = registry.port
    registry.kill()
    try:
        by_tag = pull(daemon, "team/pulled:v1", tmp_path / "tag", login(daemon, tmp_path))
        host = registry.address.replace(":", "_")
        by_digest = pull(daemon, f"{host}/team/pulled@{digest}", tmp_path / "digest", login(daemon, tmp_path))
    finally:
        registry.start()

    assert registry.port == port
    assert (by_tag.returncode, by_digest.returncode) == (0, 0), by_tag.stderr + by_digest.stderr
    for target in (tmp_path / "tag", tmp_path / "digest"):
        for data in (*COMMON, FIRST):
            blob = target / digest_of(data).removeprefix("sha256:")
            assert blob.read_bytes() == data


def test_mirror_gives_nothing_without_a_login_and_no_private_image_to_another_user(
    registry: Registry, start: Callable[..., Inside], tmp_path: Path
) -> None:
    daemon = start()
    push(registry, "team/private", [COMMON[0]])
    push(registry, "team/public", [COMMON[1]])
    add(daemon, registry, "team/private", pin=pin("one"), readers={"uids": [ALICE], "gids": []})
    add(daemon, registry, "team/public", pin=pin("two"))
    alice, bob = login(daemon, tmp_path, ALICE), login(daemon, tmp_path, ALICE + 1)

    nobody = pull(daemon, "team/public:v1", tmp_path / "nobody", None)
    others = pull(daemon, "team/private:v1", tmp_path / "others", bob)

    assert nobody.returncode != 0
    assert others.returncode != 0
    assert pull(daemon, "team/private:v1", tmp_path / "own", alice).returncode == 0
    assert pull(daemon, "team/public:v1", tmp_path / "all", bob).returncode == 0


def handed_out(folder: Path, registry: Registry, layers: list[bytes]) -> tuple[str, str]:
    """An image that the head has brought, in the folder where it hands it out; its manifest's digest."""
    digest = push(registry, "team/brought", layers)
    (folder / "made").mkdir()
    blobs = json.loads(registry.blob_path(digest).read_bytes())
    for each in (digest, blobs["config"]["digest"], *(layer["digest"] for layer in blobs["layers"])):
        (folder / "made" / each.removeprefix("sha256:")).write_bytes(registry.blob_path(each).read_bytes())
    return f"file://{folder}/made/{digest.removeprefix('sha256:')}", digest


def test_private_image_of_the_heads_is_for_its_readers_and_its_layers_are_nobody_elses(
    registry: Registry, start: Callable[..., Inside], folder: Path, tmp_path: Path
) -> None:
    daemon, other = start(), ALICE + 1
    source, digest = handed_out(folder, registry, [COMMON[0], FIRST])
    uri = f"docker://{registry.address}/team/brought:v1@{digest}"
    given = {"uri": uri, "digest": digest, "format": "layers", "sources": [source], "wait": True}
    daemon.ask("add", **given, pin=pin("one"), readers={"uids": [ALICE], "gids": []})

    own = pull(daemon, f"team/brought@{digest}", tmp_path / "own", login(daemon, tmp_path, ALICE))
    others = pull(daemon, f"team/brought@{digest}", tmp_path / "others", login(daemon, tmp_path, other))
    # Whoever has shown the head a right to it reads it from then on.
    vouched = {"uri": uri, "digest": digest, "sources": [source], "vouched": True}
    daemon.ask("add", **vouched, readers={"uids": [other], "gids": []})
    later = pull(daemon, f"team/brought@{digest}", tmp_path / "later", login(daemon, tmp_path, other))

    assert own.returncode == 0, own.stderr
    assert others.returncode != 0
    assert later.returncode == 0, later.stderr
    assert blob_bytes(registry, "team/brought") == 0, "the node has no right there"


def test_layer_that_came_with_a_private_image_is_everybodys_once_a_registry_sends_it_to_anybody(
    registry: Registry, start: Callable[..., Inside], folder: Path, tmp_path: Path
) -> None:
    daemon = start()
    source, digest = handed_out(folder, registry, [COMMON[0], FIRST])
    uri = f"docker://{registry.address}/team/brought:v1@{digest}"
    readers = {"uids": [ALICE], "gids": []}
    daemon.ask("add", uri=uri, digest=digest, format="layers", sources=[source], readers=readers, wait=True)
    push(registry, "team/open", [COMMON[0], SECOND])
    # One that names a layer which its registry does not have: nothing is shown by that.
    claimed = push(registry, "team/claims", [COMMON[0], FIRST, COMMON[1]])
    bob = login(daemon, tmp_path, ALICE + 1)

    add(daemon, registry, "team/open", pin=pin("two"))
    pulled = pull(daemon, "team/open:v1", tmp_path / "open", bob)
    hidden = listed(daemon)[digest_of(FIRST)]

    assert pulled.returncode == 0, pulled.stderr
    assert blob_bytes(registry, "team/open") >= len(COMMON[0]) + len(SECOND)
    assert hidden["is_public"] is False
    path = registry.blob_path(digest_of(FIRST))
    path.write_bytes(bytes(len(FIRST)))
    try:
        with pytest.raises(CacheError):
            add(daemon, registry, "team/claims", pin=pin("three"))
    finally:
        path.write_bytes(FIRST)
    assert listed(daemon)[digest_of(FIRST)]["is_public"] is False
    assert claimed not in listed(daemon)


def test_layers_that_two_images_share_stay_until_both_are_given_back(
    registry: Registry, start: Callable[..., Inside]
) -> None:
    daemon = start()
    first = push(registry, "team/kept", [COMMON[0], FIRST])
    second = push(registry, "team/left", [COMMON[0], SECOND])
    for name in ("team/kept", "team/left"):
        # The same owner for both: giving one back must not take the common layer from the other.
        add(daemon, registry, name, pin=pin("same"))

    daemon.ask("unpin", name=second, owner="same")
    gone = daemon.ask("evict", need_bytes=64 * MIB - len(COMMON[0]) - len(FIRST) - 4_000)

    assert digest_of(SECOND) in gone["evicted"]
    assert {first, digest_of(COMMON[0]), digest_of(FIRST)} <= set(listed(daemon))
    assert second not in listed(daemon)


def test_image_whose_layer_has_left_is_not_there_and_gets_that_layer_alone(
    registry: Registry, start: Callable[..., Inside]
) -> None:
    daemon = start()
    digest = push(registry, "team/torn", [COMMON[0], FIRST])
    add(daemon, registry, "team/torn")
    daemon.ask("evict", name=digest_of(FIRST))
    before = blob_bytes(registry, "team/torn")

    assert digest not in listed(daemon)
    with pytest.raises(CacheError, match="layer of image"):
        daemon.ask("pin", name=digest, owner="one", until_s=CLOCK.now_s() + HOUR_S)
    add(daemon, registry, "team/torn", pin=pin("one"))

    assert digest in listed(daemon)
    assert blob_bytes(registry, "team/torn") - before == len(FIRST)


def test_image_that_finds_no_room_leaves_nothing_reserved_or_pinned(
    registry: Registry, start: Callable[..., Inside]
) -> None:
    daemon = start(limit_bytes=2 * MIB)
    push(registry, "team/small", [COMMON[0]])
    push(registry, "team/large", [COMMON[0], COMMON[1], COMMON[2]])
    add(daemon, registry, "team/small", pin=pin("one"))

    with pytest.raises(CacheError, match="are held by pins and"):
        add(daemon, registry, "team/large", pin=pin("two"))

    assert daemon.ask("ls")["arriving"] == []
    assert listed(daemon)[digest_of(COMMON[0])]["pins"] == 1


def test_neighbours_take_layers_from_each_other_and_the_registry_sends_each_once(
    registry: Registry, start: Callable[..., Inside], folder: Path
) -> None:
    key = folder / "key"
    key.write_text("k" * 32)
    texts = {"relay_listen": "127.0.0.1:0", "relay_key": str(key), "transfer_rate": "2MB/s"}
    push(registry, "team/chain", [*COMMON, FIRST])
    nodes = [start(f"n{number}", **texts) for number in range(3)]
    uri = f"docker://{registry.address}/team/chain:v1"
    for number, daemon in enumerate(nodes):
        sources = [uri]
        if number:
            before: Any = nodes[number - 1].daemon
            sources = [f"relay://127.0.0.1:{before.relay.port}/sha256:{'0' * 64}", uri]
        daemon.ask("add", uri=uri, format="layers", sources=sources, pin=pin("one"))

    for daemon in nodes:
        daemon.settle()

    sent = [line for line in registry.log() if '"GET /v2/team/chain/blobs/' in line]
    assert len({line.split()[6] for line in sent}) == len(sent) == len(COMMON) + 2
    assert all(len(listed(daemon)) == len(COMMON) + 3 for daemon in nodes)


def test_mirror_listens_for_this_machine_alone() -> None:
    with pytest.raises(CacheError, match="could be reached by other machines"):
        configs.config({"mirror_listen": "0.0.0.0:7012"})


def test_login_of_the_mirror_is_kept_nowhere_on_the_node(
    registry: Registry, start: Callable[..., Inside], tmp_path: Path
) -> None:
    daemon = start()
    push(registry, "team/secret", [FIRST])
    add(daemon, registry, "team/secret", pin=pin("one"))
    auth = login(daemon, tmp_path)
    assert pull(daemon, "team/secret:v1", tmp_path / "pulled", auth).returncode == 0

    written = base64.b64decode(next(iter(json.loads(auth.read_text())["auths"].values()))["auth"])
    secret = written.decode().rpartition(".")[2]
    kept = [
        path for path in daemon.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]

    assert len(secret) == 64
    assert kept == []
    assert secret not in daemon.log()
    assert auth.stat().st_mode & 0o777 == 0o600


def test_daemon_that_is_killed_midway_shows_no_image_and_goes_on_with_its_layers(
    registry: Registry, folder: Path
) -> None:
    digest = push(registry, "team/killed", [*COMMON, FIRST])
    make_pool(folder / "pool")
    first = Outside(folder, plain_http=registry.address, transfer_rate="1MB/s")
    uri = f"docker://{registry.address}/team/killed:v1"
    first.ask("add", uri=uri, format="layers", pin=pin("one"))

    def whole() -> int:
        return sum(each["size_bytes"] > MIB // 2 for each in first.ask("ls")["images"])

    eventually("a layer is whole", lambda: whole() >= 1, first.log)
    first.end(signal.SIGKILL)
    again = Outside(folder, plain_http=registry.address)
    try:
        assert digest not in {each["digest"] for each in again.ask("ls")["images"]}
        again.ask("add", uri=uri, format="layers", pin=pin("one"), wait=True)

        assert digest in {each["digest"] for each in again.ask("ls")["images"]}
        assert again.ask("ls")["arriving"] == []
    finally:
        again.end()
    assert blob_bytes(registry, "team/killed") < 2 * sum(map(len, [*COMMON, FIRST])) - len(COMMON[0])


def test_image_of_layers_is_everybodys_once_another_registry_sends_all_of_it_to_anybody(
    registry: Registry, start: Callable[..., Inside], folder: Path, tmp_path: Path
) -> None:
    """It came for one user from elsewhere, whole: whoever reserves the public one is not kept from it."""
    daemon = start()
    source, digest = handed_out(folder, registry, [COMMON[0], FIRST])
    private = f"docker://{registry.address}/team/brought:v1@{digest}"
    readers = {"uids": [ALICE], "gids": []}
    daemon.ask(
        "add", uri=private, digest=digest, format="layers", sources=[source], readers=readers, wait=True
    )
    assert push(registry, "team/open", [COMMON[0], FIRST]) == digest
    uri = f"docker://{registry.address}/team/open:v1@{digest}"
    bob = login(daemon, tmp_path, ALICE + 1)
    before = pull(daemon, f"team/brought@{digest}", tmp_path / "before", bob)
    claim = f"docker://{registry.address}/team/none:v1@{digest}"
    with pytest.raises(CacheError):
        daemon.ask("add", uri=claim, digest=digest, format="layers", proof=True, wait=True)
    hidden = listed(daemon)[digest]

    daemon.ask("add", uri=uri, digest=digest, format="layers", proof=True, wait=True)
    after = pull(daemon, f"team/brought@{digest}", tmp_path / "after", bob)

    assert before.returncode != 0
    assert hidden["is_public"] is False
    assert after.returncode == 0, after.stderr
    assert {
        listed(daemon)[each]["is_public"] for each in (digest, digest_of(COMMON[0]), digest_of(FIRST))
    } == {True}
