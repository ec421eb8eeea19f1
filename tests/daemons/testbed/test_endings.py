"""However a cluster's owner ends, the cluster ends; and the next one finds the place clean."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cachemgr.base.clock import SystemClock
from testbed import records
from testbed.cluster import Cluster
from testbed.records import TestbedError
from tests.daemons.testbed.clusters import loops, needs_slurm, processes
from tests.repository import ROOT

CLOCK = SystemClock()
DEADLINE_S = 60
OWNER = """
import signal, sys
from testbed.cluster import Cluster
with Cluster({"one": "10.77.0.1", "two": "10.77.0.2"}, name=sys.argv[1], pool_bytes=1 << 29) as cluster:
    cluster.start("one", ["sleep", "1000"], name="sleeper")
    print("stands", flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def able() -> None:
    needs_slurm()


@contextmanager
def owner(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has made a cluster."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, name], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == "stands\n"
            yield process
        finally:
            process.kill()
            process.wait(timeout=DEADLINE_S)
            with records.locked():
                records.remove_dead(CLOCK)


def wait_for_the_end(name: str) -> None:
    until_s = CLOCK.monotonic_s() + DEADLINE_S
    while left := processes(name) + loops(name):
        assert CLOCK.monotonic_s() < until_s, left
        CLOCK.sleep(0.02)


def test_killed_owner_takes_its_hosts_with_it_and_the_next_caller_the_rest() -> None:
    name = f"kill-{os.getpid()}"
    with owner(name) as process:
        during, devices = processes(name), loops(name)
        process.kill()
        process.wait(timeout=DEADLINE_S)
        wait_for_the_end(name)
        with records.locked():
            removed = records.remove_dead(CLOCK)

        assert any("sleep 1000" in command for command in during)
        assert len(devices) == 2
        assert name in removed
        assert not (records.FOLDER / name).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_cluster_in_the_foreground_is_removed_when_it_is_interrupted(number: signal.Signals) -> None:
    name = f"fore-{os.getpid()}"
    argv = [sys.executable, "-m", "testbed", "slurm", "up", "--name", name, "--nodes", "1", "--foreground"]
    with contextlib.ExitStack() as ending:
        process = ending.enter_context(subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        ending.callback(process.kill)
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
        stood = name in [record.name for record in records.alive()]
        process.send_signal(number)
        code = process.wait(timeout=DEADLINE_S)

    assert said[0].startswith(f"{name}: Slurm ")
    assert stood
    assert code == 0
    assert processes(name) == []
    assert not (records.FOLDER / name).exists()


def test_host_ends_with_its_site() -> None:
    name = f"site-{os.getpid()}"
    with owner(name):
        site = records.read(name).site
        assert site is not None
        site.kill()
        wait_for_the_end(name)

        assert name not in [record.name for record in records.alive()]


def test_cluster_that_cannot_boot_leaves_nothing() -> None:
    class Broken(Cluster):
        def boot(self, hosts: object) -> None:
            raise TestbedError("no boot")

    cluster = Broken({"one": "10.77.0.1"})
    with pytest.raises(TestbedError, match="no boot"):
        cluster.up()

    assert processes(cluster.name) == []
    assert not cluster.record.folder.exists()


def test_host_that_cannot_be_made_leaves_nothing() -> None:
    cluster = Cluster({"one": "10.77.0.1", "two": "10.77.0.999"})
    with pytest.raises(TestbedError, match=r"10\.77\.0\.999"):
        cluster.up()

    assert processes(cluster.name) == []
    assert not cluster.record.folder.exists()


def test_host_is_refused_a_name_that_no_device_can_have() -> None:
    with pytest.raises(TestbedError, match="'a-much-too-long-name' is not a host"):
        Cluster({"a-much-too-long-name": "10.77.0.1"})


def test_name_that_is_taken_is_refused_and_its_cluster_stays() -> None:
    with Cluster({"one": "10.77.0.1"}) as first:
        second = Cluster({"one": "10.77.0.1"}, name=first.name)
        with pytest.raises(TestbedError, match=f"a testbed called {first.name} stands"):
            second.up()

        assert first.run("one", ["echo", "here"]).stdout == "here\n"


def test_interrupted_run_leaves_no_command_on_the_host() -> None:
    with Cluster({"one": "10.77.0.1"}) as cluster:
        words, variables = cluster.command("one", ["sleep", "1000"], user="ada")
        process = subprocess.Popen(words, env=variables)
        with contextlib.ExitStack() as ending:
            ending.callback(process.wait, timeout=DEADLINE_S)
            ending.callback(process.kill)
            cluster.wait_for("the command", lambda: cluster.programs("one") == ["sleep"])
            process.send_signal(signal.SIGTERM)
        cluster.wait_for("its end", lambda: cluster.programs("one") == [])

        assert cluster.programs("one") == []
