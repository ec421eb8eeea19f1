"""Images on web servers: their size and, where a server or a file beside them tells, their digest."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import replace

from cachemgr.base.clock import Clock
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.signing import expiry_of
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.uris import Location
from cachemgr.fetch.sources.web import WebSource
from cachemgr.fetch.sources.wire import ResponseHead
from outrider.service.ports import FoundImage, ImageTrouble

LOOK_S = 15.0
MOST_BESIDE_BYTES = 4_096
SUFFIX = ".sha256"
# RFC 9530 with colons, RFC 3230 without.
REPR_DIGEST = re.compile(r"\s*sha-256\s*=\s*:([A-Za-z0-9+/=]{44}):\s*")
DIGEST = re.compile(r"\s*sha-256\s*=\s*([A-Za-z0-9+/=]{44})\s*", re.IGNORECASE)
STORED = re.compile(r"([A-Za-z0-9+/]{43}=)")
BESIDE = re.compile(r"([0-9A-Fa-f]{64})(?:[ \t]+\*?(\S.*))?")

OpenSource = Callable[[Location], WebSource]


def look(
    location: Location, given: str, settings: WebSettings, clock: Clock, limit_s: float = LOOK_S
) -> FoundImage:
    """Size and digest of what lies there; what a user gave is compared with what the server says.

    All that is asked for has to come within the limit, together.
    """
    try:
        return look_with(location, given, lambda place: WebSource(place, settings, clock), clock, limit_s)
    except SourceFault as fault:
        raise ImageTrouble(f"the image {location.name} cannot be looked up: {fault}") from fault


def look_with(
    location: Location, given: str, open_source: OpenSource, clock: Clock, limit_s: float
) -> FoundImage:
    """The same, however a server is asked. Raises SourceFault where it does not answer the first question."""
    name, until_s = location.name, clock.monotonic_s() + limit_s
    wanted = {"Want-Repr-Digest": "sha-256=10", "Want-Digest": "sha-256"}
    head, size_bytes = open_source(location).look_up(limit_s, wanted)
    told = _told(head)
    if not given and told is None:
        told = _beside(location, open_source, clock, until_s)
    if not given and told is None:
        raise ImageTrouble(
            f"the server does not say the digest of {name}: write its digest (sha256sum prints it), or put "
            f"{SUFFIX} with it beside the image"
        )
    if given and told is not None and given != told:
        raise ImageTrouble(
            f"the image {name} has the digest {told} by its server, not {given}: correct the digest"
        )
    expires_s = expiry_of(location.target.partition("?")[2])
    return FoundImage(size_bytes=size_bytes, digest=given or told or "", usable_until_s=expires_s)


def _told(head: ResponseHead) -> str | None:
    """What the answer's header says; of several algorithms sha-256 counts."""
    for name, form in (("repr-digest", REPR_DIGEST), ("digest", DIGEST)):
        for part in head.headers.get(name, "").split(","):
            found = form.fullmatch(part)
            if found is None:
                continue
            try:
                digest = base64.b64decode(found[1], validate=True)
            except binascii.Error:
                continue
            if len(digest) == 32:
                return f"sha256:{digest.hex()}"
    return _told_by_store(head)


def _told_by_store(head: ResponseHead) -> str | None:
    """What an object store keeps with an object. That of one in parts is no digest of its bytes."""
    found = STORED.fullmatch(head.headers.get("x-amz-checksum-sha256", ""))
    if found is not None and head.headers.get("x-amz-checksum-type", "FULL_OBJECT") == "FULL_OBJECT":
        return f"sha256:{base64.b64decode(found[1]).hex()}"
    return None


def _beside(location: Location, open_source: OpenSource, clock: Clock, until_s: float) -> str | None:
    """What a file of the image's name and `.sha256` says; None if there is none, or none in time.

    An address with a question mark means what only its server knows: beside it there is nothing.
    """
    if "?" in location.target:
        return None
    beside = replace(location, path=location.path + SUFFIX, target=location.target + SUFFIX)
    source = open_source(beside)
    try:
        _, size_bytes = source.look_up(_left_s(until_s, clock))
        if size_bytes > MOST_BESIDE_BYTES:
            return None
        text = _read(source, size_bytes, until_s, clock)
    except SourceFault:
        return None
    found = BESIDE.fullmatch(text.decode("utf-8", "replace").rstrip())
    image = location.path.rpartition("/")[2]
    # `sha256sum` writes the path that it was told, of which only the last part says something here.
    if found is None or (found[2] or image).rpartition("/")[2] != image:
        raise ImageTrouble(
            f"{beside.name} is not one line with the digest of {image}: correct it, or write the digest"
        )
    return f"sha256:{found[1].lower()}"


def _read(source: WebSource, size_bytes: int, until_s: float, clock: Clock) -> bytes:
    body = source.open(0, size_bytes, _left_s(until_s, clock))
    found = b""
    try:
        with memoryview(bytearray(MOST_BESIDE_BYTES + 1)) as block:
            while len(found) <= MOST_BESIDE_BYTES:
                count = body.read_into(block, _left_s(until_s, clock))
                if not count:
                    break
                found += block[:count]
    finally:
        body.close()
    return found[: MOST_BESIDE_BYTES + 1]


def _left_s(until_s: float, clock: Clock) -> float:
    left_s = until_s - clock.monotonic_s()
    if left_s <= 0:
        raise SourceFault("no whole answer in time")
    return left_s
