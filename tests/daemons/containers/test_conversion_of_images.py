"""Container images of a real registry become one file: what is in it, whose names it has, and how often."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path

from outrider.service.images.containers import sif
from outrider.service.ports import FoundImage, ImageClaim, NotYet, Unread
from tests.daemons.containers.container_images import (
    DEVICE,
    FOLDER,
    HARDLINK,
    SYMLINK,
    Head,
    entry,
    layer,
    push,
)
from tests.daemons.node.daemons import eventually
from tests.daemons.registries.registry_server import Registry, need


def unpacked(image: Path, folder: Path, offset: int = 0) -> Path:
    target = folder / "unpacked"
    argv = [need("unsquashfs"), "-no-progress", "-d", str(target), "-o", str(offset), str(image)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return target


def test_layers_are_laid_over_one_another_as_the_specification_says(
    head: Head, registry: Registry, tmp_path: Path
) -> None:
    below = layer(
        entry("kept/", kind=FOLDER, mode=0o755),
        entry("kept/replaced", b"old"),
        entry("kept/hidden", b"hidden"),
        entry("kept/also", kind=HARDLINK, target="kept/replaced"),
        entry("emptied/inner/", kind=FOLDER, mode=0o755),
        entry("emptied/inner/old", b"old"),
        entry("gone/", kind=FOLDER, mode=0o755),
        entry("gone/inner", b"hidden"),
        entry("lib", kind=SYMLINK, target="/usr/lib"),
    )
    above = layer(
        entry("emptied/inner/new", b"new"),
        entry("emptied/.wh..wh..opq"),
        entry("kept/.wh.hidden"),
        entry(".wh.gone"),
        entry("kept/replaced", b"new"),
        entry("lib/found", b"behind a link"),
    )
    image = head.ask(push(registry, "team/layers", [below, above]))
    tree = unpacked(head.path(image), tmp_path)

    found = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for part in ("kept", "emptied", "usr")
        for path in (tree / part).rglob("*")
        if path.is_file()
    }
    assert found == {
        "kept/replaced": b"new",
        "kept/also": b"old",
        "emptied/inner/new": b"new",
        "usr/lib/found": b"behind a link",
    }
    assert os.readlink(tree / "lib") == "/usr/lib"
    assert not (tree / "gone").exists()


def test_rights_and_devices_of_an_image_do_not_reach_the_nodes(
    head: Head, registry: Registry, tmp_path: Path
) -> None:
    data = layer(
        entry("bin/su", b"x", mode=0o6755),
        entry("tmp", kind=FOLDER, mode=0o1777),
        entry("dev/kmem", kind=DEVICE),
    )
    tree = unpacked(head.path(head.ask(push(registry, "team/rights", [data]))), tmp_path)

    assert stat.S_IMODE((tree / "bin/su").lstat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "tmp").lstat().st_mode) == 0o1777
    assert not (tree / "dev/kmem").exists()


def test_image_of_127_layers_is_made(head: Head, registry: Registry, tmp_path: Path) -> None:
    layers = [layer(entry(f"file-{number}", str(number).encode())) for number in range(127)]
    tree = unpacked(head.path(head.ask(push(registry, "team/many", layers))), tmp_path)

    assert {path.name for path in tree.glob("file-*")} == {f"file-{number}" for number in range(127)}


def test_sif_has_its_file_system_where_apptainer_looks_for_it(
    head: Head, registry: Registry, tmp_path: Path
) -> None:
    settings = {"Env": ["PATH=/opt/bin", 'WORDS=it\'s "so"'], "Entrypoint": ["/opt/bin/run"], "Cmd": ["x"]}
    uri = push(registry, "team/sif", [layer(entry("data", b"content"))], settings=settings)
    image = head.ask(uri, "sif")
    tree = unpacked(head.path(image), tmp_path, sif.IMAGE_AT)

    assert image.format == "sif"
    assert (tree / "data").read_bytes() == b"content"
    script = tree / ".singularity.d/env/10-docker2singularity.sh"
    shell = subprocess.run(
        ["sh", "-c", f'. {script}; printf "%s|%s" "$PATH" "$WORDS"'],
        capture_output=True,
        check=True,
        timeout=240,
    )
    assert shell.stdout == b'/opt/bin|it\'s "so"'
    assert 'exec /opt/bin/run "$@"' in (tree / ".singularity.d/runscript").read_text()


def test_the_same_image_gives_the_same_bytes_wherever_it_is_made(folder: Path, registry: Registry) -> None:
    need("sqfstar")
    uri = push(registry, "team/same", [layer(entry("a", b"a")), layer(entry("b", b"b"))])
    found = []
    for name in ("first", "second"):
        head = Head(folder / name, registry.address)
        found.append(head.ask(uri))

    assert found[0] == found[1]
    assert found[0].uri.startswith(f"{uri}@sha256:")


def test_image_is_made_once_for_all_who_ask_at_the_same_time(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/once", [layer(entry("a", b"once"))])
    found: list[FoundImage] = []
    users = [
        threading.Thread(target=lambda uid=uid: found.append(head.ask(uri, uid=uid))) for uid in range(5)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join()

    assert len(found) == 5
    assert len(set(found)) == 1
    fetched = [line for line in registry.log() if '"GET /v2/team/once/blobs/' in line]
    assert len(fetched) == 2, "the configuration and the layer, once each"


def test_what_was_made_is_known_without_another_conversion(
    head: Head, folder: Path, registry: Registry
) -> None:
    uri = push(registry, "team/known", [layer(entry("a", b"known"))])
    made = head.ask(uri)
    again = Head(folder / "conversions", registry.address)

    found = again.resolver(ImageClaim(uri=uri, uid=61002, format="squashfs"))
    other = again.resolver(ImageClaim(uri=uri, uid=61002, format="sif"))

    assert found == made
    assert isinstance(other, Unread)


def test_digest_that_a_user_writes_is_that_of_the_result(head: Head, registry: Registry) -> None:
    uri = push(registry, "team/digest", [layer(entry("a", b"digest"))])
    made = head.ask(uri)
    manifest = made.uri.rpartition("@")[2]

    assert head.resolver(ImageClaim(uri=uri, uid=61001, digest=made.digest)) == made
    assert "has the digest" in head.refusal_with_digest(uri, manifest)


def test_who_asks_too_early_hears_how_far_it_is(folder: Path, registry: Registry) -> None:
    head = Head(folder / "slow", registry.address, at_once=1, wait_s=0)
    uri = push(registry, "team/slow", [layer(entry("a", b"slow"))])

    words = head.refusal(uri, kind=NotYet)

    assert "is being converted to squashfs" in words
    assert "takes" not in words, "nothing was measured yet"


def test_who_asks_too_early_hears_how_long_it_takes_by_what_was_measured(
    folder: Path, registry: Registry
) -> None:
    Head(folder / "paced", registry.address).ask(push(registry, "team/first", [layer(entry("a", b"first"))]))
    again = Head(folder / "paced", registry.address, at_once=1, wait_s=0)
    uri = push(registry, "team/second", [layer(entry("a", b"second"))])

    words = again.refusal(uri, kind=NotYet)
    eventually("the conversion ends", lambda: again.converter.shared.held_by(61001) == 0, lambda: words)

    assert re.search(r", and it takes about [1-9][0-9]* s", words), words


def test_bundle_has_the_image_below_what_a_runtime_reads(
    head: Head, registry: Registry, tmp_path: Path
) -> None:
    settings = {
        "Env": ["PATH=/opt/bin"],
        "Entrypoint": ["/opt/bin/run"],
        "Cmd": ["x"],
        "WorkingDir": "/inside",
    }
    data = layer(
        entry("data", b"content"),
        entry("config.json", b"the image's own"),
        entry("up", kind=SYMLINK, target="/data"),
    )
    image = head.ask(push(registry, "team/bundle", [data], settings=settings), "bundle")
    tree = unpacked(head.path(image), tmp_path)

    assert image.format == "bundle"
    assert sorted(path.name for path in tree.iterdir()) == ["config.json", "rootfs"]
    assert (tree / "rootfs/data").read_bytes() == b"content"
    assert (tree / "rootfs/config.json").read_bytes() == b"the image's own"
    assert os.readlink(tree / "rootfs/up") == "/data"
    process = json.loads((tree / "config.json").read_text())["process"]
    assert (process["args"], process["env"], process["cwd"]) == (
        ["/opt/bin/run", "x"],
        ["PATH=/opt/bin"],
        "/inside",
    )
    assert (tree / "rootfs/proc").is_dir(), "a runtime cannot make it in a read-only image"
