"""Images in a real registry: reserved, and named by a job's script, on a real Slurm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from outrider.cli.demo.images import write_image
from testbed.clustersite import REGISTRY, REGISTRY_PORT, ServedImage
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.containers.container_images import CLOCK, entry, layer, push
from tests.daemons.registries.registry_server import Registry, need, running
from tests.daemons.reservations import reserve, shown, wait_reservation
from tests.daemons.slurm.service.jobs import arrived_s, ended, output, script, seen, wait_in_slurm

MB = 1_000_000
HOST = "images"
FOLDER = "/var/lib/registry"
CONFIGURATION = {
    "version": "0.1",
    "log": {"accesslog": {"disabled": False}},
    "storage": {"filesystem": {"rootdirectory": FOLDER}},
    "http": {"addr": f"0.0.0.0:{REGISTRY_PORT}"},
}
HELD = "/srv/held"
BLOB = re.compile(r'"GET /v2/team/([a-z]+)/blobs/sha256:[0-9a-f]{64} HTTP/1.1" (\d+) (\d+) ')


class Shelf:
    """The cluster's registry. What is pushed to one of this machine is carried to its folder."""

    def __init__(self, site: OutriderSite, here: Registry, folder: Path) -> None:
        self._site = site
        self._here = here
        self._folder = folder

    def push(self, name: str, content_bytes: int) -> tuple[ServedImage, str]:
        """An image under the tag v1, and its manifest's digest."""
        path = self._folder / f"{name}.qcow2"
        write_image(path, content_bytes)
        pushed = self._here.push(f"team/{name}", "v1", path.read_bytes(), title=path.name)
        self._carry()
        uri = f"oras://{REGISTRY}/team/{name}:v1"
        image = ServedImage(name=name, uri=uri, digest=pushed.digest, size_bytes=pushed.size_bytes)
        return image, pushed.manifest

    def _carry(self) -> None:
        data = self._here.folder / "data"
        for each in sorted(data.rglob("*")):
            if each.is_file():
                self._site.cluster.write(HOST, f"{FOLDER}/{each.relative_to(data)}", each.read_bytes())
        shutil.rmtree(data)

    def push_container(
        self, name: str, layers: list[bytes], settings: Mapping[str, object] | None = None
    ) -> str:
        push(self._here, f"team/{name}", layers, settings=settings)
        self._carry()
        return f"docker://{REGISTRY}/team/{name}:v1"

    def sent(self, name: str) -> list[tuple[int, int]]:
        """Status and bytes of each answer with this image's bytes."""
        text = self._site.cluster.log(HOST, "registry")
        return [(int(found[2]), int(found[3])) for found in BLOB.finditer(text) if found[1] == name]


@pytest.fixture(scope="module")
def shelf(site: OutriderSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    program = need("docker-registry")
    folder = tmp_path_factory.mktemp("shelf")
    site.cluster.write(HOST, "/etc/registry.json", json.dumps(CONFIGURATION))
    if site.cluster.run(HOST, ["test", "-x", program], check=False).returncode != 0:
        # The trees of other versions have none: one program does.
        site.cluster.write(HOST, program, Path(program).read_bytes(), mode=0o755)
    site.cluster.start(HOST, [program, "serve", "/etc/registry.json"], name="registry")
    with running(folder / "registry") as here:
        yield Shelf(site, here, folder)
    site.cluster.kill(HOST, "registry")


@pytest.mark.long
def test_reservation_of_four_nodes_takes_its_image_from_the_registry_once(
    site: OutriderSite, shelf: Shelf
) -> None:
    image, manifest = shelf.push("wide", 20 * MB)
    text = f"version: 1\nmetadata: {{name: wide, image: {{uri: '{image.uri}'}}}}\ndeployment: {{nodes: 4}}\n"
    site.cluster.write(HEAD, f"{site.home()}/wide.yaml", text)

    answer = reserve(site, "wide", "--start=now+20s", "-t30s")
    name, start_s = str(answer["name"]), answer["start_s"]
    wait_in_slurm(site, name, is_there=True)
    # Without lines of its own: the image is the reservation's.
    job = site.submit(script(None), "-t1", "-N4", f"--reservation={name}")
    found = ended(site, job)

    assert isinstance(start_s, int)
    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") == 4
    there = arrived_s(site, image)
    assert len(there) == 4
    assert max(there.values()) <= start_s <= found.start_s
    assert shelf.sent("wide") == [(200, image.size_bytes)]
    shown_image = shown(site, name)["reservation"]["image"]  # type: ignore[index]
    assert shown_image["uri"] == f"{image.uri}@{manifest}"
    assert shown_image["digest"] == image.digest
    wait_reservation(site, name, "ended")


def test_job_whose_script_names_a_reference_begins_with_its_image(site: OutriderSite, shelf: Shelf) -> None:
    image, manifest = shelf.push("narrow", 5 * MB)
    lines = f"#!/bin/sh\n#OUTRIDER image: {image.uri}\n"

    job = site.submit(script(None).replace("#!/bin/sh\n", lines), "-t1")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).count("QFI") == 1
    assert arrived_s(site, image)[found.nodes] <= found.start_s
    assert shelf.sent("narrow") == [(200, image.size_bytes)]
    assert site.asked(found.nodes, "show", image.digest)["uri"] == f"{image.uri}@{manifest}"


def need_maker(site: OutriderSite) -> None:
    """Where the program that writes a file system is: the head of another version has a tree of its own."""
    path = need("sqfstar")
    if site.cluster.run(HEAD, ["test", "-x", path], check=False).returncode != 0:
        pytest.skip("this version's tree has no squashfs-tools: chroot TREE apt install squashfs-tools")


def test_container_image_is_converted_on_the_head_and_passed_on_from_it(
    site: OutriderSite, shelf: Shelf
) -> None:
    need_maker(site)
    uri = shelf.push_container("layers", [layer(entry("bin/tool", b"x" * MB, mode=0o755))])
    lines = f"#!/bin/sh\n#OUTRIDER image: {uri}\n#OUTRIDER format: sif\n"

    job = site.submit(script(None).replace("#!/bin/sh\n", lines), "-t1", "-N2")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).count(" #!/") == 2, output(site, job)
    assert [status for status, _ in shelf.sent("layers")] == [200, 200], "its settings and its layer, once"


# In the place of the program that writes a file system: it waits as long as a file is there.
WAITING_MAKER = f"""#!/bin/sh
[ "$1" = -version ] || while [ -e {HELD} ]; do sleep 0.2; done
exec /usr/bin/sqfstar "$@"
"""
# What a container runtime does, as an ordinary user: the image's file system as root, and its program there.
# Where the node mounts nothing, the image is a file.
RUN = """root=$OUTRIDER_IMAGE
[ -d "$root" ] || { root=$HOME/root$SLURM_JOB_ID; unsquashfs -q -n -d "$root" "$OUTRIDER_IMAGE" >/dev/null; }
unshare --user --map-root-user chroot "$root" /bin/tool
"""
TOOL = r"""#include <stdio.h>
int main(void) { return printf("from inside of the image\n") < 0; }
"""


@pytest.fixture
def tool(tmp_path: Path) -> bytes:
    """A program that needs nothing beside it."""
    (tmp_path / "tool.c").write_text(TOOL)
    argv = [need("gcc"), "-static", "-o", str(tmp_path / "tool"), str(tmp_path / "tool.c")]
    subprocess.run(argv, check=True, timeout=120)
    return (tmp_path / "tool").read_bytes()


@pytest.mark.repeats(
    "tests/daemons/containers/test_converting_service.py"
    "::test_reservation_of_a_container_image_has_the_result_on_its_nodes"
)
def test_job_shows_its_start_while_its_image_is_converted_and_the_promised_image_runs(
    site: OutriderSite, shelf: Shelf, tool: bytes
) -> None:
    need_maker(site)
    site.cluster.write(HEAD, "/usr/local/bin/sqfstar", WAITING_MAKER, mode=0o755)
    before = shelf.push_container("before", [layer(entry("a", b"small"))])
    uri = shelf.push_container("running", [layer(entry("bin/tool", tool, mode=0o755))])
    text = f"#!/bin/sh\n#OUTRIDER image: {uri}\n#OUTRIDER format: squashfs\n{RUN}"
    # What that takes is known from then on.
    planned = site.outrider("plan", "--image", before, "--nodes=1", "--start=now+1hour", "-t1m", check=False)
    assert planned.returncode == 0, planned.stdout
    site.cluster.write(HEAD, HELD, "")

    job = site.submit(text, "-t1")
    expected = "its image is being converted, and expected about"
    site.cluster.wait_for(
        "an expected start", lambda: expected in seen(site, job).admin_comment, logs=site.logs
    )
    waits, now_s = seen(site, job), CLOCK.now_s()
    told = site.outrider("show", job).stdout
    site.cluster.run(HEAD, ["rm", HELD])
    found = ended(site, job)
    answer = json.loads(
        site.outrider("reserve", "--image", uri, "--nodes=1", "--start=now+20s", "-t40s", "--json").stdout
    )
    wait_in_slurm(site, answer["name"], is_there=True)
    promised = site.submit(f"#!/bin/sh\n{RUN}", "-t1", f"--reservation={answer['name']}")
    kept = ended(site, promised)

    assert waits.state == "PENDING"
    assert now_s - 5 < waits.start_s < now_s + 300, "what the small one took, and a transfer"
    assert "is being converted to squashfs: its layers are here" in " ".join(told.split())
    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job) == "from inside of the image\n"
    assert answer["image"]["size_bytes"] > 0
    assert kept.state == "COMPLETED", output(site, promised)
    assert output(site, promised) == "from inside of the image\n"
    assert kept.start_s >= answer["start_s"]
    wait_reservation(site, answer["name"], "ended")


def test_reservation_of_what_the_registry_does_not_have_is_refused_at_once(
    site: OutriderSite, shelf: Shelf
) -> None:
    refused = site.outrider(
        "reserve", "--image", f"oras://{REGISTRY}/team/none:v1", "--nodes=1", "--start=now+1hour", "-t1m",
        check=False,
    )  # fmt: skip

    assert refused.returncode != 0
    assert "the registry has no team/none that is v1: correct the name or the tag" in refused.stdout
