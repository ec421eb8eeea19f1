"""A real service with a few reservations, the page for two users, and a browser."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.asking.page import page_server
from outrider_client.doors import door_of
from outrider_client.portal import Portal
from testbed.browser import Browser, browser, browser_lacks
from tests.daemons.service.test_outriderd_program import Program, image_in
from tests.repository import ROOT

AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
SECRET = "thesis-of-eve"
WORKSPACE = """version: 1
metadata:
  name: {name}
  image: {{uri: "file://{image}", private: {private}}}
deployment: {{nodes: {nodes}, duration: 30m, start: now+{minutes}minutes}}
"""


@dataclass(frozen=True, kw_only=True)
class PagedSite:
    """What there is: the service, two reservations by name, and the page's address for each of two users."""

    program: Program
    image: Path
    open_name: str
    secret_name: str
    for_owner: str
    for_other: str


def lacking(what: str) -> None:
    """A machine that tests everything has to have it."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    if words := browser_lacks():
        lacking(words)
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def site() -> Iterator[PagedSite]:
    folder = Path(tempfile.mkdtemp(prefix="page-", dir="/tmp"))
    folder.chmod(0o755)
    program = Program(folder)
    program.start()
    portals: list[int] = []
    try:
        image = image_in(folder)
        secret = folder / f"{SECRET}.raw"
        shutil.copy(image, secret)
        secret.write_bytes(b"\xa5" * 200_000)
        secret.chmod(0o600)
        names = [
            _reserved(program, name=name, image=path, private=private, nodes=1, minutes=minutes)
            for name, path, private, minutes in (
                ("render", image, "false", 5),
                ("hidden", secret, "true", 50),
            )
        ]
        addresses = [_portal(program, user, portals) for user in ("root", "nobody")]
        yield PagedSite(
            program=program,
            image=image,
            open_name=names[0],
            secret_name=names[1],
            for_owner=addresses[0],
            for_other=addresses[1],
        )
    finally:
        for process in portals:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        program.end(signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def _reserved(program: Program, **wish: Any) -> str:
    body = {"workspace": WORKSPACE.format(**wish), "zone": "UTC"}
    status, decision = program.ask("POST", "/v1/reservations", body)
    assert status == 201, decision
    return str(decision["name"])


def _portal(program: Program, user: str, started: list[int]) -> str:
    """The page's address for a user, served by a process that is this user's."""
    server = page_server(Portal(door_of(str(program.socket), None, {})), 0, f"{'0' * 24}{len(started):08}")
    process = os.fork()
    if process == 0:
        try:
            if os.geteuid() == 0:
                entry = pwd.getpwnam(user)
                os.setgroups([])
                os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
                os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
            server.serve_forever()
        finally:
            os._exit(1)
    server.socket.close()
    started.append(process)
    return server.address
