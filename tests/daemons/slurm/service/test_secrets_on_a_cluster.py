"""A user's password for a registry, on a real Slurm: neither another user nor a node finds it anywhere."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.site import SERVICE, OutriderSite
from testbed.slurm import HEAD
from testbed.waiting import awaited
from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.containers.test_logins_of_users import HTPASSWD
from tests.daemons.containers.traces import NEEDLES, PASSWORD, ChildrenWatch, found_at, has_one
from tests.daemons.registries.registry_server import need, running
from tests.daemons.slurm.service.jobs import ended, output
from tests.daemons.slurm.service.test_images_of_registries import need_maker
from tests.repository import ROOT

# What a process is started with is looked through, too.
FROM_NOTHING = True
HOST, PORT, FOLDER = "images", 5001, "/var/lib/closed"
ADDRESS = f"{HOST}:{PORT}"
SECRET = b"what only ada may read " * 2_000
URI = f"docker://{ADDRESS}/team/secret:v1"
LINES = f"#OUTRIDER image: {URI}\n#OUTRIDER private: true\n#OUTRIDER format: sif\n"
# What a host has of its own; the rest is this machine's, as it is, and these tests have the password, too.
FILES = (
    "find /etc/outrider /etc/slurm /etc/munge /usr/lib/outrider ~ada ~bob ~eve /run /srv /tmp "
    "/dev/shm /var/cache/outrider "
    f"/var/log /var/spool /var/lib/outrider /var/lib/slurm /var/lib/munge -path {ROOT} -prune -o -type f"
)
# Names the files that have words of its input.
SEARCH = f"""
words=/tmp/words-$$
cat >$words
{FILES} ! -path "$words" -exec grep -laF -f $words {{}} + 2>/dev/null
grep -laF -f $words /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null
rm $words
"""


DUMP = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).iterdump(), sep='\\n')"


@dataclass
class ClosedSite:
    """A site with a registry that lets nobody in without a password, by TLS."""

    site: OutriderSite

    def service_pid(self) -> int:
        """As this machine sees it."""
        return next(pid for pid, words in self._processes(HEAD) if "outrider.service" in words)

    def daemons(self) -> list[int]:
        nodes = [self._processes(node) for node in self.site.cluster.nodes]
        return [
            pid for found in nodes for pid, words in found if "cachemgr.pyz" in words and "serve" in words
        ]

    def _processes(self, host: str) -> list[tuple[int, str]]:
        space = Path(self.site.cluster.from_outside(host, "/")).parent / "ns/pid"
        found = []
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdecimal() and (path / "ns/pid").readlink() == space.readlink():
                    words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(path.name), words))
            except OSError:
                continue
        return found

    def search(self, host: str, user: str) -> list[str]:
        """Where a user finds the password on a host."""
        words = "\n".join(needle.decode() for needle in NEEDLES)
        done = self.site.cluster.run(
            host, ["/bin/sh", "-c", SEARCH], user=user, given=words, check=False, timeout_s=120
        )
        return done.stdout.split()


@pytest.fixture(scope="module")
def closed(site: OutriderSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedSite]:
    program = need("docker-registry")
    need_maker(site)
    folder, cluster = tmp_path_factory.mktemp("closed"), site.cluster
    command = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=t -addext subjectAltName=DNS:{HOST}"
    )
    argv = [*command.split(), "-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run(argv, check=True, capture_output=True, timeout=240)
    with running(folder / "here") as here:
        push(here, "team/secret", [layer(entry("secret", SECRET))])
    for path in sorted((folder / "here/data").rglob("*")):
        if path.is_file():
            cluster.write(HOST, f"{FOLDER}/{path.relative_to(folder / 'here/data')}", path.read_bytes())
    tls = {"certificate": "/etc/closed/certificate", "key": "/etc/closed/key"}
    configuration = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": FOLDER}},
        "http": {"addr": f"0.0.0.0:{PORT}", "tls": tls},
        "auth": {"htpasswd": {"realm": "test", "path": "/etc/closed/htpasswd"}},
    }
    cluster.write(HOST, "/etc/closed/htpasswd", HTPASSWD)
    cluster.write(HOST, "/etc/closed/configuration", json.dumps(configuration))
    for name in ("key", "certificate"):
        cluster.write(HOST, f"/etc/closed/{name}", (folder / name).read_bytes())
    cluster.start(HOST, [program, "serve", "/etc/closed/configuration"], name="closed")
    cluster.kill(HEAD, SERVICE)
    cluster.write(HEAD, "/etc/ssl/certs/ca-certificates.crt", (folder / "certificate").read_bytes())
    site.start_service()
    yield ClosedSite(site)
    cluster.kill(HOST, "closed")


def test_password_of_a_user_is_nowhere_on_the_cluster(closed: ClosedSite) -> None:
    """Of the service's folder, a dump and a backup of its store, logs, /proc, and memory of the nodes."""
    site, cluster = closed.site, closed.site.cluster
    service = closed.service_pid()
    with ChildrenWatch(service) as children:
        words = ("ada", "--password-stdin")
        login = cluster.run(
            HEAD, ["outrider", "login", ADDRESS, "--username", *words], user="ada", given=f"{PASSWORD}\n"
        )
        job = site.submit(
            f"#!/bin/sh\n{LINES}grep -c 'only ada' \"$OUTRIDER_IMAGE\" >/dev/null; echo here\n", "-t1"
        )
        found = ended(site, job)
        backup = site.outrider("backup", "/var/lib/outrider/kept.sqlite", user="root", check=False)
        dump = cluster.run(HEAD, [cluster.python, "-c", DUMP, "/var/lib/outrider/kept.sqlite"]).stdout
        # Who looks now and then may have missed all that were short.
        assert awaited(lambda: children.seen, 60)

    assert login.stdout == f"logged in at {ADDRESS} as ada\n"
    assert found.state == "COMPLETED", output(site, job) + site.logs()
    assert output(site, job) == "here\n"
    assert backup.returncode == 0, backup.stderr
    assert "team/secret" in dump
    assert not has_one(dump.encode())
    assert children.found == []
    assert not any(has_one(cluster.log(HEAD, name).encode()) for name in (SERVICE,))
    for host in (HEAD, *cluster.nodes):
        for user in ("root", "eve"):
            assert closed.search(host, user) == [], f"by {user} on {host}"
    daemons = closed.daemons()
    assert len(daemons) >= len(cluster.nodes)
    assert [each for pid in daemons for each in found_at(pid)] == [], "nodes are never told it"


def test_search_on_hosts_finds_a_password_where_there_is_one(closed: ClosedSite) -> None:
    cluster = closed.site.cluster
    cluster.write(HEAD, "/var/log/careless", f"login with {PASSWORD}", mode=0o644)
    try:
        assert closed.search(HEAD, "eve") == ["/var/log/careless"]
    finally:
        cluster.run(HEAD, ["rm", "/var/log/careless"])


def test_another_user_reads_neither_the_service_nor_the_private_image(closed: ClosedSite) -> None:
    site, cluster = closed.site, closed.site.cluster
    node = cluster.nodes[0]

    def as_eve(host: str, script: str) -> subprocess.CompletedProcess[str]:
        return cluster.run(host, ["/bin/sh", "-c", script], user="eve", check=False)

    pid = cluster.run(HEAD, ["pgrep", "-f", "outrider.service"]).stdout.split()[0]
    read = [
        as_eve(HEAD, f"cat /proc/{pid}/{name} >/dev/null").returncode for name in ("mem", "environ", "maps")
    ]
    files = as_eve(
        HEAD, "cat /var/lib/outrider/*login* /etc/outrider/*key* /var/lib/outrider/*.sqlite"
    ).stdout
    logins = site.outrider("logins", user="eve").stdout
    refused = site.outrider(
        "reserve",
        "--image",
        URI,
        "--private",
        "--nodes=1",
        "--start=now+1hour",
        "-t1m",
        user="eve",
        check=False,
    )
    job = site.submit(f"#!/bin/sh\n{LINES}true\n", "-t1", user="eve")
    cluster.wait_for(
        "its refusal",
        lambda: "lets nobody read" in site.outrider("show", job, user="eve", check=False).stdout,
        logs=site.logs,
    )
    cluster.run(HEAD, ["scancel", job], user="eve")
    pool = as_eve(node, "find /var/lib/outrider/pool -type f -exec cat {} + 2>/dev/null").stdout
    blob = re.findall(r"[0-9a-f]{64}", cluster.run(node, ["find", "/var/lib/outrider/pool/images"]).stdout)
    asked = [
        as_eve(node, f"curl -s -o /dev/null -w %{{http_code}} http://{host}:{port}/sha256:{each}").stdout
        for each in set(blob)
        for host, port in ((node, 7010), (HEAD, 7012))
    ]

    assert all(code != 0 for code in read)
    assert files == ""
    assert logins == ""
    assert refused.returncode != 0
    assert "lets nobody read" in refused.stdout + refused.stderr
    assert "only ada" not in pool
    assert asked
    assert set(asked) <= {"401", "403", "404"}


def test_crash_of_the_service_leaves_no_core_file(closed: ClosedSite) -> None:
    site, cluster = closed.site, closed.site.cluster
    service = closed.service_pid()
    hard = resource.prlimit(service, resource.RLIMIT_CORE)[1]
    resource.prlimit(service, resource.RLIMIT_CORE, (hard, hard))

    cluster.kill(HEAD, SERVICE, "SEGV")
    cluster.wait_for("the end of the service", lambda: not cluster.is_running(HEAD, SERVICE))
    cores = cluster.run(
        HEAD,
        ["/bin/sh", "-c", f"find / ~root -maxdepth 1 -name 'core*'; {FILES} -name 'core*' -print"],
        check=False,
    )
    site.start_service()

    assert cores.stdout == ""
    assert closed.search(HEAD, "root") == []
    assert cluster.run(HEAD, ["outrider", "logout", ADDRESS], user="ada").returncode == 0
