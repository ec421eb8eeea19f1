"""From the origins of an image to the fetch engine: addresses, open files, tickets, passwords.

The site's own credentials (its netrc file, the service's ssh keys, the relay's key) are used
for origins that somebody privileged named, and for nobody else: a user must not read with
the service's rights.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace

from cachemgr.base.errors import BadRequest, NotAllowed, SourceFailed, Unsuitable
from cachemgr.fetch.bring import Origin
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import SourceFault, TransferFailed
from cachemgr.fetch.ports import Resolved
from cachemgr.fetch.registry import references
from cachemgr.fetch.registry.session import nobody
from cachemgr.fetch.sources.files import FileStream
from cachemgr.fetch.sources.sources import SourceSettings, resolve, source_of
from cachemgr.fetch.sources.uris import parse
from cachemgr.pool.records import file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from cachemgr.base.clock import Clock
    from cachemgr.fetch.bring import TransferTerms
    from cachemgr.fetch.ports import FetchStatus, Sink, Source
    from cachemgr.fetch.report import Report


OWN = re.compile("^uid:[0-9]+:")


@dataclass(frozen=True)
class FetchCarrier:
    """The fetch package as one carries images with it.

    `ticket` signs for other nodes' relays; `count` is told how many bytes came from which
    kind of source.
    """

    settings: SourceSettings
    clock: Clock
    random: Random
    ticket: Callable[[str], str | None]
    count: Callable[[str, int], None]
    least_rate_bytes_per_s: int = 0

    def resolve(self, origin: Origin, timeout_s: float) -> Resolved:
        if origin.descriptor is not None:
            return _resolved_file(origin)
        if origin.scheme == "file" and not origin.is_trusted:
            return _everybodys_file(origin)
        return resolve(
            origin.uri,
            self.settings_for(origin),
            self.clock,
            validator=origin.digest or None,
            ticket=self._ticket(origin),
            timeout_s=timeout_s,
        )

    def carry(self, sink: Sink, origins: Sequence[Origin], terms: TransferTerms) -> tuple[str, ...]:
        # One name, one source: the same file asked for by two users is asked for once.
        by_name = {origin.name: origin for origin in reversed(origins)}
        names = list(dict.fromkeys(origin.name for origin in origins))
        try:
            sources = [self._source(by_name[name]) for name in names]
        except (BadRequest, Unsuitable) as error:
            raise SourceFailed(str(error)) from error
        try:
            report = transfer(
                sink,
                sources,
                clock=self.clock,
                random=self.random,
                limits=terms.limits,
                control=terms.control,
                expected_rate_bytes_per_s=terms.expected_rate_bytes_per_s,
                on_progress=terms.on_progress,
                least_rate_bytes_per_s=self.least_rate_bytes_per_s,
            )
        except TransferFailed as error:
            self._count(error.report, by_name)
            raise
        self._count(report, by_name)
        return report.sources()

    def _count(self, report: Report, by_name: Mapping[str, Origin]) -> None:
        schemes = {source.name: source.scheme for source in by_name.values()}
        for each in report.delivered:
            self.count(schemes.get(each.source, "other"), each.end_bytes - each.start_bytes)

    def _source(self, origin: Origin) -> Source:
        if origin.descriptor is not None:
            return OpenFileSource(origin)
        ticket = self._ticket(origin)
        source = source_of(
            origin.uri, self.settings_for(origin), self.clock, validator=origin.digest or None, ticket=ticket
        )
        # Two addresses that differ only in their query are two sources.
        source.name = origin.name
        return source

    def _ticket(self, origin: Origin) -> str | None:
        if origin.scheme != "relay" or not origin.is_trusted:
            return None
        return self.ticket(parse(origin.uri).digest)

    def settings_for(self, origin: Origin) -> SourceSettings:
        """Without the site's passwords if the site does not ask."""
        if origin.is_trusted:
            return self.settings
        return replace(
            self.settings,
            web=replace(self.settings.web, netrc_file=None),
            registries=replace(self.settings.registries, credentials=nobody),
        )


class OpenFileSource:
    """A file that its user has opened: whoever holds the descriptor was allowed to read it.

    It is never opened again by its path, since that would be with the service's rights.
    """

    is_relay = False

    def __init__(self, origin: Origin) -> None:
        self.name = origin.name
        self._descriptor = -1 if origin.descriptor is None else origin.descriptor

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> FileStream:
        found = os.fstat(self._descriptor)
        if found.st_size != size_bytes:
            raise SourceFault(f"the file has changed: it has {found.st_size} bytes now", is_final=True)
        return FileStream(os.dup(self._descriptor), offset)

    def status(self, timeout_s: float) -> FetchStatus | None:
        return None


def origin_of(uri: str, *, is_trusted: bool) -> Origin:
    """An address as it was asked for. Its name has no credentials, and still tells files apart.

    What follows a question mark may be a signature, so a hash of it stands in its place.
    """
    location = parse(uri)
    query = location.target.partition("?")[2]
    name = f"{location.name}?{file_name(query)[:16]}" if query else location.name
    return Origin(uri=uri, name=name, scheme=location.scheme, is_trusted=is_trusted)


def pinned(origins: Sequence[Origin], digest: str) -> tuple[Origin, ...]:
    """The same origins, of which registries are asked for this blob and not for what a tag stands for.

    Whether it is the reference's own has to be known: a repository has blobs of other images, too.
    """
    known = f"sha256:{digest}" if digest else ""
    return tuple(
        replace(each, digest=known) if each.scheme in references.SCHEMES else each for each in origins
    )


def open_origin(uri: str, uid: int, descriptor: int) -> Origin:
    """A user's own open file. Nobody else's request for the same path means this file."""
    location = parse(uri)
    if location.scheme != "file":
        raise BadRequest(f"an open file comes with a file:// address, not {location.scheme}://")
    return Origin(uri=uri, name=own_name(uid, location.name), scheme="file", descriptor=descriptor)


def user_origin(uri: str, uid: int) -> Origin:
    """An address as an ordinary user asked for it.

    With credentials of the user's own the same address may show another file, as the
    homes of a web folder do: so nobody else's request for it means that file.
    """
    origin, location = origin_of(uri, is_trusted=False), parse(uri)
    if location.scheme not in ("http", "https") or location.user is None:
        return origin
    return replace(origin, name=own_name(uid, origin.name))


def own_name(uid: int, name: str) -> str:
    """What a user's request calls a file of this node, or one that takes credentials."""
    return f"uid:{uid}:{name}"


def address_of(name: str) -> str:
    """The address of what was asked for, whoever did; a file of this node stays its user's."""
    address = OWN.sub("", name)
    return name if address.startswith("file:") else address


def _resolved_file(origin: Origin) -> Resolved:
    descriptor = -1 if origin.descriptor is None else origin.descriptor
    try:
        found = os.fstat(descriptor)
        # A descriptor that cannot be read from proves nothing: it fails here.
        os.pread(descriptor, 1, 0)
    except OSError as error:
        raise NotAllowed(f"the open file of {origin.uri} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise BadRequest(f"{origin.uri} is not a regular file")
    return Resolved(found.st_size, os.path.basename(parse(origin.uri).path))


def _everybodys_file(origin: Origin) -> Resolved:
    """A file that somebody without any rights of their own can open at that path."""
    path = os.path.realpath(parse(origin.uri).path)
    try:
        found = os.stat(path)
        is_open = found.st_mode & stat.S_IROTH and all(
            os.stat(folder).st_mode & stat.S_IXOTH for folder in _folders(path)
        )
    except OSError as error:
        raise SourceFailed(f"{origin.uri} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode) or not is_open:
        raise SourceFailed(f"{origin.uri} is not a file that everybody may read")
    return Resolved(found.st_size, os.path.basename(path))


def _folders(path: str) -> Iterator[str]:
    """Those on the way to a path."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path
