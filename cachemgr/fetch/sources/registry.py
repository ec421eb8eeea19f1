"""Images in registries: docker:// and oras:// references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import FetchStatus, Resolved
from cachemgr.fetch.registry.references import read_reference
from cachemgr.fetch.registry.session import Session

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.fetch.registry.session import RegistrySettings
    from cachemgr.fetch.sources.connect import WebSettings
    from cachemgr.fetch.sources.uris import Location
    from cachemgr.fetch.sources.web import AnyBody


class RegistrySource:
    """The one blob that a reference stands for, by its digest: the validator, or what the manifest says.

    Once the digest is known the tag is not asked for any more, so that a tag that is moved changes nothing.
    """

    is_relay = False

    def __init__(
        self,
        location: Location,
        settings: RegistrySettings,
        web: WebSettings,
        clock: Clock,
        validator: str | None = None,
    ) -> None:
        self.name = location.name
        self._session = Session(read_reference(location.name), settings, web, clock)
        self._clock = clock
        self._digest = validator or ""

    def resolve(self, timeout_s: float) -> Resolved:
        name = self.name.rpartition("/")[2]
        if self._digest:
            return Resolved(self._session.size_of(self._digest, timeout_s), name, self._digest, self._digest)
        blob = self._session.look(timeout_s).blob
        self._digest = blob.digest
        return Resolved(blob.size_bytes, blob.title or name, blob.digest, blob.digest)

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> AnyBody:
        until_s = self._clock.monotonic_s() + timeout_s
        if not self._digest:
            found = self.resolve(timeout_s)
            if found.size_bytes != size_bytes:
                self._digest = ""
                raise SourceFault(
                    f"it has {found.size_bytes} bytes by now instead of {size_bytes}", is_final=True
                )
        return self._session.open(self._digest, offset, size_bytes, until_s - self._clock.monotonic_s())

    def status(self, timeout_s: float) -> FetchStatus | None:
        return None
