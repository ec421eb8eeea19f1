"""Objects of S3 stores, asked for with the site's key: on the head alone, since nodes have signed addresses.

The key goes to the store's own host and nowhere else; redirects are followed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachemgr.fetch.sources.connect import Terms, address_of
from cachemgr.fetch.sources.web import WebSource

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.fetch.sources.connect import WebSettings
    from cachemgr.fetch.sources.signing import Signer
    from cachemgr.fetch.sources.uris import Location
    from cachemgr.fetch.sources.web import AnyBody
    from cachemgr.fetch.sources.wire import ResponseHead

# A store that keeps an object's sha256 tells it only if it is asked.
CHECKSUM = {"x-amz-checksum-mode": "ENABLED"}


class ObjectSource(WebSource):
    """An object at its store's web address. Without a signer it is asked for as anybody may."""

    def __init__(
        self, location: Location, signer: Signer | None, settings: WebSettings, clock: Clock
    ) -> None:
        super().__init__(location, settings, clock)
        self._signer = signer

    def request(self, method: str, headers: dict[str, str], timeout_s: float) -> tuple[ResponseHead, AnyBody]:
        secret: dict[str, str] = dict(CHECKSUM)
        if self._signer is not None:
            secret = self._signer.headers(method, self._location.target, int(self._clock.now_s()), CHECKSUM)
        # The site has named the store's address itself, with TLS or without.
        self._terms = Terms(secret, frozenset({address_of(self._location)}))
        return super().request(method, headers, timeout_s)
