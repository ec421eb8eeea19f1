"""Where images are made on the head: the converter, the folder of its results, and what serves nodes."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from cachemgr.base.clock import Clock
from cachemgr.base.errors import BadRequest
from cachemgr.fetch.registry.references import SCHEMES, read_reference
from cachemgr.fetch.registry.session import RegistrySettings
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import BackendError
from outrider.service.daemon.world.stores import buckets_of, site_logins_of, token_hosts_of
from outrider.service.images.containers.conversion import Means
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImages
from outrider.service.images.logins import Logins, checker
from outrider.service.meter import Log
from outrider.service.nodes.headrelay import HeadRelay
from outrider.service.nodes.promised import Promised

TROUBLED_DISK = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class HeadImages:
    """Begins and ends with the backend. Without a way to the nodes nothing is made: `converter` is None."""

    def __init__(self, config: Config, clock: Clock, log: Log, promised: Promised) -> None:
        section = config.conversions
        self._address = section.address
        self._is_own_folder = config.conversions.folder is None
        self._is_local = config.backend.kind in ("embedded", "twin")
        self._clock = clock
        self._log = log
        self._relay: HeadRelay | None = None
        self.registries = RegistrySettings(
            frozenset(config.registries.plain_http),
            config.registries.platform,
            allows_plain_logins=config.registries.plain_logins,
        )
        self.logins = Logins(
            Path(config.state) / "logins.json",
            Path(config.registries.login_key),
            clock,
            checker(self.registries, WebSettings(), clock),
        )
        self.buckets = buckets_of(config)
        self.tokens = token_hosts_of(config)
        self.site_logins = site_logins_of(config, clock)
        self._made = MadeImages(
            Path(config.conversions_folder), section.size_bytes, clock, promised.needed_digests
        )
        means = Means(
            made=self._made,
            clock=clock,
            compression=section.compression,
            largest_bytes=section.largest_bytes,
            patience_s=section.patience_s,
            processors=section.processors,
        )
        self.converter = (
            Converter(
                means, at_once=section.at_once, user=section.user, log=log, default_format=section.format
            )
            if self._is_local or self._address is not None
            else None
        )

    def start(self, keys: Sequence[bytes]) -> None:
        """Raises BackendError."""
        if self.converter is None:
            return
        try:
            self._made.prepare()
        except BadRequest as error:
            raise BackendError(f"conversions.folder {self._made.folder}: {error}") from error
        except OSError as error:
            if self._is_own_folder and error.errno in TROUBLED_DISK:
                # The store is on the same disk, and what it says of that is what an administrator needs.
                return
            raise BackendError(f"conversions.folder {self._made.folder}: {error}") from error
        if self._address is not None and not self._is_local:
            self._relay = HeadRelay(self._address, keys, self._made.path_of, self._clock, self._log)
            self._relay.start()

    def stop(self) -> None:
        if self.converter is not None:
            self.converter.close()
        if self._relay is not None:
            self._relay.stop()

    def source_of(self, uri: str, digest: str, until_s: int | None) -> str | None:
        """Where nodes fetch what was made here of what an address names, or may be had by a signature alone;
        None of all else."""
        if uri.startswith("s3://"):
            return self.buckets.address_of(uri, self._clock.now_s(), until_s)
        origin = None if self.converter is None else self._origin(uri, digest)
        path = None if origin is None else self._made.path_for(digest, *origin)
        if path is None:
            return None
        return f"file://{path}" if self._is_local else f"relay://{self._address}/{digest}"

    def _origin(self, uri: str, digest: str) -> tuple[str, str] | None:
        """Of what, and in whose name, something was made here of what an address names."""
        if uri.partition("://")[0] not in SCHEMES:
            return self.tokens.origin(uri, digest)
        try:
            reference = read_reference(uri)
        except BadRequest:
            return None
        return reference.digest, f"{reference.address}/{reference.repository}"
