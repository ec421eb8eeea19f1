"""Images in buckets of object stores (S3): looked up with the site's keys, which no node ever has.

The key of a bucket is the site's, so who may name its objects is the site's to say, too. Nodes get
addresses that let read one object and expire.
"""

from __future__ import annotations

import configparser
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cachemgr.base.clock import Clock
from cachemgr.base.errors import Unsuitable
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.signing import LONGEST_S, Signer, SigningKey, object_path
from cachemgr.fetch.sources.connect import Terms, WebSettings, address_of
from cachemgr.fetch.sources.uris import Location, parse
from cachemgr.fetch.sources.web import WebSource
from cachemgr.fetch.sources.wire import ResponseHead
from outrider.service.images.web import look_with
from outrider.service.ports import FoundImage, ImageTrouble, Readers

if TYPE_CHECKING:
    from cachemgr.fetch.sources.web import AnyBody

SPARE_S = 6 * 3_600
"""For so much longer than it is needed an address is good: transfers may be late, and begin again."""
STEP_S = 900
"""Within so long a node that is told of the same transfer again gets the same address."""
LEAST_S = 60
MOST_KEY_BYTES = 1 << 16
# A store that keeps an object's sha256 tells it only if it is asked.
CHECKSUM = {"x-amz-checksum-mode": "ENABLED"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """`endpoint` is the web address of its store. `readers` may name its objects; None: everybody may."""

    name: str
    endpoint: str
    region: str
    key_file: str | None = None
    profile: str = "default"
    readers: Readers | None = None

    def place(self, path: str) -> Location:
        """Where the store has the object."""
        target = object_path(self.name, path)
        return replace(parse(self.endpoint), path=f"/{self.name}{path}", target=target)

    def signer(self) -> Signer | None:
        """None for a bucket that is asked as anybody may. Raises Unsuitable."""
        if self.key_file is None:
            return None
        host = address_of(parse(self.endpoint))
        return Signer(read_key(self.key_file, self.profile), self.region, host)


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


@dataclass(frozen=True, slots=True)
class Asker:
    """Who names an object, and how."""

    is_private: bool
    uid: int
    gids: tuple[int, ...] = ()


class Buckets:
    """The site's buckets. Keys are read whenever they are used, so a new one needs no restart."""

    def __init__(self, buckets: Iterable[Bucket] = (), web: WebSettings | None = None) -> None:
        self._buckets = {bucket.name: bucket for bucket in buckets}
        self._web = web or WebSettings()

    def look(self, location: Location, given: str, asker: Asker, clock: Clock, limit_s: float) -> FoundImage:
        """Size and digest of an object, and until when the site's key lets read it. Raises ImageTrouble."""
        bucket = self._buckets.get(location.host)
        if bucket is None or not may_use(bucket.readers, asker):
            # Both alike: which buckets others have is nobody's business.
            raise ImageTrouble(
                f"there is no bucket {location.host!r} here for you: ask the administrators to name it in "
                "buckets"
            )
        if bucket.readers is not None and not asker.is_private:
            raise ImageTrouble(
                f"the bucket {bucket.name} is not for everybody: write `private: true`, so that "
                f"{location.name} is for you alone on the nodes as well"
            )
        try:
            signer = bucket.signer()

            def opened(place: Location) -> ObjectSource:
                return ObjectSource(bucket.place(place.path), signer, self._web, clock)

            found = look_with(location, given, opened, clock, limit_s)
        except (Unsuitable, SourceFault) as fault:
            raise ImageTrouble(
                f"the image {location.name} cannot be looked up: {_in_words(fault, bucket)}"
            ) from fault
        return replace(found, usable_until_s=None if signer is None else signer.key.expires_s)

    def address_of(self, uri: str, now_s: int, until_s: int | None) -> str | None:
        """Where nodes fetch an object; signed for as long as it is needed, if it is signed at all.

        None for a bucket that the site does not name any more. Raises Unsuitable.
        """
        location = parse(uri)
        bucket = self._buckets.get(location.host)
        if bucket is None:
            return None
        place, signer = bucket.place(location.path), bucket.signer()
        address = f"{place.scheme}://{address_of(place)}"
        if signer is None:
            return address + place.target
        at_s = now_s - now_s % STEP_S
        end_s = max(now_s, until_s or 0) + SPARE_S
        end_s += -end_s % STEP_S
        if signer.key.expires_s is not None:
            if signer.key.expires_s < now_s + LEAST_S:
                raise Unsuitable(
                    f"the key of bucket {bucket.name} has expired: put a new one into {bucket.key_file}"
                )
            end_s = min(end_s, signer.key.expires_s)
        return address + signer.target("GET", place.target, at_s, min(end_s - at_s, LONGEST_S))


def read_key(path: str, profile: str) -> SigningKey:
    """A key of a file like `~/.aws/credentials`, which nobody else may read. Raises Unsuitable."""
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise Unsuitable(f"others may read the key {path}: chmod 600 it")
            text = file.read(MOST_KEY_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Unsuitable(f"the key {path} cannot be read: {reason}") from error
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(text)
        section = parser[profile]
        expires = section.get("x_security_token_expires", "")
        return SigningKey(
            name=section["aws_access_key_id"],
            secret=section["aws_secret_access_key"],
            token=section.get("aws_session_token", ""),
            expires_s=_instant(expires) if expires else None,
        )
    except (configparser.Error, KeyError, ValueError):
        # What the parser says may hold a part of the secret.
        raise Unsuitable(
            f"the key {path} has no section [{profile}] with aws_access_key_id and aws_secret_access_key, or "
            "a line of it cannot be read"
        ) from None


def _instant(text: str) -> int:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("without a time zone")
    return int(found.timestamp())


def may_use(readers: Readers | None, asker: Asker) -> bool:
    """Whether somebody is among those for whom something of the site's is; None: it is for everybody."""
    return (
        readers is None
        or asker.uid == 0
        or asker.uid in readers.uids
        or not set(asker.gids).isdisjoint(readers.gids)
    )


def _in_words(fault: Unsuitable | SourceFault, bucket: Bucket) -> str:
    status = fault.status if isinstance(fault, SourceFault) else None
    if status == 403:
        whose = "the site's key" if bucket.key_file is not None else "everybody"
        return (
            f"{fault}; the store does not let {whose} read it, or has no such object: correct the address, "
            f"or ask the administrators for buckets.{bucket.name} (its key, its region, the head's clock)"
        )
    if status == 404:
        return f"{fault}: the store has no such object or bucket; correct the address"
    return str(fault)
