"""A private Slurm: jobs on its nodes, its daemons under control, its links as slow as asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.cluster import REPOSITORY
from testbed.records import TestbedError
from testbed.slurm import SlurmCluster
from tests.daemons.testbed.clusters import VERSIONS, machine, needs_slurm, processes

RATE_BITS_PER_S = 80_000_000
IMAGE = bytes(range(256)) * 8192
PROLOG = "#!/bin/sh\necho prolog of $SLURM_JOB_ID >>/var/log/prologs\n"
WHERE = "#!/bin/sh\nhostname; id -un; pwd\n"


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    needs_slurm(request.param)
    with SlurmCluster(
        nodes=2,
        rate_bits_per_s=RATE_BITS_PER_S,
        pool_bytes=1 << 30,
        version=request.param,
        slurm_conf_lines=["Prolog=/etc/slurm/prolog", "PrologFlags=Alloc"],
        files={"/etc/slurm/prolog": PROLOG},
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def all_idle(cluster: SlurmCluster) -> None:
    cluster.wait_idle()


def test_job_runs_on_the_node_that_was_asked_for_as_its_user(cluster: SlurmCluster) -> None:
    job = cluster.sbatch(WHERE, "--nodelist=n2", "--output=out", user="bob")
    cluster.wait_job(job)
    lines = cluster.run("head", ["cat", "out"], user="bob").stdout.splitlines()

    assert lines == ["n2", "bob", cluster.people.of("bob").home]


def test_lines_and_files_of_the_caller_are_in_force(cluster: SlurmCluster) -> None:
    job = cluster.sbatch(WHERE, "--nodelist=n1", "--output=/dev/null")
    cluster.wait_job(job)

    assert f"prolog of {job}\n" in cluster.read("n1", "/var/log/prologs")


def test_hosts_see_one_another_and_not_the_machine(cluster: SlurmCluster) -> None:
    cluster.write("n1", "/etc/slurm/only-here", "n1")
    seen = {
        host: cluster.run(host, ["cat", "/etc/slurm/only-here"], check=False).stdout for host in cluster.hosts
    }
    names = {host: cluster.run(host, ["hostname"]).stdout.strip() for host in cluster.hosts}
    links = cluster.run("n1", ["ip", "-brief", "link"]).stdout.split("\n")

    assert seen == {"head": "", "images": "", "n1": "n1", "n2": ""}
    assert names == {host: host for host in ("head", "images", "n1", "n2")}
    assert [line.split("@")[0].split()[0] for line in links if line] == ["lo", "eth0"]


def test_users_of_a_host_can_run_the_service_of_this_repository(cluster: SlurmCluster) -> None:
    asked = "import outrider.service.daemon.main, sys; print(sys.version_info >= (3, 11))"
    environment = {"PYTHONPATH": str(REPOSITORY)}
    done = cluster.run("head", [cluster.python, "-c", asked], user="ada", environment=environment)

    assert done.stdout == "True\n"


def test_link_lets_no_more_through_than_its_rate(cluster: SlurmCluster) -> None:
    address = cluster.publish("a.img", IMAGE * 2)
    asked = ["curl", "--silent", "--fail", "--output", "a", "--write-out", "%{speed_download}", address]
    speed_bytes_per_s = float(cluster.run("n1", asked).stdout)

    # What a bucket lets through at once makes a short download seem a little faster.
    assert speed_bytes_per_s <= 1.1 * RATE_BITS_PER_S / 8
    assert cluster.run("n1", ["wc", "-c", "a"]).stdout.split()[0] == str(len(IMAGE) * 2)


def test_rate_of_a_link_can_be_changed(cluster: SlurmCluster) -> None:
    address = cluster.publish("d.img", IMAGE)
    asked = ["curl", "--silent", "--fail", "--output", "d", "--write-out", "%{speed_download}", address]
    cluster.set_rate("n1", RATE_BITS_PER_S // 4)
    slow_bytes_per_s = float(cluster.run("n1", asked).stdout)
    cluster.set_rate("n1", RATE_BITS_PER_S)

    # A bucket of 128 KiB is a fifteenth of this image.
    assert slow_bytes_per_s <= 1.2 * RATE_BITS_PER_S / 4 / 8


def test_cut_host_is_silent_until_it_is_mended(cluster: SlurmCluster) -> None:
    address = cluster.publish("e.img", b"here")
    asked = ["curl", "--silent", "--connect-timeout", "1", address]
    cluster.cut("n2")
    during = cluster.run("n2", asked, check=False)
    cluster.mend("n2")
    cluster.wait_for("the link", lambda: cluster.run("n2", asked, check=False).returncode == 0)
    after = cluster.run("n2", asked)

    assert (during.returncode, during.stdout) == (28, "")
    assert after.stdout == "here"


def test_part_of_an_image_can_be_asked_for(cluster: SlurmCluster) -> None:
    address = cluster.publish("b.img", b"0123456789")
    asked = {
        wanted: cluster.run("n2", ["curl", "--silent", "--range", wanted, address]).stdout
        for wanted in ("0-0", "3-5", "7-", "-2", "8-100")
    }
    beyond = cluster.run(
        "n2", ["curl", "--silent", "--output", "c", "--write-out", "%{http_code}", "--range", "10-", address]
    )

    assert asked == {"0-0": "0", "3-5": "345", "7-": "789", "-2": "89", "8-100": "89"}
    assert beyond.stdout == "416"


def test_rebooted_node_has_lost_its_processes_and_kept_its_disk(cluster: SlurmCluster) -> None:
    cluster.start("n1", ["sleep", "1000"], name="sleeper")
    cluster.start("n1", ["sleep", "1000"], name="faithful", at_boot=True)
    cluster.write("n1", "/var/lib/outrider/kept", "kept")
    cluster.write("n1", "/run/outrider/lost", "lost")
    cluster.reboot("n1")
    cluster.wait_idle()

    assert not cluster.is_running("n1", "sleeper")
    assert cluster.is_running("n1", "faithful")
    assert cluster.read("n1", "/var/lib/outrider/kept") == "kept"
    assert cluster.run("n1", ["ls", "/run/outrider/lost"], check=False).returncode != 0
    assert cluster.run("head", ["srun", "--nodelist=n1", "hostname"], user="ada").stdout == "n1\n"


def test_pool_shares_blocks_and_outlives_a_reboot(cluster: SlurmCluster) -> None:
    cluster.run("n1", ["dd", "if=/dev/zero", "of=/var/cache/outrider/image", "bs=1M", "count=4"])
    cluster.reboot("n1")
    cluster.run("n1", ["cp", "--reflink=always", "/var/cache/outrider/image", "/var/cache/outrider/copy"])
    cluster.wait_idle()

    assert cluster.run("n1", ["stat", "-c%s", "/var/cache/outrider/copy"]).stdout == f"{4 << 20}\n"
    assert cluster.run("n2", ["ls", "/var/cache/outrider"]).stdout == ""


def test_node_without_power_is_refused_by_name(cluster: SlurmCluster) -> None:
    cluster.power_off("n2")
    with pytest.raises(TestbedError, match=r"host n2 of .* is off: power it on"):
        cluster.run("n2", ["true"])
    cluster.power_on("n2")

    assert cluster.run("n2", ["hostname"]).stdout == "n2\n"


def test_job_outlives_a_restart_of_the_controller(cluster: SlurmCluster) -> None:
    job = cluster.sbatch("#!/bin/sh\nwhile [ ! -e go-on ]; do sleep 0.1; done\n", "--output=/dev/null")
    cluster.wait_job(job, "RUNNING")
    # By TERM: when it is killed it forgets the jobs of its last seconds, which it has not saved yet.
    cluster.kill_slurmctld("TERM")
    was_up = cluster.is_controller_up()
    cluster.start_slurmctld()
    state = cluster.job_state(job)
    cluster.run("head", ["touch", "go-on"], user="ada")
    cluster.wait_job(job)

    assert not was_up
    assert state == "RUNNING"


def test_killed_slurmd_is_gone_until_it_is_started(cluster: SlurmCluster) -> None:
    cluster.kill_slurmd("n2")
    was_running = cluster.is_daemon_running("n2", "slurmd")
    cluster.start_slurmd("n2")

    assert not was_running
    assert cluster.run("head", ["srun", "--nodelist=n2", "hostname"], user="ada").stdout == "n2\n"


def test_reconfigured_cluster_has_what_the_new_lines_say(cluster: SlurmCluster) -> None:
    cluster.reconfigure(["PartitionName=narrow Nodes=n2 State=UP"])
    partitions = cluster.run("head", ["sinfo", "--noheader", "--format=%R %D"]).stdout.splitlines()

    assert sorted(partitions) == ["main 2", "narrow 1"]


def test_machine_is_not_changed_and_nothing_is_left(cluster: SlurmCluster) -> None:
    before = machine()
    with SlurmCluster(nodes=1, version=None if VERSIONS == [None] else cluster.version[:5]) as other:
        # Two side by side: the same names and addresses, and neither knows of the other.
        job = other.sbatch(WHERE, "--output=out", user="ada")
        other.wait_job(job)
        told = other.run("n1", ["cat", "out"], user="ada").stdout
        elsewhere = cluster.run("n1", ["ls", "out"], user="ada", check=False).returncode
        during = machine()

    assert told.splitlines()[:2] == ["n1", "ada"]
    assert elsewhere != 0
    assert during == before
    assert machine() == before
    assert processes(other.name) == []
    assert not other.record.folder.exists()
