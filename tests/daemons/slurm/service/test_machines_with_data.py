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
from tests.daemons.reservations import reserve, workspace
from tests.daemons.slurm.service.failing import fill
from tests.daemons.slurm.service.in_machines import (
    BOOT_S,
    kept_on,
    said,
    submit,
    wait_until_said,
    with_kernels,
)
from tests.daemons.slurm.service.jobs import ended, restarts, script, seen, wait_for, wait_in_slurm

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


# Reads from its disks and not from its memory, before it yields and afterwards; begun anew, once.
READING_AGAIN = f"""
echo 3 >/proc/sys/vm/drop_caches
{READING}
echo "start ${{SLURM_RESTART_COUNT:-0}}"
[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || exit 0
i=0; while [ $i -lt LAST ]; do i=$((i+1)); echo $i; sleep 2; done
echo 3 >/proc/sys/vm/drop_caches
{READING}
echo again
sleep 600
"""


@pytest.mark.long
def test_machine_with_data_yields_comes_back_and_begins_anew_after_its_node_was_lost(
    machines: OutriderSite,
) -> None:
    site, count = machines, 60
    root = served(site, "yields.raw", b"root")
    genes = served(site, "genes2.raw", iso9660("GENES", {"known": b"from-genes\n"}, {}))
    plain = served(site, "plain2.raw", b"plain1\n")
    workspace(site, "needed", 8 * MIB)
    more = f"#OUTRIDER data: {genes.uri} name=genes digest={genes.digest}\n"
    more += f"#OUTRIDER data: {plain.uri} name=plain digest={plain.digest}\n#OUTRIDER preemptible: suspend\n"
    firm = [fill(site, node) for node in ("n2", "n3", "n4")]
    job = submit(site, root, READING_AGAIN.replace("LAST", str(count)), "-c1", "--requeue", more=more)
    wait_until_said(site, job, "5")

    answer = reserve(site, "needed", "--nodes=1", "--start=now+75s", "-t15s")
    name = str(answer["name"])
    wait_in_slurm(site, name, is_there=True)
    inside = site.submit(script(None), "-t1", f"--reservation={name}")
    within = ended(site, inside, BOOT_S)
    wait_until_said(site, job, "again")
    first_two, back_on, runs = said(site, job).split(), seen(site, job).nodes, restarts(site, job)
    site.cluster.run(HEAD, ["scancel", *firm], user="ada")
    site.cluster.power_off("n1")
    site.cluster.run(HEAD, ["scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=off"])
    wait_for(site, job, "PENDING")
    site.cluster.power_on("n1")
    site.cluster.run(HEAD, ["scontrol", "update", "NodeName=n1", "State=RESUME"], check=False)
    done = ended(site, job, 2 * BOOT_S)

    assert answer["result"] == "accepted", answer
    assert (within.state, within.nodes, back_on, runs) == ("COMPLETED", "n1", "n1", "Restarts=1")
    numbers = [str(number) for number in range(1, count + 1)]
    assert first_two == [*READ, "start", "0", *numbers, *READ, "again"]
    # It waits for the node on which it was saved once.
    assert (done.state, done.nodes) == ("COMPLETED", "n1"), f"{said(site, job)}\n{site.logs()}"
    assert said(site, job).split()[-6:] == [*READ, "start", "2"]
    site.cluster.wait_for(
        "no machine",
        lambda: [kept_on(site, node) for node in site.cluster.nodes] == [[]] * 4,
        BOOT_S,
        site.logs,
    )


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
