"""An image that is no disk image, on nodes without reflinks: its copies are made before their jobs."""

from __future__ import annotations

import hashlib
import os

import pytest

from testbed.batchcluster import IMAGES, IMAGES_FOLDER, IMAGES_PORT
from testbed.clustersite import NODE_DAEMON
from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD
from tests.daemons.reservations import reserve, wait_reservation
from tests.daemons.slurm.service.failing import fill
from tests.daemons.slurm.service.jobs import HELD, ended, instances, output, script, seen, wait_in_slurm

MB = 1_000_000
WORKSPACE = """version: 1
metadata: {{name: {name}, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}
deployment: {{nodes: 1, duration: 10m}}
"""


def file_image(site: OutriderSite, name: str, size_bytes: int) -> ServedImage:
    """A file of random bytes, in which no format is recognised, on the server of images."""
    content = b"abc" + os.urandom(size_bytes)
    site.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{name}", content)
    return ServedImage(
        name=name,
        uri=f"http://{IMAGES}:{IMAGES_PORT}/{name}",
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
        size_bytes=len(content),
    )


@pytest.fixture(autouse=True)
def has_no_reflinks(site: OutriderSite) -> None:
    if "reflink" in site.cluster.log("n1", NODE_DAEMON, 1_000):
        pytest.skip("the file system of this machine shares blocks: nothing is copied there")


def check_copied_before(site: OutriderSite, node: str, pin: str, job: str) -> None:
    """One copy was made, for that pin, and the job's instance afterwards of it."""
    lines = site.cluster.log(node, NODE_DAEMON, 2_000).splitlines()
    copied = [
        number
        for number, line in enumerate(lines)
        if "copy made before its job" in line and f"owner=reservation:{pin} " in line
    ]
    ready = [
        number
        for number, line in enumerate(lines)
        if "instance ready" in line and f"owner=job-{job} " in line
    ]
    assert copied, lines
    assert len(ready) == 1, lines
    assert copied[0] < ready[0]
    assert "method=copy" in lines[ready[0]]


def test_copy_is_made_before_the_job_begins(site: OutriderSite) -> None:
    image = file_image(site, "made.img", 30 * MB)

    job = site.submit(script(image), "-t1")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert "abc" in output(site, job)
    check_copied_before(site, found.nodes, f"job-{job}", job)


def test_job_that_is_cancelled_before_its_start_leaves_no_copy(site: OutriderSite) -> None:
    image = file_image(site, "left.img", 10 * MB)
    filled = [fill(site, node) for node in site.cluster.nodes]
    job = site.submit(script(image), "-t1")

    def nodes_with_a_copy() -> list[str]:
        owner = f"reservation:job-{job}"
        return [node for node in site.cluster.nodes if owner in instances(site, node)]

    site.cluster.wait_for("its copy is made", lambda: bool(nodes_with_a_copy()), logs=site.logs)
    site.cluster.wait_for("it is released", lambda: seen(site, job).reason not in HELD, logs=site.logs)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    site.cluster.wait_for("its copy is gone", lambda: not nodes_with_a_copy(), logs=site.logs)
    for each in filled:
        site.cluster.run(HEAD, ["scancel", each], user="ada")

    assert nodes_with_a_copy() == []


def test_job_of_a_reservation_finds_its_copy_made(site: OutriderSite) -> None:
    image = file_image(site, "kept.img", 10 * MB)
    path = f"{site.home()}/copied.yaml"
    site.cluster.write(HEAD, path, WORKSPACE.format(name="copied", image=image))

    answers: list[dict[str, object]] = []

    def is_accepted() -> bool:
        """As soon as the service has seen that the jobs of the test before have left their nodes."""
        answers.append(reserve(site, "copied", "--nodes=1", "--start=now+12s", "-t15s"))
        return answers[-1]["result"] == "accepted"

    site.cluster.wait_for("a free node", is_accepted, logs=site.logs)
    name = str(answers[-1]["name"])
    wait_in_slurm(site, name, is_there=True)
    job = site.submit(script(None), "-t1", f"--reservation={name}")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    check_copied_before(site, found.nodes, name, job)
    wait_reservation(site, name, "ended")
