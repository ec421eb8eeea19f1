"""Each host has devices of its own: what is done to them there, the machine does not notice."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import host_maker
from testbed.cluster import Cluster
from testbed.records import TestbedError
from tests.daemons.testbed.clusters import machine, needs_slurm

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    needs_slurm()
    with Cluster({"one": "10.77.0.1", "two": "10.77.0.2"}) as made:
        yield made


def about(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_rdev


def test_host_that_changes_a_device_changes_its_own_alone(cluster: Cluster) -> None:
    before = {name: about(f"/dev/{name}") for name in DEVICES}
    paths = [f"/dev/{name}" for name in DEVICES]
    cluster.run("one", ["chown", "ada", *paths])
    cluster.run("one", ["chmod", "644", *paths])
    shown = {
        host: cluster.run(host, ["stat", "-c", "%a %U", *paths]).stdout.split("\n") for host in cluster.hosts
    }

    after = {name: about(f"/dev/{name}") for name in DEVICES}
    try:
        assert after == before
    finally:
        for name, (mode, uid, _) in before.items():
            os.chown(f"/dev/{name}", uid, -1)
            os.chmod(f"/dev/{name}", mode)
    assert set(shown["one"]) == {"644 ada", ""}
    assert set(shown["two"]) == {"666 root", ""}


def test_devices_of_a_host_do_what_they_should(cluster: Cluster) -> None:
    script = (
        "set -e; echo x >/dev/null; head -c 3 /dev/zero | wc -c; head -c 5 /dev/urandom | wc -c;"
        " ! echo x 2>/dev/null >/dev/full; ls -d /dev/pts /dev/shm /dev/mqueue /dev/fd /dev/stdin;"
        " echo x >/dev/shm/x;"
        " script -qec 'tty' /dev/null"
    )

    done = cluster.run("one", ["sh", "-c", script], user="ada")

    assert done.stdout.split() == [
        "3", "5", "/dev/fd", "/dev/mqueue", "/dev/pts", "/dev/shm", "/dev/stdin", "/dev/pts/0",
    ]  # fmt: skip


def test_testbed_says_when_a_device_of_the_machine_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Cluster({"one": "10.77.0.1"})
    other.up()
    # Those of the machine are everybody's: others' clusters would fail, too.
    changed = host_maker.devices().replace("/dev/full crw-rw-rw-", "/dev/full crw-------")
    monkeypatch.setattr(host_maker, "devices", lambda: changed)

    with pytest.raises(TestbedError, match=r"devices of this machine .*/dev/full crw------- 0:0"):
        other.down()


def test_what_is_compared_before_and_after_names_the_machines_devices() -> None:
    assert "/dev/null" in machine()["devices"]  # type: ignore[operator]
    assert Path("/dev/null").is_char_device()
