"""The application for Open OnDemand under Debian's Passenger: each user's process is that user's."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.page.conftest import PagedSite, lacking
from tests.repository import ROOT
from tests.unit.service.daemon.fakes import eventually

MODULES = Path("/usr/lib/apache2/modules")
USERS = ("nobody", "daemon")
CONFIGURATION = """
ServerName localhost
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/pid
ErrorLog {folder}/error.log
Listen 127.0.0.1:{port}
User www-data
Group www-data
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule env_module {modules}/mod_env.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule passenger_module {modules}/mod_passenger.so
PassengerRoot /usr/lib/ruby/vendor_ruby/phusion_passenger/locations.ini
PassengerDisableSecurityUpdateCheck on
PassengerDisableAnonymousTelemetry on
PassengerInstanceRegistryDir {folder}
PassengerPython /usr/bin/python3
SetEnv OUTRIDER_PORTAL_SETTINGS {folder}/env
SetEnv PYTHONPATH {folder}/lib
<Directory />
  Require all granted
</Directory>
"""
APPLICATION = """
Alias /pun/{user}/outrider {folder}/{user}/public
<Location /pun/{user}/outrider>
  PassengerBaseURI /pun/{user}/outrider
  PassengerAppRoot {folder}/{user}
  PassengerUser {user}
</Location>
"""


@pytest.fixture(scope="module")
def port(site: PagedSite) -> Iterator[int]:
    if os.geteuid() != 0:
        pytest.skip("only root can let Passenger start processes of several users")
    if not (MODULES / "mod_passenger.so").exists():
        lacking("there is no Passenger: install Debian's libapache2-mod-passenger")
    folder = Path(tempfile.mkdtemp(prefix="passenger-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "env").write_text(f"OUTRIDER_SOCKET={site.program.socket}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    # Users may not be let into the folder where Outrider is tested.
    shutil.copytree(ROOT / "outrider_client", folder / "lib/outrider_client")
    text = CONFIGURATION.format(folder=folder, port=number, modules=MODULES)
    for user in USERS:
        shutil.copytree(ROOT / "plugins/ondemand", folder / user)
        (folder / user / "public").mkdir()
        text += APPLICATION.format(folder=folder, user=user)
    (folder / "apache.conf").write_text(text)
    server = subprocess.Popen(["apache2", "-f", str(folder / "apache.conf"), "-DFOREGROUND"])
    try:
        eventually(lambda: connects(number), f"the web server: {folder}/error.log")
        yield number
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def asked(port: int, user: str, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/pun/{user}/outrider{path}", headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_each_user_asks_in_their_own_name(port: int, site: PagedSite) -> None:
    for user in USERS:
        status, body = asked(port, user, "/page/")
        assert (status, b"main.js" in body) == (200, True), body
        status, body = asked(port, user, "/v1/reservations/" + site.secret_name)
        assert (status, json.loads(body)["reservation"]["image"]["uri"]) == (200, None)
        # Not theirs to give up, whatever a header says.
        status, body = asked(
            port,
            user,
            "/v1/reservations/" + site.secret_name,
            "DELETE",
            Remote_User="root",
            X_Remote_User="root",
        )
        assert (status, json.loads(body)["code"]) == (403, "not-allowed")


def test_application_is_a_process_of_its_user(port: int, site: PagedSite) -> None:
    owners = set()
    for user in USERS:
        assert asked(port, user, "/v1/status")[0] == 200
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words, owner = (entry / "cmdline").read_bytes(), entry.stat().st_uid
        except OSError:
            continue
        if b"wsgi-loader" in words or (b"passenger-" in words and b"python" in words.lower()):
            owners.add(owner)

    assert owners >= {pwd.getpwnam(user).pw_uid for user in USERS}


def test_page_of_another_site_is_refused_behind_the_web_server(port: int, site: PagedSite) -> None:
    status, body = asked(
        port, USERS[0], "/v1/reservations/" + site.open_name, "DELETE", Sec_Fetch_Site="cross-site"
    )

    assert (status, "another site" in json.loads(body)["message"]) == (403, True)
