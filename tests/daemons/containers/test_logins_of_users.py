"""A user logs in by the command, and has a private image on the nodes; the password is nowhere to be read."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.containers.container_images import entry, layer, push
from tests.daemons.containers.test_converting_service import ConvertingProgram
from tests.daemons.registries.registry_server import need, running
from tests.repository import ROOT
from tests.unit.service.daemon.fakes import PATIENCE_S

PASSWORD = "unlike-any-key-41"
# The same by bcrypt, as htpasswd -B writes it.
HTPASSWD = "ada:$2b$05$eSVVn0hmitf9fCRWAQ358.Zepuudzy1syBrsaTXneISEZeyfZERHi\n"


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
        places = [path for path in (self.folder / "s").rglob("*") if path.is_file()] + [self.log]
        places += [Path(f"/proc/{self.process.pid}/{name}") for name in ("cmdline", "environ")]
        return [str(path) for path in places if PASSWORD.encode() in path.read_bytes()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[ClosedSite, str]]:
    need("sqfstar")
    data = tmp_path / "data"
    with running(data) as plain:
        push(plain, "team/private", [layer(entry("a", b"private"))])
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    section = {"auth": {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}}
    folder = Path(tempfile.mkdtemp(prefix="login-", dir="/tmp"))
    folder.chmod(0o755)
    with running(data, section) as registry:
        made = ClosedSite(folder, registry)
        keys = f"registries: {{plain_logins: true, login_key: {folder}/key, "
        made.file.write_text(made.file.read_text().replace("registries: {", keys))
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
    with sqlite3.connect(program.folder / "s/outriderd.sqlite") as store:
        assert PASSWORD not in "\n".join(store.iterdump())


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
