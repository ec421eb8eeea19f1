"""A user logs in by the command, and has a private image on the nodes; the password is nowhere to be read."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.containers.test_converting_service import ConvertingProgram
from tests.daemons.containers.traces import (
    NEEDLES,
    PASSWORD,
    ChildrenWatch,
    OwnLine,
    found_at,
    found_in_files,
    read_as,
)
from tests.daemons.registries.registry_server import need, running
from tests.daemons.registries.test_looking_at_registries import certified
from tests.repository import ROOT
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually

# The same by bcrypt, as htpasswd -B writes it.
HTPASSWD = "ada:$2b$05$eSVVn0hmitf9fCRWAQ358.Zepuudzy1syBrsaTXneISEZeyfZERHi\n"


PLAIN = "application/vnd.oci.image.layer.v1.tar"
LAYERS = [layer(entry("common", b"c" * 5_000)), layer(entry("own", b"o" * 3_000))]


class ClosedSite(ConvertingProgram):
    """A service whose users have images at a registry that lets nobody in without a password."""

    def outrider(self, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from outrider.cli.main import run; run()", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "HOME": str(self.folder / "home"),
                "OUTRIDER_SOCKET": str(self.socket),
                **variables,
            },
        )

    def traces(self) -> list[str]:
        """Files of the service that have the password, and its processes' arguments and variables."""
        assert self.process is not None
        return [*found_in_files([self.folder]), *found_at(self.process.pid, has_memory=False)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClosedSite, str]]:
    """One for all tests here, each of which gives up the logins that it has made."""
    need("sqfstar")
    tmp_path = tmp_path_factory.mktemp("closed")
    with pytest.MonkeyPatch.context() as patched:
        yield from _site(tmp_path, patched)


def _site(tmp_path: Path, patched: pytest.MonkeyPatch) -> Iterator[tuple[ClosedSite, str]]:
    data = tmp_path / "data"
    with running(data) as plain:
        push(plain, "team/private", [layer(entry("a", b"private"))])
        push(plain, "team/layers", LAYERS, kind=PLAIN, packed=lambda data: data)
        push(plain, "team/swept", [layer(entry("a", b"swept"))])
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    section: dict[str, object] = {"auth": {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}}
    folder = Path(tempfile.mkdtemp(prefix="login-", dir="/tmp"))
    folder.chmod(0o755)
    certificate, key = certified(tmp_path)
    section["http"] = {"tls": {"certificate": str(certificate), "key": str(key)}}
    patched.setenv("SSL_CERT_FILE", str(certificate))
    with running(data, section) as registry:
        # By variables of its own.
        made = ClosedSite(folder, registry, is_forked=False)
        text = made.file.read_text()
        made.file.write_text(text.replace(f"plain_http: '{registry.address}'", f"login_key: {folder}/key"))
        made.start()
        yield made, f"{registry.address}"
        assert made.process is not None
        made.process.kill()
        made.process.wait(PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


def test_private_image_is_on_the_nodes_and_its_password_is_nowhere(site: tuple[ClosedSite, str]) -> None:
    program, host = site
    uri = f"docker://{host}/team/private:v1"
    refused = program.reserve(uri, "k1", ", private: true")
    wrong = program.outrider("login", host, "--username", "ada", "--password-stdin", stdin="wrong\n")
    right = program.outrider("login", host, "--username", "ada", "--password-stdin", stdin=f"{PASSWORD}\n")

    status, decision = program.reserve(uri, "k2", ", private: true")
    program.await_image(decision["name"])

    assert refused[0] == 422
    assert f"`outrider login {host}`" in refused[1]["message"]
    assert wrong.returncode != 0
    assert "does not take this name and password" in wrong.stderr
    assert right.returncode == 0, right.stderr
    assert right.stdout == f"logged in at {host} as ada\n"
    assert program.outrider("logins").stdout.split() == [host, "ada"]
    assert (status, decision["result"]) == (201, "accepted"), decision
    assert program.ask("GET", "/v1/images")[1]["images"][0]["is_private"]
    assert len(program.copies()) == 2
    assert program.traces() == []
    assert program.ask("DELETE", f"/v1/reservations/{decision['name']}", key="k3")[0] == 200
    assert program.outrider("logout", host).returncode == 0


def test_private_image_stays_in_its_layers_and_each_node_has_all_of_them(
    site: tuple[ClosedSite, str],
) -> None:
    program, host = site
    right = program.outrider("login", host, "--username", "ada", "--password-stdin", stdin=f"{PASSWORD}\n")

    status, decision = program.reserve(
        f"docker://{host}/team/layers:v1", "layers", ", private: true, format: layers"
    )
    program.await_image(decision["name"])

    assert (right.returncode, status) == (0, 201), decision
    nodes = program.folder / "s/embedded/nodes"
    for data in LAYERS:
        assert len([path for path in nodes.rglob("data") if path.read_bytes() == data]) == 2
    assert program.ask("DELETE", f"/v1/reservations/{decision['name']}", key="k4")[0] == 200
    assert program.outrider("logout", host).returncode == 0


def test_login_is_taken_from_podmans_file_and_given_up(site: tuple[ClosedSite, str], tmp_path: Path) -> None:
    program, host = site
    auth = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))

    found = program.outrider("login", host, REGISTRY_AUTH_FILE=str(tmp_path / "auth.json"))
    gone = program.outrider("logout", host)

    assert found.returncode == 0, found.stderr
    assert gone.returncode == 0, gone.stderr
    assert program.outrider("logins").stdout == ""
    assert program.outrider("logout", host).returncode != 0
    assert "auth.json, config.json or ~/.netrc" in program.outrider("login", host).stderr


def test_password_of_a_private_image_is_found_nowhere_outside_of_the_service(
    site: tuple[ClosedSite, str], tmp_path: Path
) -> None:
    """Packets, files, copies of the store, programs that it starts, what a crash leaves, and other users."""
    program, host = site
    assert program.process is not None
    service = program.process.pid
    with OwnLine() as wire, ChildrenWatch(service) as children:
        done = program.outrider("login", host, "--username", "ada", "--password-stdin", stdin=f"{PASSWORD}\n")
        status, decision = program.reserve(f"docker://{host}/team/swept:v1", "k1", ", private: true")
        program.await_image(decision["name"])
        kept = program.ask("POST", "/v1/backups", {"path": f"{program.folder}/s/backup.sqlite"})[0]

    assert (done.returncode, status, kept) == (0, 201, 200), done.stderr
    assert wire.bytes > 10_000
    assert wire.found == []
    assert children.seen > 0, "the converting program and what it starts"
    assert children.found == []
    assert found_in_files([program.folder]) == []
    assert [read_as(65534, f"/proc/{service}/{name}") for name in ("mem", "environ", "maps")] == [None] * 3
    resource.prlimit(service, resource.RLIMIT_CORE, (0, resource.prlimit(service, resource.RLIMIT_CORE)[1]))
    program.end(signal.SIGSEGV)
    assert list(program.folder.rglob("core*")) == []
    program.start()
    assert program.outrider("logout", host).returncode == 0


def test_search_for_passwords_finds_one_where_it_is(tmp_path: Path) -> None:
    """Of a program that has it in a variable, an argument, a file, and its memory, and crashes."""
    (tmp_path / "file").write_text(f"auth: {NEEDLES[1].decode()}")
    argv = [sys.executable, "-c", "input()", PASSWORD]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, env={"PASSWORD": PASSWORD}, cwd=tmp_path)
    try:
        allow_core(process.pid)
        eventually(lambda: len(found_at(process.pid)) == 3, "a trace in each")
    finally:
        process.send_signal(signal.SIGSEGV)
        process.communicate(timeout=PATIENCE_S)

    assert len(found_in_files([tmp_path])) == 1 + len(list(tmp_path.glob("core*")))


def allow_core(process: int) -> None:
    """What is left of it when it crashes may be as large as it was."""
    most = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process, resource.RLIMIT_CORE, most)
