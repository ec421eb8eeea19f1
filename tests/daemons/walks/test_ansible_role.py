"""The Ansible role on a private Slurm: it installs everything, and a second run changes nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.batchcluster import HEAD
from testbed.bootedcluster import BootedSlurm
from tests.daemons.installing.machines import let_in, need_everything
from tests.repository import ROOT

ROLE = ROOT / "packaging/ansible/outrider"
PLACE = "/srv/ansible"
RATE = "60MB"
RUN_S = 900


@pytest.fixture
def cluster(long: None) -> Iterator[BootedSlurm]:
    """Of this machine's own suite, whose ansible-core the head has."""
    need_everything()
    if shutil.which("ansible-playbook") is None:
        pytest.skip("there is no Ansible: install Debian's ansible-core")
    with BootedSlurm(nodes=2) as made:
        let_in(made)
        yield made


def test_role_installs_everything_and_changes_nothing_when_run_again(
    cluster: BootedSlurm, packages: Path
) -> None:
    give(cluster, packages)

    first = run(cluster)
    for node in cluster.nodes:
        cluster.run(HEAD, ["scp", "-q", "/etc/slurm/slurm.conf", f"{node}:/etc/slurm/slurm.conf"])
    cluster.run(HEAD, ["scontrol", "reconfigure"])
    second = run(cluster)
    doctor = cluster.run(HEAD, ["outrider", "doctor", "--quiet"], check=False, timeout_s=RUN_S)
    image = cluster.publish("first.raw", b"bytes\n")
    digest = cluster.run("images", ["sha256sum", "/srv/images/first.raw"]).stdout.split()[0]
    cluster.publish("first.raw.sha256", f"{digest}\n".encode())
    job = cluster.sbatch(f'#!/bin/sh\n#OUTRIDER image: {image}\ncat "$OUTRIDER_IMAGE"\n')
    cluster.wait_job(job)

    assert (first["failed"], second["failed"]) == (0, 0)
    assert first["changed"] >= 7
    assert second["changed"] == 0, second
    assert (doctor.returncode, doctor.stdout) == (0, "")
    assert cluster.read(HEAD, f"{cluster.people.of('ada').home}/slurm-{job}.out") == "bytes\n"
    assert f"rate: {RATE}" in cluster.read(HEAD, "/etc/outrider/conf.d/ansible.yaml")


def give(cluster: BootedSlurm, packages: Path) -> None:
    """The role, a package and a playbook on the head, which is told of itself."""
    # Else all of this machine's manual pages are looked through.
    cluster.run(HEAD, ["rm", "-f", "/var/lib/man-db/auto-update"])
    for path in (each for each in ROLE.rglob("*") if each.is_file()):
        cluster.write(HEAD, f"{PLACE}/roles/outrider/{path.relative_to(ROLE)}", path.read_bytes())
    package = next(packages.glob("outrider_*.deb"))
    cluster.write(HEAD, f"{PLACE}/outrider.deb", package.read_bytes())
    variables = {
        "outrider_package": f"{PLACE}/outrider.deb",
        "outrider_system": "slurm",
        "outrider_nodes": "n[1-2]",
        "outrider_limit": "1GiB",
        "outrider_configuration": {"link": {"rate": RATE}},
    }
    play = [{"hosts": "all", "roles": [{"role": "outrider", "vars": variables}]}]
    cluster.write(HEAD, f"{PLACE}/play.yml", yaml.safe_dump(play))


def run(cluster: BootedSlurm) -> dict[str, int]:
    """How many tasks changed something, failed and so on."""
    settings = ["ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8"]
    play = ["ansible-playbook", "-c", "local", "-i", "localhost,", f"{PLACE}/play.yml"]
    done = cluster.run(HEAD, ["env", *settings, *play], check=False, timeout_s=RUN_S)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    # ansible-core has no other form of it: localhost : ok=12 changed=5 unreachable=0 failed=0 ...
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap)}


def test_playbook_of_the_repository_is_understood() -> None:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("there is no Ansible: install Debian's ansible-core")
    playbook = str(ROOT / "packaging/ansible/playbook.yml")
    done = subprocess.run(
        ["ansible-playbook", "--syntax-check", "-i", "localhost,", playbook],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ANSIBLE_ROLES_PATH": str(ROLE.parent)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
