"""Jobs in virtual machines on a real Slurm: what they are submitted with, and what is to be seen of them."""

from __future__ import annotations

import os

import pytest

from cachemgr.machines.keeper import PROGRAM
from testbed.linux_guest import append, linux_guest
from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD

MB = 1_000_000
MEMORY_MB = 96
BOOT_S = 240
LIMIT_MIN = 15
# A number in two seconds: each starts a program in a guest that may be translated.
COUNTING = """
echo began
i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo $i; sleep 2; done
echo "$i" > counted
"""


def with_kernels(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node, and a folder for ada's jobs."""
    if not os.path.exists(PROGRAM) and "CI" not in os.environ:
        pytest.skip(f"needs {PROGRAM}: make tools")
    if site.cluster.run(site.cluster.nodes[0], ["test", "-x", PROGRAM], check=False).returncode != 0:
        pytest.skip(f"the tree with Slurm {site.cluster.version} has no {PROGRAM}")
    guest = linux_guest()
    for node in site.cluster.nodes:
        folder = "/etc/outrider/boot/debian"
        site.cluster.write(node, f"{folder}/kernel", guest.kernel.read_bytes())
        site.cluster.write(node, f"{folder}/initrd", guest.initrd.read_bytes())
        site.cluster.write(node, f"{folder}/append", append())
    site.cluster.run(HEAD, ["mkdir", "-p", f"{site.home()}/project"], user="ada")
    return site


def submit(
    site: OutriderSite, image: ServedImage, work: str, *options: str, more: str = "", boot: str = "debian",
    user: str = "ada",
) -> str:  # fmt: skip
    text = f"#!/bin/sh\n{image.lines}#OUTRIDER run: vm\n#OUTRIDER boot: {boot}\n{more}\n{work}"
    return site.submit(
        text,
        f"-t{LIMIT_MIN}",
        f"--mem={MEMORY_MB}",
        f"--chdir={site.home(user)}/project",
        *options,
        user=user,
    )


def said(site: OutriderSite, job: str, user: str = "ada") -> str:
    # It is there once the job has begun, a moment after Slurm calls it running.
    return site.cluster.run(HEAD, ["cat", f"{site.home(user)}/project/slurm-{job}.out"], check=False).stdout


def wait_until_said(site: OutriderSite, job: str, word: str, user: str = "ada") -> None:
    site.cluster.wait_for(
        f"{word} of job {job}",
        lambda: word in said(site, job, user).split(),
        BOOT_S,
        lambda: said(site, job, user),
    )


def limit_min(site: OutriderSite, job: str) -> int:
    """A job's limit, which Slurm shows as [HH:]MM:SS."""
    shown = site.cluster.run(HEAD, ["squeue", "-h", "--states=all", f"--jobs={job}", "-o%l"]).stdout.strip()
    hours, minutes, _ = (["0", *shown.split(":")])[-3:]
    return int(hours) * 60 + int(minutes)


def counted_to(site: OutriderSite, job: str, last: int) -> bool:
    return said(site, job).split() == ["began", *(str(number) for number in range(1, last + 1))]


def kept_on(site: OutriderSite, node: str) -> list[str]:
    """What there is of machines on a node: their processes, and what is in their folders."""
    uid = site.cluster.people.of("ada").uid
    command = f"pgrep -u {uid} -l qemu; ls -A /var/tmp/outrider-{uid} 2>/dev/null"
    return site.cluster.run(node, ["/bin/sh", "-c", command], check=False).stdout.split()
