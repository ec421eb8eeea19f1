"""The pool's container images as a folder of names: those of the tools that look there, and whole images."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.cli.verbs.library import names
from testbed.apptainer import running
from tests.daemons.containers.apptainer_tree import ApptainerTree, apptainer
from tests.daemons.containers.container_images import Head, entry, layer, push
from tests.daemons.registries.conftest import configuration, node
from tests.daemons.registries.registry_server import Registry, digest_of, need
from tests.unit.cachemgr.cli.outcomes import Run

__all__ = ["apptainer", "configuration", "node"]

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    FILE *file = fopen("/data", "r");
    char text[64] = "";
    if (file) fgets(text, sizeof text, file);
    printf("%s read %s, %s\\n", words[1], text, getenv("WORDS"));
    return fopen("/data", "w") != NULL;
}
"""


@pytest.mark.parametrize(
    ("uri", "style", "expected"),
    [
        # nextflow.container.SingularityCache.simpleName, and its own tests
        (
            "docker://quay.io/biocontainers/fastqc:0.11.9",
            "nextflow",
            ["quay.io-biocontainers-fastqc-0.11.9.img"],
        ),
        ("oras://ghcr.io/team/tool.sif:1.2", "nextflow", ["ghcr.io-team-tool-1.2.sif"]),
        (
            "docker://docker.io/library/ubuntu:24.04",
            "nextflow",
            ["docker.io-library-ubuntu-24.04.img", "library-ubuntu-24.04.img", "ubuntu-24.04.img"],
        ),
        # printf docker://quay.io/biocontainers/fastqc:0.11.9 | md5sum
        ("docker://quay.io/biocontainers/fastqc:0.11.9", "snakemake", None),
        (
            "docker://quay.io/biocontainers/fastqc:0.11.9@sha256:" + "0" * 64,
            "apptainer",
            ["fastqc_0.11.9.sif"],
        ),
        ("/images/a.sif", "all", []),
    ],
)
def test_names_are_those_of_the_tools(uri: str, style: str, expected: list[str] | None) -> None:
    if expected is None:
        argv = ["sh", "-c", 'printf %s "$1" | md5sum', "sh", uri]
        told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240).stdout.split()[0]
        expected = [f"{told}.simg"]

    assert list(names(uri, style)) == expected


def test_folder_has_links_to_whole_images_and_keeps_what_is_not_ours(
    head: Head, registry: Registry, node: Callable[..., Run], tmp_path: Path
) -> None:
    cachemgr = node(registry.address)
    image = head.ask(push(registry, "team/tool", [layer(entry("a", b"a"))]), "sif")
    folder = tmp_path / "library"
    folder.mkdir()
    own = folder / f"{registry.address.replace(':', '-')}-team-tool-v1.img"
    own.write_text("a user's own file")

    plain = cachemgr("library", str(folder), "--json")
    assert json.loads(plain.out)["links"] == []
    name_in_pool(cachemgr, image.uri, head.path(image))
    found = cachemgr("library", str(folder)).out.split()
    assert "tool_v1.sif" in found
    assert own.read_text() == "a user's own file"
    assert (folder / "tool_v1.sif").is_symlink()
    assert (folder / "tool_v1.sif").read_bytes() == head.path(image).read_bytes()
    assert sorted(each.name for each in folder.iterdir()) == sorted([*found, own.name])


def test_apptainer_runs_an_image_from_the_folder_without_a_copy(
    head: Head, registry: Registry, node: Callable[..., Run], tmp_path: Path, apptainer: ApptainerTree
) -> None:
    (tmp_path / "run.c").write_text(PROGRAM)
    argv = [need("gcc"), "-static", "-o", str(tmp_path / "run"), str(tmp_path / "run.c")]
    subprocess.run(argv, check=True, timeout=120)
    layers = [
        layer(entry("bin/run", (tmp_path / "run").read_bytes(), mode=0o755), entry("data", b"old")),
        layer(entry("data", b"new")),
    ]
    settings = {"Env": ["PATH=/bin", "WORDS=its own variable"]}
    image = head.ask(push(registry, "team/run", layers, settings=settings), "sif")
    cachemgr = node(registry.address)
    name_in_pool(cachemgr, image.uri, head.path(image))
    cachemgr("library", "--style", "apptainer", str(tmp_path / "library"))
    path = os.readlink(tmp_path / "library/run_v1.sif")
    before = Path(path).stat()

    told = apptainer.run(Path(path), "exec", "run", "exec")

    assert told.returncode == 0, told.stderr
    assert told.stdout == "exec read new, its own variable\n"
    assert "temporary sandbox" not in told.stderr, "it is mounted and not unpacked"
    after = Path(path).stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


# It is the shell, too, which an instance starts with.
KEEPER = """
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    if (strstr(words[0], "/sh")) return 0;
    char text[64] = "nothing";
    FILE *file = fopen("/kept", count > 1 ? "w" : "r");
    if (file && count > 1) fputs(words[1], file);
    else if (file) fgets(text, sizeof text, file);
    printf("%s\\n", count > 1 ? (file ? "written" : "refused") : text);
    return 0;
}
"""
SESSION = """
cd /tmp/folder
mkdir changes
apptainer instance start --overlay changes image.sif db >&2
apptainer exec instance://db /bin/keep first
apptainer exec instance://db /bin/keep
apptainer instance stop db >&2
apptainer exec image.sif /bin/keep
apptainer exec --overlay changes image.sif /bin/keep
"""


def test_instance_writes_to_the_overlay_of_its_job_and_not_to_the_image(
    head: Head, registry: Registry, tmp_path: Path, apptainer: ApptainerTree
) -> None:
    if not apptainer.has_tree:
        pytest.skip("the session is that of the tree of Debian sid")
    (tmp_path / "keep.c").write_text(KEEPER)
    argv = [need("gcc"), "-static", "-o", str(tmp_path / "keep"), str(tmp_path / "keep.c")]
    subprocess.run(argv, check=True, timeout=120)
    keep = (tmp_path / "keep").read_bytes()
    data = layer(entry("bin/keep", keep, mode=0o755), entry("bin/sh", keep, mode=0o755))
    image = head.ask(push(registry, "team/keep", [data]), "sif")
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    (work / "image.sif").write_bytes(head.path(image).read_bytes())
    (work / "image.sif").chmod(0o444)

    argv = running(work, "sh", ["-ec", SESSION])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["written", "first", "nothing", "first"]
    assert digest_of((work / "image.sif").read_bytes()) == image.digest


def name_in_pool(cachemgr: Run, uri: str, path: Path) -> None:
    """As the service orders it: an image of that name, from where the head has it."""
    data = path.read_bytes()
    known = ("--digest", digest_of(data), "--size", str(len(data)))
    found = cachemgr("add", uri, *known, "--source", str(path))
    assert found.code == 0, found.err
