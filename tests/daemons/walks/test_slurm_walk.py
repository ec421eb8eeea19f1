"""docs/tutorial/install-slurm.md on Debian's trixie with a real systemd, at a site with a Prolog, a filter
and a reservation of its own: installed from the release's archive or its package, used by its users, brought
to the next version, removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from testbed.batchcluster import HEAD
from testbed.bootedcluster import BootedSlurm
from tests.daemons.installing.follow import Table, steps
from tests.daemons.installing.machines import let_in, need_everything, tree
from tests.daemons.installing.ownhooks import FILES, LINES
from tests.daemons.walks.pages import SLURM, differences, give_archive, table, walk

VERSION = os.environ.get("OUTRIDER_WALK_VERSION", "24.11") or None
WHERE = ("/etc", "/usr/lib/outrider", "/usr/lib/systemd", "/usr/sbin", "/usr/local", "/opt")
VERSIONS = ("The next version", "The version before")
SITES = "maintenance"
PATIENCE_S = 180
# Its lines are composed with those that the site has.
SHOWN = """Slurm …, /etc/slurm/slurm.conf, 2 nodes

lines for /etc/slurm/slurm.conf:
  Prolog=/etc/outrider/slurm/prolog
  TaskProlog=/etc/outrider/slurm/task-prolog
…
lines for /etc/slurm/job_submit.lua:
…
Nothing was changed.

next:
  outrider init slurm --apply"""
READS = '#!/bin/sh\ncat "$OUTRIDER_IMAGE"\n'


@pytest.fixture
def cluster(long: None) -> Iterator[BootedSlurm]:
    need_everything()
    files = {f"/etc/slurm/{name}": text for name, text in FILES.items()}
    with BootedSlurm(nodes=2, version=VERSION, slurm_conf_lines=LINES, files=files) as made:
        let_in(made)
        yield made


def test_site_is_installed_used_and_left_as_the_page_says(cluster: BootedSlurm, archive: Path) -> None:
    rest, printed, changed = lived_through(cluster, table(give_archive(cluster, archive), {}), WHERE)

    assert rest == []
    assert printed == "yes\nyes\n"
    assert changed == []


def test_site_lives_with_the_package_alone(cluster: BootedSlurm, packages: Path) -> None:
    for folder in (packages, packages / "next"):
        file = next(folder.glob("outrider_*.deb"))
        cluster.write(HEAD, f"/srv/{folder.name}.deb", file.read_bytes())
    now, later = f"/srv/{packages.name}.deb", "/srv/next.deb"
    # The testbed's: an empty folder that is a package's own goes with the package.
    cluster.run(HEAD, ["rmdir", "/usr/lib/outrider"])

    where = (*WHERE, "/usr/bin", "/usr/share", "/usr/lib/sysusers.d")
    rest, printed, changed = lived_through(cluster, packaged(now, later), where)

    assert rest == []
    assert printed == "yes\nyes\n"
    assert changed == []


def packaged(now: str, later: str) -> dict[str, str]:
    """What is typed with a package in the place of the archive: nothing but dpkg."""
    lines = [step.line for step in steps(SLURM, HEAD) if step.section in ("Get it", *VERSIONS, "Remove it")]
    of_archive = [line for line in lines if "/opt" in line or "/usr/local/" in line]
    words = dict.fromkeys(of_archive, "true")
    installs = [line for line in of_archive if "pip install" in line]
    assert len(set(installs)) == 2, installs
    return {
        **words,
        installs[0]: f"dpkg -i {now}",
        installs[1]: f"dpkg -i $(dpkg -s outrider | grep -q 'Version: 9' && echo {now} || echo {later})",
        next(line for line in of_archive if line.startswith("rm ")): "dpkg -P outrider",
    }


def lived_through(
    cluster: BootedSlurm, words: Mapping[str, str], where: Sequence[str]
) -> tuple[list[str], str, list[str]]:
    """The whole page, with users at work: what of it was not typed, what the site's own jobs print then,
    and which files are not as they were."""
    hosts = (HEAD, *cluster.nodes)
    before = {host: tree(cluster, host, *where) for host in hosts}
    page = walk(SLURM, cluster, Table(words=words, screens={"outrider init slurm": SHOWN}))

    page.go("Get it", "See what it would change", "Prepare the head", "Prepare the nodes")
    page.go("Let Slurm know", "Start the service", "The first job")
    use(cluster, "one")
    page.go(*VERSIONS)
    use(cluster, "two")
    page.go("Remove it")

    printed = sites_own_jobs(cluster)
    return page.rest(), printed, differences(before, {host: tree(cluster, host, *where) for host in hosts})


def sites_own_jobs(cluster: BootedSlurm) -> str:
    """What a job without an image prints, which the site's own TaskProlog has told it."""
    return cluster.run(HEAD, ["srun", "-N2", "sh", "-c", 'echo "$SITE"'], user="ada").stdout


def use(cluster: BootedSlurm, name: str) -> None:
    """What users do, and what they see."""
    assert sites_own_jobs(cluster) == "yes\nyes\n"
    # Slurm's epilogs run after the job has ended.
    cluster.wait_idle()
    for node in cluster.nodes:
        assert cluster.read(node, "/var/log/site-hooks").splitlines()[-2:] == ["prolog", "epilog"]
    refused = cluster.run(HEAD, ["sbatch", "--comment=no", "--wrap=true"], user="ada", check=False)
    assert "the site says no" in refused.stderr
    image = cluster.publish(f"{name}.raw", f"bytes of {name}\n".encode())
    digest = cluster.run("images", ["sha256sum", f"/srv/images/{name}.raw"]).stdout.split()[0]
    cluster.publish(f"{name}.raw.sha256", f"{digest}\n".encode())
    script = READS.replace("\n", f"\n#OUTRIDER image: {image}\n", 1)
    in_sites_own(cluster, script)
    reserved(cluster, name, image)
    batch(cluster, name, script)
    doctor = cluster.run(HEAD, ["outrider", "doctor", "--quiet"], check=False)
    assert (doctor.returncode, doctor.stdout) == (0, ""), doctor.stdout


def in_sites_own(cluster: BootedSlurm, script: str) -> None:
    """A reservation of the site's takes jobs without images as ever; one with an image is told at once."""
    make = ["scontrol", "create", "reservation", f"ReservationName={SITES}", "StartTime=now"]
    cluster.run(HEAD, [*make, "Duration=120", "Nodes=n2", "Users=ada"])
    argv = ["sbatch", f"--reservation={SITES}", "--wait", "--output=plain.out", "--wrap=hostname"]
    cluster.run(HEAD, argv, user="ada", timeout_s=PATIENCE_S)
    assert cluster.read(HEAD, f"{home(cluster)}/plain.out") == "n2\n"
    told = cluster.run(HEAD, ["sbatch", f"--reservation={SITES}"], user="ada", given=script, check=False)
    assert told.returncode != 0
    assert f'reservation "{SITES}" is not made by Outrider' in told.stderr
    cluster.run(HEAD, ["scontrol", "delete", f"ReservationName={SITES}"])


def reserved(cluster: BootedSlurm, name: str, image: str) -> None:
    """Reserve, submit into it as the answer says, and find the image there."""
    options = ["--image", image, "--nodes", "1", "-t", "1m", "--start", "now+15s", "--json"]
    asked = cluster.run(HEAD, ["outrider", "reserve", *options], user="ada")
    answer = json.loads(asked.stdout)
    assert answer["result"] == "accepted"
    cluster.wait_for(
        "the reservation in Slurm",
        lambda: str(answer["name"]) in cluster.run(HEAD, ["scontrol", "show", "res"], check=False).stdout,
        PATIENCE_S,
    )
    cluster.write(HEAD, f"{home(cluster)}/{name}.sh", READS, mode=0o755)
    words = ["--reservation", str(answer["name"]), "--nodes", "1", f"{home(cluster)}/{name}.sh"]
    said = cluster.run(HEAD, ["outrider", "submit", *words], user="ada").stdout
    job = next(word for word in said.replace(",", " ").split() if word.isdigit())
    cluster.wait_job(job, timeout_s=PATIENCE_S)
    assert cluster.read(HEAD, f"{home(cluster)}/slurm-{job}.out") == f"bytes of {name}\n"
    cluster.run(HEAD, ["outrider", "cancel", str(answer["name"])], user="ada")


def batch(cluster: BootedSlurm, name: str, script: str) -> None:
    """Some jobs at once, and what they have printed."""
    jobs = [cluster.sbatch(script, f"--job-name={name}") for _ in range(4)]
    for job in jobs:
        cluster.wait_job(job, timeout_s=PATIENCE_S)
        assert cluster.read(HEAD, f"{home(cluster)}/slurm-{job}.out") == f"bytes of {name}\n"


def home(cluster: BootedSlurm) -> str:
    return cluster.people.of("ada").home
