"""Jobs of a real Slurm whose machines have further images: data that they read, and first disks of roles."""

from __future__ import annotations

import hashlib
import json

import pytest

from cachemgr.instances.iso9660 import iso9660
from testbed.batchcluster import IMAGES, IMAGES_FOLDER, IMAGES_PORT
from testbed.clustersite import ServedImage
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    kept_on,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, restarts, seen, wait_for

MIB = 1 << 20
# What a script does with its data: read a file, try to write one, read the disk that has no file system.
READING = """
cat /data/genes/known
(echo x >/data/genes/known) 2>/dev/null || echo unwritten
head -c 7 /data/plain
(echo x | dd of=/data/plain conv=notrunc) 2>/dev/null || echo unwritten
"""
READ = ["from-genes", "unwritten", "plain1", "unwritten"]


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    return with_kernels(site)


def served(site: OutriderSite, name: str, data: bytes) -> ServedImage:
    """An image with these bytes on the server of images."""
    data = data.ljust(MIB, b"\0")
    site.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{name}", data)
    digest = hashlib.sha256(data).hexdigest()
    uri = f"http://{IMAGES}:{IMAGES_PORT}/{name}"
    return ServedImage(name=name, uri=uri, digest=f"sha256:{digest}", size_bytes=len(data))


def test_machine_reads_its_data_and_cannot_write_it_here_and_at_another_node(machines: OutriderSite) -> None:
    site = machines
    root = served(site, "root.raw", b"root")
    genes = served(site, "genes.raw", iso9660("GENES", {"known": b"from-genes\n"}, {}))
    plain = served(site, "plain.raw", b"plain1\n")
    more = f"#OUTRIDER data: {genes.uri} name=genes digest={genes.digest}\n"
    more += f"#OUTRIDER data: {plain.uri} name=plain digest={plain.digest}\n"
    work = f"{READING}\necho again\nsleep 20\n{READING}"
    job = submit(site, root, work, "-c1", more=more)
    wait_for(site, job, "RUNNING")
    source = seen(site, job).nodes
    wait_until_said(site, job, "again")
    listed = site.asked(source, "ls")["images"]
    assert isinstance(listed, list)
    there = {each["digest"] for each in listed}
    (staged,) = json.loads(site.told("show", job, "--json"))["staging"]
    target = next(node for node in site.cluster.nodes if node != source)

    site.outrider("migrate", job, target)
    done = ended(site, job, BOOT_S)

    assert (done.state, done.nodes) == ("COMPLETED", target), f"{said(site, job)}\n{site.logs()}"
    assert said(site, job).split() == [*READ, "again", *READ]
    assert {root.digest, genes.digest, plain.digest} <= there
    assert (staged["node"], staged["state"], staged["size_bytes"]) == (source, "ready", 3 * MIB)
    assert restarts(site, job) == "Restarts=1"
    assert kept_on(site, source) == kept_on(site, target) == []


@pytest.mark.long
def test_roles_have_images_of_their_own_and_the_data_of_all(machines: OutriderSite) -> None:
    site = machines
    root = served(site, "head.raw", b"of-head")
    worker = served(site, "worker.raw", b"of-work")
    plain = served(site, "of-all.raw", b"of-all")
    more = (
        f"#OUTRIDER role: head\n#OUTRIDER role: w image={worker.uri} digest={worker.digest} user-data=w.sh\n"
        f"#OUTRIDER data: {plain.uri} digest={plain.digest}\n"
    )
    told = "echo $(uname -n) $(head -c 7 /dev/vda) $(head -c 6 /data/data1)"
    site.cluster.write(HEAD, f"{site.home()}/project/w.sh", f"#!/bin/sh\n{told}\n")
    job = submit(site, root, f"{told}\n", "-c1", more=more)
    done = ended(site, job, BOOT_S)

    assert done.state == "COMPLETED", f"{said(site, job)}\n{site.logs()}"
    assert sorted(said(site, job).splitlines()) == ["head of-head of-all", "w of-work of-all"]
