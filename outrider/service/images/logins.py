"""Users' logins at registries: names and passwords, sealed on the disk, and used for their own images alone.

They are in a file of their own and not in the store, so neither its dump nor its backup has them. They go to
the registry and to its server of tokens, by TLS, and to nobody else: nodes fetch from the head.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.base.errors import BadRequest
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.references import API_HOSTS, HUB, Reference, read_hosts
from cachemgr.fetch.registry.session import RegistrySettings, Session
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.images.secrets.sealing import read_key, seal, unseal
from outrider.service.ports import LoginFault, RegistryLogin

VERSION = 1
MOST_OF_ONE = 32
MOST_USERS = 10_000
MOST_FILE_BYTES = 64 << 20
MOST_TEXT = 8_192
CHECK_S = 15.0
_UNFIT = re.compile(r"[\x00-\x1f\x7f]")


Check = Callable[[str, str, str], None]
"""Asks a registry whether it takes a name and a password. Raises LoginFault."""


class Logins:
    """Any thread may call."""

    def __init__(self, path: Path, key: Path, clock: Clock, check: Check) -> None:
        self._path = path
        self._key = key
        self._clock = clock
        self._check = check
        self._guard = threading.Lock()

    def add(self, uid: int, host: str, user: str, password: str) -> RegistryLogin:
        """Keep a login that the registry takes. Raises LoginFault."""
        host = host_of(host)
        for text in (user, password):
            if not text or len(text) > MOST_TEXT or _UNFIT.search(text):
                raise LoginFault("a name and a password are needed, without control characters")
        if ":" in user:
            raise LoginFault("a name with a colon is taken by no registry: correct it")
        key = read_key(self._key)
        self._check(host, user, password)
        with self._guard:
            users = self._read()
            own = users.setdefault(str(uid), {})
            if host not in own and len(own) >= MOST_OF_ONE:
                raise LoginFault(f"you have {len(own)} logins: `outrider logout HOST` gives one up")
            if len(users) > MOST_USERS:
                raise LoginFault("there are too many logins: tell the administrators")
            since_s = self._clock.now_s()
            secret = seal(key, json.dumps([user, password]), f"{uid} {host}")
            own[host] = {"since_s": since_s, "sealed": secret}
            self._write(users)
        return RegistryLogin(host=host, user=user, since_s=since_s)

    def drop(self, uid: int, host: str) -> bool:
        """Forget a login; whether there was one."""
        host = host_of(host)
        with self._guard:
            users = self._read()
            found = users.get(str(uid), {}).pop(host, None)
            if found is None:
                return False
            if not users[str(uid)]:
                del users[str(uid)]
            self._write(users)
            return True

    def of(self, uid: int) -> tuple[RegistryLogin, ...]:
        """A user's logins. One that cannot be read any more has no name."""
        with self._guard:
            own = self._read().get(str(uid), {})
        found = []
        for host, row in sorted(own.items()):
            known = self.find(uid, host)
            name = "" if known is None else known[0]
            found.append(RegistryLogin(host=host, user=name, since_s=int(str(row.get("since_s", 0)))))
        return tuple(found)

    def find(self, uid: int, host: str) -> tuple[str, str] | None:
        """The name and the password of a user at a registry; None if there are none that can be read."""
        with self._guard:
            row = self._read().get(str(uid), {}).get(host)
        if row is None:
            return None
        try:
            user, password = json.loads(unseal(read_key(self._key), str(row["sealed"]), f"{uid} {host}"))
        except (LoginFault, ValueError, KeyError, TypeError):
            return None
        return str(user), str(password)

    def settings_for(self, uid: int, settings: RegistrySettings) -> RegistrySettings:
        """How registries are asked in a user's name."""

        def credentials(reference: Reference) -> tuple[str, str] | None:
            return self.find(uid, host_of(reference.address))

        return replace(settings, credentials=credentials)

    def _read(self) -> dict[str, dict[str, dict[str, object]]]:
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(MOST_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise LoginFault("the file of logins cannot be read: tell the administrators") from error
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise LoginFault("the file of logins is of another version: tell the administrators")
        users = found.get("users")
        return users if isinstance(users, dict) else {}

    def _write(self, users: dict[str, dict[str, dict[str, object]]]) -> None:
        data = json.dumps({"version": VERSION, "users": users}, separators=(",", ":")).encode()
        try:
            replace_file(RealDisk(), str(self._path), data, mode=0o600)
        except OSError as error:
            raise LoginFault(
                f"the login cannot be kept ({error.strerror}): tell the administrators"
            ) from error


def host_of(text: str) -> str:
    """A registry as logins name it; Docker Hub has one name. Raises LoginFault."""
    try:
        hosts = read_hosts(text)
    except BadRequest as error:
        raise LoginFault(str(error)) from error
    if len(hosts) != 1:
        raise LoginFault(f"{text!r} is not a registry: write HOST or HOST:PORT")
    return HUB if hosts[0] in (*API_HOSTS, *API_HOSTS.values()) else hosts[0]


def checker(settings: RegistrySettings, web: WebSettings, clock: Clock) -> Check:
    """What asks a registry whether it takes a name and a password."""

    def check(host: str, user: str, password: str) -> None:
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        reference = Reference("docker", name if colon else host, int(port) if colon else None, "", "", "")
        asked = replace(settings, credentials=lambda reference: (user, password))
        if host in settings.plain_hosts and not settings.allows_plain_logins:
            raise LoginFault(
                f"{host} is asked without TLS, and anybody on the way could read a password: ask the "
                "administrators for registries.plain_logins"
            )
        try:
            Session(reference, asked, web, clock).enter(CHECK_S)
        except SourceFault as fault:
            if fault.status in (401, 403):
                raise LoginFault(f"{host} does not take this name and password: correct them") from fault
            raise LoginFault(f"{host} cannot be asked whether it takes them: {fault}") from fault

    return check
