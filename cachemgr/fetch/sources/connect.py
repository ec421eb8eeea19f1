"""Connections to web servers: through a proxy or not, with TLS or not, and who is told which password."""

from __future__ import annotations

import base64
import netrc
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.wire import exchange, is_timeout, reason_of, request_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock
    from cachemgr.fetch.sources.uris import Location

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class WebSettings:
    """What the site says of web servers.

    The netrc file is one of the service, named by the administrator: that of a home would lend
    a person's passwords to whoever may name a URI. The environment is read for proxies only.
    """

    ca_file: str | None = None
    netrc_file: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """How a registry is asked, unlike other web servers.

    `secret` goes to the first host, in place of the site's passwords, and to no other. Without TLS only
    hosts are asked whom the site has named.
    """

    secret: Mapping[str, str]
    plain_hosts: frozenset[str]

    def may_ask(self, location: Location) -> bool:
        return location.scheme == "https" or address_of(location) in self.plain_hosts


def address_of(location: Location) -> str:
    """Host and port as people write them, and as a request's header has them."""
    host = f"[{location.host}]" if ":" in location.host else location.host
    return host if location.port is None else f"{host}:{location.port}"


def connect(location: Location, settings: WebSettings, timeout_s: float, clock: Clock) -> socket.socket:
    """A socket on which requests for this location can be made, within a time for all of it."""
    until_s = clock.monotonic_s() + timeout_s
    proxy = proxy_for(location, settings.environment)
    port = location.port or PORTS[location.scheme]
    if proxy is None:
        sock = dial(location.host, port, timeout_s, clock)
    else:
        sock = dial(*_proxy_address(proxy), timeout_s, clock)
    try:
        if location.scheme == "https":
            if proxy is not None:
                _tunnel(sock, location.host, port, proxy, until_s - clock.monotonic_s(), clock)
            sock = _encrypted(sock, location.host, settings, until_s - clock.monotonic_s())
    except BaseException:
        sock.close()
        raise
    return sock


def dial(host: str, port: int, timeout_s: float, clock: Clock) -> socket.socket:
    """A connection to the first of a host's addresses that takes one; the time is for all of them."""
    until_s = clock.monotonic_s() + timeout_s
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except OSError as error:
        raise SourceFault(f"no connection to {host} port {port}: {reason_of(error)}") from error
    except UnicodeError as error:
        raise SourceFault(f"{host!r} is not the name of a host: {error}", is_final=True) from error
    last: OSError | None = None
    for family, kind, protocol, _, address in found:
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0 and last is not None:
            break
        try:
            return _connected(socket.socket(family, kind, protocol), address, max(0.001, left_s))
        except OSError as error:
            last = error
    if last is None or is_timeout(last):
        raise SourceFault(f"{host} port {port} does not answer within {timeout_s:g} s") from last
    early = isinstance(last, ConnectionRefusedError)
    raise SourceFault(f"no connection to {host} port {port}: {reason_of(last)}", is_early=early) from last


def _connected(sock: socket.socket, address: tuple[object, ...], timeout_s: float) -> socket.socket:
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def proxy_for(location: Location, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment's http_proxy, https_proxy, all_proxy and no_proxy name.

    HTTP_PROXY in capitals is not read: where a server runs programs for its clients, the
    header Proxy of a request becomes a variable of that name.
    """
    names = ["http_proxy"] if location.scheme == "http" else ["https_proxy", "HTTPS_PROXY"]
    proxy = next(
        (environment[name] for name in [*names, "all_proxy", "ALL_PROXY"] if environment.get(name)), None
    )
    if proxy is None:
        return None
    host = location.host.lower()
    for entry in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").lower().split(","):
        domain = entry.strip().lstrip(".")
        if domain and (domain == "*" or host == domain or host.endswith(f".{domain}")):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def via_http_proxy(location: Location, settings: WebSettings) -> str | None:
    """The proxy to which a plain request is sent whole, instead of through a tunnel."""
    return proxy_for(location, settings.environment) if location.scheme == "http" else None


def proxy_authorization(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(parts.username), unquote(parts.password or ""))}


def authorization(location: Location, settings: WebSettings) -> dict[str, str]:
    """The password for a host: of the URI itself, else of the site's netrc file."""
    if location.user is not None:
        return {"Authorization": basic(location.user, location.password or "")}
    if settings.netrc_file is None:
        return {}
    try:
        found = netrc.netrc(settings.netrc_file).authenticators(location.host)
    except (OSError, netrc.NetrcParseError) as error:
        raise SourceFault(
            f"the netrc file {settings.netrc_file} cannot be read: {error}", is_final=True
        ) from error
    return {} if found is None else {"Authorization": basic(found[0], found[2] or "")}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _proxy_address(proxy: str) -> tuple[str, int]:
    try:
        parts = urlsplit(proxy)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise SourceFault("the proxy of the environment has no usable address", is_final=True) from error
    if parts.scheme != "http" or not host:
        raise SourceFault(
            f"the proxy of the environment is {parts.scheme}://{host}: only http:// proxies are known",
            is_final=True,
        )
    return host, port or 80


def _tunnel(sock: socket.socket, host: str, port: int, proxy: str, timeout_s: float, clock: Clock) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    request = request_bytes("CONNECT", target, {"Host": target, **proxy_authorization(proxy)})
    head, rest = exchange(sock, request, timeout_s, clock)
    if head.status != 200 or rest:
        raise SourceFault(f"the proxy opens no way to {target}: {head.status} {head.reason}")


def _encrypted(sock: socket.socket, host: str, settings: WebSettings, timeout_s: float) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise SourceFault(
            f"the certificates {settings.ca_file} cannot be read: {reason_of(error)}; correct ca_file",
            is_final=True,
        ) from error
    try:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        sock.settimeout(max(0.001, timeout_s))
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SourceFault(
            f"the certificate of {host} is not trusted: {error.verify_message}; "
            "name the authority's file in the site's configuration",
            is_final=True,
        ) from error
    except (OSError, ValueError) as error:
        text = reason_of(error) if isinstance(error, OSError) else str(error)
        raise SourceFault(f"no TLS connection to {host}: {text}") from error
