"""What users push with, as Debian has it: an image of each is promised, and is on the nodes byte by byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from outrider.service.images.containers import sif
from testbed.apptainer import installed, running
from tests.daemons.containers.test_converting_service import ConvertingProgram, program
from tests.daemons.registries.registry_server import Registry, digest_of, need
from tests.daemons.registries.test_runtimes_at_the_mirror import ran

__all__ = ["program"]
TIMEOUT_S = 300


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """What an ordinary user works on: a folder with a SIF."""
    folder = tmp_path / "work"
    (folder / "tree/bin").mkdir(parents=True)
    (folder / "tree/bin/data").write_bytes(os.urandom(100_000))
    image = folder / "image.sif"
    argv = [need("mksquashfs"), str(folder / "tree"), str(image), "-quiet", "-no-progress", "-noappend"]
    subprocess.run([*argv, "-offset", str(sif.IMAGE_AT)], check=True, capture_output=True, timeout=TIMEOUT_S)
    with image.open("r+b") as file:
        file.write(sif.frame(image.stat().st_size - sif.IMAGE_AT, "amd64", bytes(16)))
    for path in (tmp_path, *folder.rglob("*"), folder):
        path.chmod(0o755)
    return folder


def pushed_from_sid(work: Path, *words: str) -> None:
    if why := installed():
        pytest.skip(why)
    argv = running(work, words[0], words[1:])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def on_nodes(program: ConvertingProgram, uri: str, more: str = "") -> tuple[str, list[bytes]]:
    """The digest that is promised, and what its nodes have by then."""
    program.start()
    status, decision = program.reserve(uri, "k1", more)
    assert (status, decision["result"]) == (201, "accepted"), decision
    program.await_image(decision["name"])
    return str(decision["image"]["digest"]), program.copies()


@pytest.mark.parametrize("tool", ["apptainer", "oras"])
def test_sif_that_is_pushed_is_on_the_nodes_as_it_was(
    program: ConvertingProgram, registry: Registry, work: Path, tool: str
) -> None:
    name = f"{registry.address}/team/{tool}:v1"
    if tool == "apptainer":
        pushed_from_sid(
            work, "apptainer", "push", "-U", "--no-https", "/tmp/folder/image.sif", f"oras://{name}"
        )
    else:
        kind = "application/vnd.sylabs.sif.layer.v1.sif"
        words = ("push", "--plain-http", "--disable-path-validation", name, f"/tmp/folder/image.sif:{kind}")
        pushed_from_sid(work, "oras", *words)
    data = (work / "image.sif").read_bytes()

    digest, copies = on_nodes(program, f"oras://{name}")

    assert digest == digest_of(data)
    assert copies == [data] * 2


@pytest.mark.parametrize("tool", ["buildah", "skopeo"])
def test_container_image_that_is_pushed_is_converted_for_the_nodes(
    program: ConvertingProgram, registry: Registry, work: Path, tmp_path: Path, tool: str
) -> None:
    buildah, quiet = need("buildah"), ["--signature-policy", str(tmp_path / "policy.json")]
    target = f"docker://{registry.address}/team/{tool}:v1"
    (tmp_path / "auth-0.json").write_text("{}")
    begun = ran([buildah, "from", *quiet, "scratch"], tmp_path)
    container = begun.stdout.strip()
    made = [
        begun,
        ran([buildah, "copy", container, str(work / "tree"), "/"], tmp_path),
        ran([buildah, "commit", *quiet, container, "made"], tmp_path),
        ran([buildah, "push", *quiet, "--tls-verify=false", "made", target], tmp_path),
    ]
    if tool == "skopeo":
        layout = f"oci:{tmp_path}/layout:v1"
        insecure = ["--insecure-policy", "copy", "--dest-tls-verify=false"]
        made += [
            ran([buildah, "push", *quiet, "made", layout], tmp_path),
            ran([need("skopeo"), *insecure, layout, target], tmp_path),
        ]
    assert [done.stderr for done in made if done.returncode != 0] == []

    digest, copies = on_nodes(program, target, ", format: squashfs")

    assert [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in copies] == [digest] * 2
    (tmp_path / "copy").write_bytes(copies[0])
    words = [need("unsquashfs"), "-cat", str(tmp_path / "copy"), "bin/data"]
    found = subprocess.run(words, check=True, capture_output=True, timeout=TIMEOUT_S).stdout
    assert found == (work / "tree/bin/data").read_bytes()
