"""What is written down with a reservation beside its promise, as JSON with a version.

The *document* is what the user asked for; the *receipt* is how it was kept so far.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from outrider.core.model import NOBODY, Image, ImagePart, Reservation
from outrider.service.desk.state.open_terms import OpenTerms, read_terms, terms_of
from outrider.service.ports import Readers
from outrider.service.requests import Caller, Reserve
from outrider.store.errors import Damaged, TooNew

VERSION = 1
PIECE = re.compile(r"(.+)\.p(\d{1,6})")
"""What a piece of a lease is called: the lease and the piece's number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a reservation is for. `readers` is None for a public image."""

    workspace: str
    uri: str
    digest: str
    size_bytes: int
    format: str
    readers: Readers | None
    file: str
    """The workspace as its user wrote it down, as JSON."""
    series: str = ""
    """Of one that recurs, what all its occurrences are called together."""
    occurrence: int = 0
    role: str = ""
    """Of one of unlike instances, which of them it has; `series` is what all are called together."""
    pieces: int = 0
    """Of one piece of a lease in pieces, how many these are; `occurrence` is which, `series` the lease."""
    group: str = ""
    """Its owner's primary group when it was asked for."""
    open: OpenTerms | None = None
    """For which events it waits; None if for none."""
    may_yield: bool = False
    """Whether it may make way for others, by the site's policy."""
    lease_class: str = ""
    """The rule of the policies that it came under."""
    parts: tuple[ImagePart, ...] = ()
    """Of an image that stays in its layers, the blobs of which it consists."""

    @property
    def is_private(self) -> bool:
        return self.readers is not None

    @property
    def image(self) -> Image:
        return Image(
            uri=self.uri,
            size_bytes=self.size_bytes,
            digest=self.digest,
            parts=self.parts,
            is_private=self.is_private,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """How a promise has been kept so far. `is_met` is None until that is known."""

    ready_s: int | None = None
    brought: tuple[str, ...] = ()
    """The nodes to which its own transfers have brought the image."""
    saved_bytes: int = 0
    sources: tuple[str, ...] = ()
    is_met: bool | None = None
    words: str = ""
    price: int | None = None
    """What was agreed, in thousandths of the site's unit of money; None where nothing has a price."""
    charged: int | None = None
    """What of it is charged, once it is over."""
    triggered_s: int | None = None
    """When the event came that it waited for."""
    event: str = ""
    """Which one that was."""
    moves: int = 0
    """How often it was given another place for others."""
    yielded_to: str = ""
    """Which reservation it has made way for."""


def stem_of(workspace: str) -> str:
    """What a workspace's reservations are called, before the hyphen and the number. What jobs need is pinned
    as job-17: no reservation is called so."""
    return "job-workspace" if workspace == "job" else workspace


def name_of_piece(lease: str, number: int) -> str:
    return f"{lease}.p{number}"


def per_node(document: Document) -> int:
    """How many instances run on each of its nodes."""
    deployment = json.loads(document.file).get("deployment") or {}
    return int(deployment.get("instances_per_node") or 1)


def document_of(request: Reserve, caller: Caller) -> Document:
    file, image = request.workspace, request.image
    section = file.metadata.image
    return Document(
        workspace=file.metadata.name,
        uri=image.uri or section.uri,
        digest=image.digest,
        size_bytes=image.size_bytes,
        format=section.format or image.format,
        readers=Readers(uids=(caller.uid,)) if section.private else None,
        file=file.model_dump_json(),
        group=caller.group,
        open=None if file.deployment is None else terms_of(file.deployment),
        may_yield=file.deployment is not None and file.deployment.preemptible is True,
        parts=image.parts,
    )


def document_of_role(
    document: Document, number: int, request: Reserve, caller: Caller, series: str
) -> Document:
    """The same for one of several unlike roles, with its own image if it has one."""
    role, image = request.workspace.metadata.roles[number], request.role_images[number]
    found = replace(document, series=series, occurrence=number + 1, role=role.name)
    if role.image is None or image is None:
        return found
    return replace(
        found,
        uri=image.uri or role.image.uri,
        digest=image.digest,
        size_bytes=image.size_bytes,
        format=role.image.format or image.format,
        readers=Readers(uids=(caller.uid,)) if role.image.private else None,
        parts=image.parts,
    )


def write_document(document: Document) -> str:
    return _write(document)


@lru_cache(maxsize=1024)
def read_document(text: str) -> Document:
    """What `write_document` wrote, kept: the desk asks at each event. Raises StoreError."""
    with _told("what a user asked for"):
        found = _read(text)
        readers = found["readers"]
        if readers is not None:
            found["readers"] = Readers(uids=tuple(readers["uids"]), gids=tuple(readers["gids"]))
        found["open"] = read_terms(found.get("open"))
        found["parts"] = tuple(ImagePart(**each) for each in found.get("parts", ()))
        return Document(**found)


def write_record(record: Record) -> str:
    return _write(record)


def read_record(text: str | None) -> Record:
    if text is None:
        return Record()
    with _told("a receipt"):
        found = _read(text)
        return replace(Record(**found), sources=tuple(found["sources"]), brought=tuple(found["brought"]))


def as_written(kept: Reservation) -> Reservation:
    """A reservation as it is in the store: whose it is stands beside it there, in other columns."""
    workspace = replace(kept.workspace, owner=NOBODY, may_yield=False, is_spread=False)
    return replace(kept, workspace=workspace)


def without_transfers(kept: Reservation, numbers: Collection[int]) -> Reservation:
    """The same as if it had never counted on these transfers."""
    if not numbers:
        return kept
    return replace(
        kept,
        transfers=tuple(each for each in kept.transfers if each not in numbers),
        holds=tuple(each for each in kept.holds if each.transfer not in numbers),
    )


def _write(value: Document | Record) -> str:
    fields = {"version": VERSION} | asdict(value)
    # `Readers` are a message of the nodes' protocol, which `asdict` does not know.
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=vars)


def _read(text: str) -> dict[str, Any]:
    found = json.loads(text)
    version = found.pop("version")
    if version != VERSION:
        raise TooNew(f"a document of version {version} is not known: update outriderd")
    assert isinstance(found, dict)
    return found


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What is in the store and cannot be read is the store's fault, with a remedy."""
    try:
        yield
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        words = f"{type(error).__name__} {error}"
        raise Damaged(f"store: {what} cannot be read ({words}): put a backup back") from error
