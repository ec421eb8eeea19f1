"""Kinds of values that a configuration is made of: each is checked as it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic.config import JsonDict

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.registry.references import read_hosts
from outrider.metadata.errors import TextError, shown
from outrider.metadata.fields import Account
from outrider.metadata.notation.amounts import size_bytes
from outrider.metadata.notation.durations import parse_duration
from outrider.metadata.validation import Section, named
from outrider.store.place import is_database

MOST_NAMES = 1_000
MOST_IMAGES = 10_000
AT_ONCE = "at-once"
LONGEST_SOCKET = 103
"""Bytes of a socket's path that Linux takes, less what a new one is called until it is in place."""

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]{2,39}\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252}):([0-9]{1,5})")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,1000}")


def _path(value: object) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise TextError(f"{named(value)} is not a full path: write one that begins with a slash")
    if ".." in value.split("/"):
        raise TextError(f"{shown(value)} has .. as a part: write the path without it")
    return value.rstrip("/") or "/"


def _store(value: object) -> str:
    if not isinstance(value, str) or not is_database(value):
        return _path(value)
    if not value.isprintable() or " " in value:
        raise TextError("has blanks or other characters that no address has: write them as %20")
    if "@" in value and ":" in value.partition("://")[2].rpartition("@")[0]:
        raise TextError("holds a password: put it into the file .pgpass of the service's user")
    return value


def _socket(value: str) -> str:
    if len(value.encode()) > LONGEST_SOCKET:
        raise TextError(f"is {len(value.encode())} bytes long: a socket's path has {LONGEST_SOCKET} at most")
    return value


def _address(value: object) -> str:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found[2]) < 65_536:
        raise TextError(f"{named(value)} is not an address: write one like 10.0.0.1:6820 or [::1]:6820")
    return found[0]


def _reserve(value: object) -> int | None:
    if value == AT_ONCE:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TextError(f"{named(value)} is not a length of time: write one like 10m, or {AT_ONCE}")
    return parse_duration(str(value))


def _rate(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TextError(f"{named(value)} is not a rate: write bytes a second, one like 22MB, or 0")
    return 0 if str(value).strip() == "0" else size_bytes(value)


def _time_or_none(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TextError(f"{named(value)} is not a length of time: write one like 60s, or 0")
    return 0 if str(value).strip() == "0" else parse_duration(str(value))


def _registries(value: object) -> tuple[str, ...]:
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TextError(f"{named(value)} is not a list of registries: write them like images:5000")
    try:
        return read_hosts(" ".join(words))
    except BadRequest as error:
        raise TextError(f"names no registries: {error}") from error


def mapping_of_names(value: object) -> object:
    if not isinstance(value, dict):
        raise TextError(f"{named(value)} is not a mapping: write a name and what it stands for below it")
    if len(value) > MOST_IMAGES:
        raise TextError(f"has {len(value)} names: there can be {MOST_IMAGES}")
    return value


def _text(check: Callable[..., object], **schema: object) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(check), WithJsonSchema({"type": "string", **schema})


def matching(expression: re.Pattern[str], wanted: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """A text that a regular expression describes in full."""

    def checked(value: object) -> str:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise TextError(f"{named(value)} is not {wanted}")
        return value

    return _text(checked, pattern=f"^(?:{expression.pattern})$")


Path = Annotated[str, *_text(_path, pattern="^/", examples=["/var/lib/outrider"])]
StorePlace = Annotated[str, *_text(_store, examples=["postgresql://outrider@db/outrider"])]
SocketPath = Annotated[Path, AfterValidator(_socket)]
Address = Annotated[str, *_text(_address, examples=["10.0.0.1:6820"])]
Reserve = Annotated[int | None, *_text(_reserve, examples=["10m", AT_ONCE])]
Registries = Annotated[
    tuple[str, ...],
    BeforeValidator(_registries),
    WithJsonSchema({"type": "string", "examples": ["images:5000 registry.example.org:5000"]}),
]
Rate = Annotated[
    int,
    BeforeValidator(_rate),
    WithJsonSchema({"type": ["integer", "string"], "examples": ["22MB", 0]}),
]
"""Bytes a second; unlike a size it may be nothing."""
TimeOrNone = Annotated[
    int,
    BeforeValidator(_time_or_none),
    WithJsonSchema({"type": ["integer", "string"], "examples": ["60s", 0]}),
]
"""A length of time, or 0."""
S = TypeVar("S", bound=Section)
Names = Annotated[tuple[Account, ...], Field(max_length=MOST_NAMES, strict=False)]


def given(text: str) -> JsonDict:
    return {"default": text}


def all_defaults(section: type[S]) -> Callable[[], S]:
    return lambda: section.model_validate({})
