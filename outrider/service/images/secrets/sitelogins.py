"""Registries at which the site has a login that a program tells, and tells anew when it is out of date.

Amazon's ECR gives a password for twelve hours. The program speaks as docker's credential helpers do. What it
says is kept in memory alone, and goes to the registry and its server of tokens by TLS; nodes have such images
from the head.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cachemgr.base.clock import Clock
from cachemgr.fetch.registry.references import Reference
from cachemgr.fetch.registry.session import RegistrySettings
from outrider.metadata.external import ProgramError, Run
from outrider.service.ports import LoginFault, Readers

TIMEOUT_S = 20
LEAST_AGE_S = 10
"""A login that is younger is not asked for anew because a registry refuses it: it has no right then."""
MOST_TEXT = 32_768


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteLogin:
    """`address` is the registry. After `lifetime_s` the program is asked again."""

    address: str
    command: tuple[str, ...]
    lifetime_s: int
    readers: Readers | None = None


@dataclass(slots=True)
class _Known:
    guard: threading.Lock = field(default_factory=threading.Lock)
    pair: tuple[str, str] | None = field(default=None, repr=False)
    since_s: float = 0.0


class SiteLogins:
    """Any thread may call. A program runs once at a time."""

    def __init__(
        self, logins: Iterable[SiteLogin], run: Run, clock: Clock, *, least_age_s: float = LEAST_AGE_S
    ) -> None:
        self._logins = {login.address: login for login in logins}
        self._known = {address: _Known() for address in self._logins}
        self._run = run
        self._clock = clock
        self._least_age_s = least_age_s

    def find(self, address: str) -> SiteLogin | None:
        return self._logins.get(address)

    def settings_for(self, login: SiteLogin, settings: RegistrySettings) -> RegistrySettings:
        """How the registry is asked. Whoever has to show the login a second time shows a new one."""
        asked = 0

        def credentials(reference: Reference) -> tuple[str, str] | None:
            nonlocal asked
            asked += 1
            try:
                return self.pair(login, is_refused=asked > 1)
            except LoginFault:
                return None

        return replace(settings, credentials=credentials)

    def pair(self, login: SiteLogin, *, is_refused: bool = False) -> tuple[str, str]:
        """The name and the password; another one if that which is known was refused. Raises LoginFault."""
        known = self._known[login.address]
        with known.guard:
            age_s = self._clock.monotonic_s() - known.since_s
            is_good = age_s < login.lifetime_s and not (is_refused and age_s >= self._least_age_s)
            if known.pair is None or not is_good:
                known.pair = _told(login, self._run)
                known.since_s = self._clock.monotonic_s()
            return known.pair


def _told(login: SiteLogin, run: Run) -> tuple[str, str]:
    """What the program says. Nothing of its output is in an error: there may be a password in it."""
    words = f"the site's login at {login.address} is not known: {login.command[0]}"
    try:
        done = run((*login.command, "get"), login.address.encode() + b"\n", TIMEOUT_S)
    except ProgramError as error:
        raise LoginFault(f"the site's login at {login.address} is not known: {error}") from error
    if done.exit_code != 0:
        raise LoginFault(f"{words} ended with {done.exit_code}")
    try:
        found = json.loads(done.stdout)
        pair = found["Username"], found["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LoginFault(f"{words} does not answer as docker's credential helpers do") from None
    if not all(isinstance(each, str) and each and len(each) <= MOST_TEXT for each in pair):
        raise LoginFault(f"{words} gives no name and password")
    return pair
