"""What the configuration says of stores that want a key or a token, and of who may read, by numbers."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable

from cachemgr.base.clock import Clock
from outrider.metadata.external import program_runner
from outrider.service.daemon.configuration.images import ReadersSection
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import ServiceInputError
from outrider.service.images.buckets import Bucket, Buckets
from outrider.service.images.secrets.sitelogins import SiteLogin, SiteLogins
from outrider.service.images.tokens import TokenHost, TokenHosts
from outrider.service.ports import Readers


def buckets_of(config: Config) -> Buckets:
    """Raises InputError."""
    return Buckets(
        Bucket(
            name=name,
            endpoint=section.endpoint or f"https://s3.{section.region}.amazonaws.com",
            region=section.region,
            key_file=section.key,
            profile=section.profile,
            readers=readers_of(f"buckets.{name}", section.readers),
        )
        for name, section in config.buckets.items()
    )


def token_hosts_of(config: Config) -> TokenHosts:
    """Raises InputError."""
    return TokenHosts(
        TokenHost(
            address=address,
            header=section.header,
            file=section.file,
            path=section.path or "/",
            readers=readers_of(f"tokens.{address}", section.readers),
        )
        for address, section in config.tokens.items()
    )


def site_logins_of(config: Config, clock: Clock) -> SiteLogins:
    """Raises InputError."""
    return SiteLogins(
        [
            SiteLogin(
                address=address,
                command=section.command,
                lifetime_s=section.lifetime_s,
                readers=readers_of(f"logins.{address}", section.readers),
            )
            for address, section in config.logins.items()
        ],
        program_runner(clock.monotonic_s),
        clock,
    )


def readers_of(key: str, section: ReadersSection | None) -> Readers | None:
    """The numbers of those who may read what the configuration has under this key; None: everybody."""
    if section is None:
        return None
    return Readers(
        uids=tuple(
            _number(key, "user", each, lambda name: pwd.getpwnam(name).pw_uid) for each in section.users
        ),
        gids=tuple(
            _number(key, "group", each, lambda name: grp.getgrnam(name).gr_gid) for each in section.groups
        ),
    )


def _number(key: str, kind: str, name: str, look_up: Callable[[str], int]) -> int:
    try:
        return look_up(name)
    except KeyError as error:
        what = "image " + key.removeprefix("images.") if key.startswith("images.") else key
        raise ServiceInputError(f"{what}: there is no {kind} {name}; see {key}.readers") from error
