"""A Slurm without any hook of its own: what slurm.conf names there, what its loss does, and how an
installation of an earlier version, whose slurm.conf names our files themselves, comes to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.slurm import SlurmCluster
from tests.daemons.installing.machines import outrider, site, tree

START = "/usr/sbin/cachemgr serve >/var/log/cachemgr.log 2>&1 &"
CONF = "/etc/slurm/slurm.conf"
DEPLOYED = "/usr/lib/outrider/deployed.json"
WHERE = ("/etc/slurm", "/etc/outrider", "/etc/systemd", "/usr/lib/outrider", "/usr/sbin")
NAMED = ("Prolog", "Epilog", "TaskProlog")


def apply(cluster: SlurmCluster, *words: str) -> str:
    done = outrider(cluster, "init", "slurm", "--apply", *words)
    cluster.write("n1", CONF, cluster.read("head", CONF))
    cluster.run("head", ["scontrol", "reconfigure"])
    return done.stdout


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, str]]:
    return {}


@pytest.fixture(scope="module")
def cluster(installed: Path, before: dict[str, dict[str, str]]) -> Iterator[SlurmCluster]:
    with site(installed, 1) as made:
        before.update({host: tree(made, host, *WHERE) for host in ("head", "n1")})
        outrider(made, "init", "slurm", "--apply")
        outrider(made, "nodes", "deploy", "n1", "--limit", "1GiB", "--start-command", START)
        apply(made)
        yield made


def lines(cluster: SlurmCluster) -> list[str]:
    """The lines of slurm.conf that name hooks."""
    found = [line.strip() for line in cluster.read("head", CONF).splitlines()]
    return [line for line in found if line.startswith((*NAMED, "PrologSlurmctld"))]


def faults(cluster: SlurmCluster) -> list[str]:
    """What the doctor finds wrong, but for the service, which does not run here."""
    done = outrider(cluster, "doctor", "--json", check=False)
    found = json.loads(done.stdout)["findings"]
    return [each["words"] for each in found if each["level"] == "fault" and each["what"] != "outriderd"]


@pytest.mark.parametrize(
    "loss",
    [
        "mv /usr/lib/outrider /usr/lib/away",
        "chmod 0 /usr/lib/outrider",
        "chmod 600 /usr/lib/outrider/slurm/*",
        "rm /usr/lib/outrider/slurm/prolog /usr/lib/outrider/slurm/epilog",
    ],
)
def test_no_state_of_our_folder_drains_a_node_or_stops_a_job_without_an_image(
    cluster: SlurmCluster, loss: str
) -> None:
    cluster.run("n1", ["cp", "-a", "/usr/lib/outrider", "/usr/lib/kept"])
    cluster.run("n1", ["sh", "-c", loss])
    try:
        done = cluster.run("head", ["srun", "-wn1", "echo", "ran"], user="ada")
        # As if the filter had not been there: a job with a ticket is one with an image.
        ticket = "--comment=outrider-ticket=1.x"
        argv = ["setpriv", "--reuid=0", "srun", "-wn1", ticket, "echo", "ran"]
        with_image = cluster.run("head", argv, check=False)
        cluster.wait_idle()
        sound = cluster.run("head", ["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
        told = faults(cluster)
    finally:
        cluster.run("n1", ["sh", "-c", "rm -rf /usr/lib/outrider /usr/lib/away"])
        cluster.run("n1", ["mv", "/usr/lib/kept", "/usr/lib/outrider"])

    assert done.stdout == "ran\n"
    assert "ran" not in with_image.stdout
    assert "outrider" in with_image.stdout + with_image.stderr
    assert set(sound) == {"idle"}
    assert any("/usr/lib/outrider" in words for words in told)


def test_what_slurm_conf_names_is_outside_of_our_folder_and_its_loss_is_a_fault(
    cluster: SlurmCluster,
) -> None:
    named = lines(cluster)
    cluster.run("n1", ["mv", "/etc/outrider/slurm/prolog", "/etc/outrider/kept"])
    missing = faults(cluster)
    cluster.run("n1", ["mv", "/etc/outrider/kept", "/etc/outrider/slurm/prolog"])
    cluster.run("n1", ["chmod", "644", "/etc/outrider/slurm/epilog"])
    unusable = faults(cluster)
    cluster.run("n1", ["chmod", "755", "/etc/outrider/slurm/epilog"])

    names = {"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "task-prolog"}
    assert named == [f"{key}=/etc/outrider/slurm/{name}" for key, name in names.items()]
    assert any(words.startswith("/etc/outrider/slurm/prolog is missing") for words in missing)
    assert any(words.startswith("/etc/outrider/slurm/epilog cannot be run") for words in unusable)


def test_prolog_of_slurmctld_comes_when_it_is_wanted_and_stays_through_an_upgrade(
    cluster: SlurmCluster,
) -> None:
    line = "PrologSlurmctld=/etc/outrider/slurm/prolog-slurmctld"
    without = (line in lines(cluster), faults(cluster))
    apply(cluster, "--with-prolog-slurmctld")
    wanted = lines(cluster)
    # As the version before had it.
    direct = cluster.read("head", CONF).replace("/etc/outrider/slurm/", "/usr/lib/outrider/slurm/")
    cluster.write("head", CONF, direct)
    apply(cluster)
    kept = (line in lines(cluster), faults(cluster))
    ran = cluster.run("head", ["srun", "echo", "ran"], user="ada").stdout
    apply(cluster, "--without-prolog-slurmctld")
    gone = (line in lines(cluster), faults(cluster))

    assert without == (False, [])
    assert line in wanted
    assert kept == (True, [])
    assert ran == "ran\n"
    assert gone == (False, [])


def test_upgrade_waits_until_nodes_have_what_slurm_conf_will_name(cluster: SlurmCluster) -> None:
    direct = cluster.read("head", CONF).replace("/etc/outrider/slurm/", "/usr/lib/outrider/slurm/")
    cluster.write("head", CONF, direct)
    cluster.write("n1", CONF, direct)
    cluster.write("head", DEPLOYED, '{"version": 1, "nodes": ["n1"]}\n')
    cluster.run("n1", ["rm", "-r", "/etc/outrider/slurm"])
    cluster.run("head", ["scontrol", "reconfigure"])
    early = apply(cluster)
    between = cluster.read("head", CONF)
    ran = cluster.run("head", ["srun", "echo", "ran"], user="ada").stdout
    outrider(cluster, "nodes", "deploy", "n1", "--start-command", START)
    late = apply(cluster)
    again = cluster.run("head", ["srun", "echo", "ran"], user="ada").stdout
    cluster.wait_idle()

    assert "would drain n1" in early
    assert "  outrider nodes deploy 'n1'\n  outrider init slurm --apply\n" in f"{early}\n"
    assert between == direct
    assert "Prolog=/etc/outrider/slurm/prolog" in late
    assert (ran, again) == ("ran\n", "ran\n")


def test_slurm_conf_waits_until_the_other_controllers_have_the_files(cluster: SlurmCluster) -> None:
    own, kept = cluster.read("head", CONF), cluster.read("head", f"{CONF}.before-outrider")
    direct = own.replace("/etc/outrider/slurm/", "/usr/lib/outrider/slurm/")
    cluster.write("head", CONF, f"{direct}SlurmctldHost=spare(10.9.9.9)\n")
    early = outrider(cluster, "init", "slurm", "--apply").stdout
    between = cluster.read("head", CONF)
    late = outrider(cluster, "init", "slurm", "--apply", "--controllers-are-ready").stdout
    after = cluster.read("head", CONF)
    cluster.write("head", CONF, own)
    cluster.write("head", f"{CONF}.before-outrider", kept)

    assert "spare would lack what they name" in early
    again = "outrider init slurm --apply"
    assert f"  on spare: {again}\n  {again} --controllers-are-ready\n" in early
    assert between == f"{direct}SlurmctldHost=spare(10.9.9.9)\n"
    assert "would lack" not in late
    assert "Prolog=/etc/outrider/slurm/prolog" in after


def test_removal_leaves_every_file_as_it_was(
    cluster: SlurmCluster, before: dict[str, dict[str, str]]
) -> None:
    outrider(cluster, "init", "slurm", "--remove")
    cluster.write("n1", CONF, cluster.read("head", CONF))
    cluster.run("head", ["scontrol", "reconfigure"])
    outrider(cluster, "nodes", "deploy", "n1", "--remove")

    assert {host: tree(cluster, host, *WHERE) for host in ("head", "n1")} == before
