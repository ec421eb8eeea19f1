"""Asking a registry: for manifests, and for bytes of blobs; tokens are fetched as they are demanded."""

from __future__ import annotations

import hashlib
import os
import ssl
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Optional

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.faults import SourceFault, Unauthorized
from cachemgr.fetch.registry import manifests
from cachemgr.fetch.registry.entry import MOST_TOKEN_BYTES, read_demand, read_token, token_uri
from cachemgr.fetch.sources.connect import Terms, WebSettings, basic
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.fetch.sources.web import PASSING, WebSource, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from cachemgr.base.clock import Clock
    from cachemgr.fetch.registry.manifests import Blob, Container
    from cachemgr.fetch.registry.references import Reference
    from cachemgr.fetch.sources.web import AnyBody

    T = TypeVar("T")

PLATFORM = "linux/amd64"
BLOCK_BYTES = 65_536
# What the kernel calls the machines that registries call otherwise.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
FIRST_WAIT_S = 1.0
MOST_MANIFESTS = 2
Credentials = Callable[["Reference"], Optional["tuple[str, str]"]]


def nobody(_: Reference) -> tuple[str, str] | None:
    """Registries are asked without a name and a password."""
    return None


def own_platform() -> str:
    """This machine's platform, as indexes name it."""
    machine = os.uname().machine
    return f"linux/{MACHINES.get(machine, machine)}"


@dataclass(frozen=True)
class RegistrySettings:
    """What the site says of registries. `plain_hosts` are asked without TLS, `HOST` or `HOST:PORT`.

    `credentials` tells with which name and password a registry is asked for a token.
    """

    plain_hosts: frozenset[str] = frozenset()
    platform: str = PLATFORM
    credentials: Credentials = nobody
    # Whether a name and a password go to `plain_hosts`, too, where anybody on the way can read them.
    allows_plain_logins: bool = False


@dataclass(frozen=True)
class FoundBlob:
    """What a reference stands for: the image's own blob, and the digest of the manifest that names it."""

    blob: Blob
    manifest: str


@dataclass(frozen=True)
class FoundContainer:
    """A container image, whose layers somebody has to put together. `body` is its manifest."""

    container: Container
    manifest: str
    body: bytes = b""


class Session:
    """One user's questions about one reference, with the token that was given for them."""

    def __init__(
        self, reference: Reference, settings: RegistrySettings, web: WebSettings, clock: Clock
    ) -> None:
        self.reference = reference
        self._settings = settings
        # Passwords of the site's netrc file are for its web servers.
        self._web = replace(web, netrc_file=None)
        self._clock = clock
        self._secret: dict[str, str] = {}
        scheme = "http" if reference.address in settings.plain_hosts else "https"
        self._base = Location(scheme, "/", host=reference.api_host, port=reference.port)

    def look(self, timeout_s: float) -> FoundBlob:
        """The blob that is the image; a container's layers are refused."""
        found = self.find(timeout_s)
        if isinstance(found, FoundContainer):
            raise manifests.not_one_file(self.reference, found.container)
        return found

    def find(self, timeout_s: float) -> FoundBlob | FoundContainer:
        """What the reference stands for. A registry that is busy is asked again while there is time."""
        until_s = self._clock.monotonic_s() + timeout_s
        wanted = self.reference.wanted
        for _ in range(MOST_MANIFESTS):
            body, digest = self._patiently(partial(self._manifest, wanted), wanted, until_s)
            found = manifests.read(body, self.reference, self._settings.platform)
            if isinstance(found, manifests.Container):
                return FoundContainer(found, digest, body)
            if not isinstance(found, manifests.Inner):
                return FoundBlob(found, digest)
            wanted = found.digest
        raise SourceFault(f"{self.reference} has an index in an index: name one of them", is_final=True)

    def enter(self, timeout_s: float) -> None:
        """Whether the registry lets in whoever asks; a `SourceFault` says why not."""
        until_s = self._clock.monotonic_s() + timeout_s

        def ask(left_s: float) -> None:
            head, body = self._source("/v2/").request("GET", {}, left_s)
            body.close()
            refuse(head)

        self._patiently(ask, "/v2/", until_s)

    def size_of(self, digest: str, timeout_s: float) -> int:
        """The size of a blob that is known by its digest."""
        until_s = self._clock.monotonic_s() + timeout_s
        return self._patiently(
            lambda left_s: self._source(self._blob(digest)).look_up(left_s)[1], digest, until_s
        )

    def open(self, digest: str, offset: int, size_bytes: int, timeout_s: float) -> AnyBody:
        """A blob's bytes from an offset on. What is busy is asked again by whoever has other sources."""
        until_s = self._clock.monotonic_s() + timeout_s
        target = self._blob(digest)
        return self._let_in(
            lambda left_s: self._source(target).open(offset, size_bytes, left_s), digest, until_s
        )

    def _manifest(self, name: str, timeout_s: float) -> tuple[bytes, str]:
        until_s = self._clock.monotonic_s() + timeout_s
        source = self._source(f"/v2/{self.reference.repository}/manifests/{name}")
        head, body = source.request("GET", {"Accept": manifests.ACCEPT}, timeout_s)
        try:
            refuse(head)
            data = self._read(body, manifests.MOST_BYTES, until_s, "manifest")
        finally:
            body.close()
        length, digest = head.length_bytes(), f"sha256:{hashlib.sha256(data).hexdigest()}"
        if length is not None and length != len(data):
            raise SourceFault(f"the registry sends {len(data)} of {length} bytes of a manifest")
        if name.startswith("sha256:") and name != digest:
            raise SourceFault(f"the registry sends another manifest, {digest}, than {name}", is_final=True)
        return data, digest

    def _read(self, body: AnyBody, most_bytes: int, until_s: float, what: str) -> bytes:
        data = bytearray()
        with memoryview(bytearray(BLOCK_BYTES)) as block:
            while len(data) <= most_bytes:
                left_s = until_s - self._clock.monotonic_s()
                count = body.read_into(block, left_s) if left_s > 0 else None
                if count is None:
                    raise SourceFault(f"no whole {what} in time")
                if count == 0:
                    return bytes(data)
                data += block[:count]
        raise SourceFault(f"the {what} has more than {most_bytes} bytes", is_final=True)

    def _patiently(self, ask: Callable[[float], T], wanted: str, until_s: float) -> T:
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return self._let_in(ask, wanted, until_s)
            except SourceFault as fault:
                told_s = fault.retry_after_s
                # What says "at once" again and again is not believed.
                pause_s = wait_s if told_s is None else max(told_s, wait_s / 4)
                if fault.status not in PASSING:
                    raise
                if self._clock.monotonic_s() + pause_s >= until_s:
                    again = "ask again" if told_s is None else f"ask again in {told_s} s"
                    raise SourceFault(
                        f"{fault}; {again}", retry_after_s=told_s, status=fault.status
                    ) from fault
                self._clock.sleep(pause_s)
                wait_s *= 2

    def _let_in(self, ask: Callable[[float], T], wanted: str, until_s: float) -> T:
        """Ask; with a token, or another one, if that is demanded."""
        try:
            try:
                return ask(self._left_s(until_s))
            except Unauthorized as demanded:
                self._secret = self._secret_for(demanded, until_s)
                return ask(self._left_s(until_s))
        except SourceFault as fault:
            raise self._in_words(fault, wanted) from fault

    def _secret_for(self, demanded: Unauthorized, until_s: float) -> dict[str, str]:
        demand = read_demand(demanded.challenge)
        known = self._known()
        own = {} if known is None else {"Authorization": basic(*known)}
        if demand is None or (not demand.realm and not own):
            raise demanded
        if not demand.realm:
            return own
        try:
            location = replace(parse(token_uri(demand, self.reference)), user=None, password=None)
        except BadRequest as error:
            raise SourceFault(
                f"the registry names no usable server of tokens: {error}", is_final=True
            ) from error
        if location.scheme not in ("http", "https"):
            raise SourceFault(
                "the registry names a server of tokens that is not an http address", is_final=True
            )
        if location.scheme == "http" and not self._settings.allows_plain_logins:
            own = {}
        source = WebSource(location, self._web, self._clock, terms=self._terms(own))
        try:
            head, body = source.request("GET", {}, self._left_s(until_s))
            try:
                refuse(head)
                data = self._read(body, MOST_TOKEN_BYTES, until_s, "token")
            finally:
                body.close()
        except SourceFault as fault:
            if fault.status in (401, 403):
                raise demanded from fault
            raise SourceFault(
                f"no token from {location.name}: {fault}",
                is_final=fault.is_final,
                retry_after_s=fault.retry_after_s,
                status=fault.status if fault.status in PASSING else None,
            ) from fault
        return {"Authorization": f"Bearer {read_token(data)}"}

    def _known(self) -> tuple[str, str] | None:
        """The name and the password; none for a registry where others could read them on the way."""
        settings = self._settings
        if self.reference.address in settings.plain_hosts and not settings.allows_plain_logins:
            return None
        return settings.credentials(self.reference)

    def _in_words(self, fault: SourceFault, wanted: str) -> SourceFault:
        name, words = self.reference.repository, ""
        if fault.status == 401:
            words = (
                f"the registry lets nobody read {name} without a name and a password, or has none: correct "
                "the name, or let everybody pull it"
            )
        elif fault.status == 403:
            words = f"the registry forbids to read {name}: let everybody pull it"
        elif fault.status == 404:
            words = f"the registry has no {name} that is {wanted}: correct the name or the tag"
        elif isinstance(fault.__cause__, ssl.SSLError) and fault.__cause__.reason == "WRONG_VERSION_NUMBER":
            address = self.reference.address
            words = f"{address} does not speak TLS: the administrators can name it in plain_http"
        return SourceFault(words, is_final=True, status=fault.status) if words else fault

    def _source(self, target: str) -> WebSource:
        location = replace(self._base, path=target, target=target)
        return WebSource(location, self._web, self._clock, terms=self._terms(self._secret))

    def _terms(self, secret: dict[str, str]) -> Terms:
        return Terms(secret, self._settings.plain_hosts)

    def _blob(self, digest: str) -> str:
        return f"/v2/{self.reference.repository}/blobs/{digest}"

    def _left_s(self, until_s: float) -> float:
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise SourceFault("no whole answer in time")
        return left_s
