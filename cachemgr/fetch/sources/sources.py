"""From a URI to a source: the table of kinds, and asking for the size before the first byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachemgr.base.errors import SourceFailed, Unsuitable
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry import references
from cachemgr.fetch.registry.session import RegistrySettings
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.files import FileSource
from cachemgr.fetch.sources.programs.rsync import RsyncSettings, RsyncSource
from cachemgr.fetch.sources.programs.sftp import SftpSource
from cachemgr.fetch.sources.programs.ssh import SshSettings, SshSource
from cachemgr.fetch.sources.registry import RegistrySource
from cachemgr.fetch.sources.relays import RelaySource
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.fetch.sources.web import WebSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cachemgr.base.clock import Clock
    from cachemgr.fetch.ports import Resolved, Source

    class AnySource(Source, Protocol):
        """A source before its first byte: it is named for a transfer, and asked for the size."""

        name: str

        def resolve(self, timeout_s: float) -> Resolved: ...

    Maker = Callable[[Location, "SourceSettings", Clock, str | None], AnySource]

RESOLVE_S = 30.0


@dataclass(frozen=True)
class SourceSettings:
    """What a site says of its sources. Without `rsync` such URIs are refused: they need scratch space."""

    web: WebSettings = field(default_factory=WebSettings)
    ssh: SshSettings = field(default_factory=SshSettings)
    rsync: RsyncSettings | None = None
    registries: RegistrySettings = field(default_factory=RegistrySettings)


def _rsync(location: Location, settings: SourceSettings, clock: Clock, validator: str | None) -> AnySource:
    if settings.rsync is None:
        raise Unsuitable(
            f"{location.name} cannot be read: rsync needs a folder for scratch files: set rsync_scratch"
        )
    return RsyncSource(location, settings.rsync, clock, validator)


def _registry(location: Location, settings: SourceSettings, clock: Clock, validator: str | None) -> AnySource:
    return RegistrySource(location, settings.registries, settings.web, clock, validator)


def _signed(location: Location, settings: SourceSettings, clock: Clock, validator: str | None) -> AnySource:
    raise Unsuitable(
        f"{location.name} cannot be read by a node itself: outriderd signs such addresses for the buckets of "
        "its configuration; name it in a reservation or a job"
    )


MAKERS: dict[str, Maker] = {
    "file": lambda location, settings, clock, validator: FileSource(location, validator),
    "http": lambda location, settings, clock, validator: WebSource(location, settings.web, clock, validator),
    "https": lambda location, settings, clock, validator: WebSource(location, settings.web, clock, validator),
    "ssh": lambda location, settings, clock, validator: SshSource(location, settings.ssh, clock, validator),
    "sftp": lambda location, settings, clock, validator: SftpSource(location, settings.ssh, clock, validator),
    "rsync": _rsync,
    **dict.fromkeys(references.SCHEMES, _registry),
    "s3": _signed,
}


def source_of(
    uri: str,
    settings: SourceSettings,
    clock: Clock,
    *,
    validator: str | None = None,
    ticket: str | None = None,
) -> AnySource:
    """The source that a URI names.

    The validator is what `resolve` gave for this very URI: a file that is another one by then
    is noticed. The ticket is for relays only, and goes to no other host.
    """
    location = parse(uri)
    if location.scheme == "relay":
        return RelaySource(location, ticket, clock)
    return MAKERS[location.scheme](location, settings, clock, validator)


def resolve(
    uri: str,
    settings: SourceSettings,
    clock: Clock,
    *,
    validator: str | None = None,
    ticket: str | None = None,
    timeout_s: float = RESOLVE_S,
) -> Resolved:
    """Size, name and validator of what a URI names: bytes are reserved before they are fetched."""
    source = source_of(uri, settings, clock, validator=validator, ticket=ticket)
    try:
        return source.resolve(timeout_s)
    except SourceFault as fault:
        raise SourceFailed(f"image {source.name} cannot be looked up: {fault}") from fault
