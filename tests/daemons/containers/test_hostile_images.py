"""Images that somebody made to do harm, or badly: each ends in a message, and nothing of it is left."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.fetch.sources.wire import ResponseBody
from outrider.service.images.containers import layers as fetching
from tests.daemons.containers.container_images import (
    FOLDER,
    FOREIGN,
    HARDLINK,
    PIPE,
    SYMLINK,
    Head,
    entry,
    layer,
    push,
)
from tests.daemons.registries.registry_server import CONFIG, INDEX, MANIFEST, Registry, digest_of

HUGE = 1 << 27


def zeros() -> bytes:
    """A layer of a hundred kilobytes with one file of 128 MiB."""
    with io.BytesIO() as buffer:
        head = tarfile.TarInfo("zeros")
        head.size = HUGE
        with gzip.open(buffer, "wb", compresslevel=9) as file:
            file.write(head.tobuf())
            for _ in range(HUGE >> 20):
                file.write(bytes(1 << 20))
            file.write(bytes(1024))
        return buffer.getvalue()


def long_header() -> bytes:
    """An extended header that says to be of many gigabytes."""
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XHDTYPE, 1 << 36
    return head.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16)


def sparse() -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            found, _ = entry("sparse")
            found.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
            archive.addfile(found)
        return buffer.getvalue()


def deep() -> bytes:
    """Folders as deep as a path allows, and as deep again through a link, again and again."""
    path = "/".join("d" * 200)
    entries = [entry(f"{path}/", kind=FOLDER, mode=0o755)]
    for number in range(3):
        entries += [
            entry(f"l{number}", kind=SYMLINK, target=f"{path}" if not number else f"l{number - 1}/{path}"),
            entry(f"l{number}/{path}/", kind=FOLDER, mode=0o755),
        ]
    return layer(*entries)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: layer(entry("../../outside", b"x")), "leads out of the image"),
        (lambda: layer(entry("a", kind=HARDLINK, target="../etc/shadow")), "leads out of the image"),
        (lambda: layer(entry("a", kind=HARDLINK, target="etc/shadow")), "which is not there"),
        (lambda: layer(entry("loop", kind=SYMLINK, target="loop"), entry("loop/x", b"x")), "a loop of links"),
        (lambda: layer(entry("file", b"x"), entry("file/inner", b"x")), "for a folder"),
        (lambda: layer(entry(".wh...", b"")), "a whiteout of nothing"),
        (lambda: b"this is no archive" * 100, "not a tar archive"),
        (lambda: layer(entry("a", b"x" * 2_000))[:1_000], "ends in the midst"),
        (long_header, "has a header of"),
        (sparse, "sparse file"),
        (deep, "deep"),
        (lambda: layer(entry("n" * 300, b"x")), "too long"),
    ],
)
def test_hostile_layer_ends_in_a_message_and_leaves_nothing(
    head: Head, registry: Registry, made: Callable[[], bytes], words: str
) -> None:
    said = head.refusal(push(registry, "team/hostile", [made()]))

    assert words in said
    assert "layer 1" in said
    assert head.left() == []


def test_bomb_is_given_up_before_it_is_unpacked(head: Head, registry: Registry) -> None:
    data = zeros()
    uri = push(registry, "team/bomb", [data], packed=lambda data: data)

    assert "holds more than the image may" in head.refusal(uri)
    assert head.left() == []


def test_links_that_lead_out_stay_inside(head: Head, registry: Registry) -> None:
    outside = Path(f"/tmp/outside-{os.getpid()}")
    data = layer(
        entry("out", kind=SYMLINK, target=str(outside)),
        entry("out/file", b"x"),
        entry("up", kind=SYMLINK, target="../../.."),
        entry("up/file", b"x"),
        entry("pipe", kind=PIPE),
    )
    image = head.ask(push(registry, "team/links", [data]))

    assert head.path(image).exists()
    assert not outside.exists()


def test_layer_whose_content_is_another_than_the_image_says_is_refused(
    head: Head, registry: Registry
) -> None:
    data = layer(entry("a", b"a"))
    uri = push(registry, "team/diff", [data], diffs=[digest_of(b"another")])

    assert "and the image says" in head.refusal(uri)
    assert head.left() == []


def test_damaged_layer_is_refused(head: Head, registry: Registry) -> None:
    uri = push(
        registry,
        "team/cut",
        [layer(entry("a", os.urandom(4_000)))],
        packed=lambda data: gzip.compress(data)[:-9],
    )

    assert "layer 1 is damaged" in head.refusal(uri)
    assert head.left() == []


def test_foreign_layer_is_not_fetched_from_elsewhere(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/foreign", [layer(entry("a", b"a"))], kind=FOREIGN)

    assert "layer 1 of" in head.refusal(uri)
    assert "is foreign" in head.refusal(uri)


def test_format_that_no_container_has_is_refused(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/format", [layer(entry("a", b"a"))])

    assert "squashfs, sif or bundle is made, not qcow2" in head.refusal(uri, "qcow2")


def test_index_without_our_platform_is_refused(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/platform", [layer(entry("a", b"a"))])
    manifest = head.ask(uri).uri.rpartition("@")[2]
    other = {"os": "linux", "architecture": "s390x"}
    entries = [{"mediaType": MANIFEST, "digest": manifest, "size": 1, "platform": other}]
    registry.manifest(
        "team/platform", "other", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    )

    words = head.refusal(uri.replace(":v1", ":other"))
    assert "has no image for linux/amd64, only for linux/s390x" in words


def test_blob_with_other_bytes_is_refused(head: Head, registry: Registry) -> None:
    data = layer(entry("a", b"right"))
    uri = push(registry, "team/wrong", [data])
    packed = gzip.compress(data, mtime=0)
    path = registry.blob_path(digest_of(packed))
    path.write_bytes(bytes(len(packed)))

    assert "sends other bytes" in head.refusal(uri)
    assert head.left() == []


def test_line_that_breaks_is_taken_up_where_it_broke(
    head: Head, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = push(registry, "team/breaks", [layer(entry("a", os.urandom(300_000)))])
    monkeypatch.setattr(fetching, "FIRST_WAIT_S", 0)
    monkeypatch.setattr(fetching, "BLOCK", 50_000)
    read = ResponseBody.read_into
    calls: list[int] = []

    def breaking(self: ResponseBody, buffer: memoryview, timeout_s: float) -> int | None:
        if len(buffer) == 50_000:
            calls.append(len(buffer))
            if len(calls) == 3:
                return 0
        return read(self, buffer, timeout_s)

    monkeypatch.setattr(ResponseBody, "read_into", breaking)

    assert head.path(head.ask(uri)).exists()
    assert any('"GET /v2/team/breaks/blobs/' in line and " 206 " in line for line in registry.log())


def test_configuration_of_another_image_is_refused(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/config", [layer(entry("a", b"a"))], settings={"Env": "no list"})

    assert "unusable Env" in head.refusal(uri)
    assert CONFIG.endswith("config.v1+json")


def test_image_for_which_there_is_no_room_is_refused_with_the_figures(
    folder: Path, registry: Registry
) -> None:
    head = Head(folder / "small", registry.address, most_bytes=1 << 16)
    uri = push(registry, "team/large", [layer(entry("a", os.urandom(1 << 17)))])

    assert "conversions.size" in head.refusal(uri)
    assert head.left() == []


def test_what_was_not_used_for_longest_makes_way_but_nothing_that_is_promised(
    folder: Path, registry: Registry
) -> None:
    head = Head(folder / "full", registry.address, most_bytes=3_200_000)
    uris = [
        push(registry, "team/way", [layer(entry("a", os.urandom(400_000)))], tag=f"v{number}")
        for number in range(3)
    ]
    first, second = head.ask(uris[0]), head.ask(uris[1])
    for number, record in enumerate(sorted((head.made.folder / "records").iterdir())):
        text = record.read_text()
        os.utime(record, (number, 1 if first.digest in text else 2))
    head.made._needed = lambda: {first.digest}
    head.made._most_bytes = 2_300_000
    head.ask(uris[2])

    assert head.made.path_of(first.digest) is not None, "promised, though it is the oldest"
    assert head.made.path_of(second.digest) is None
