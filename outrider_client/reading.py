"""From JSON to frozen values, by their own fields.

A field that is not known is passed over, so that a newer service can be asked; one that is
missing and has no default is an error, so that nothing is made up.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from outrider_client.errors import UnreachableError

T = TypeVar("T")
# What `X | Y` is, from Python 3.10 on.
_UNIONS = (Union, getattr(types, "UnionType", Union))


class _UnlikeError(Exception):
    """A value is not of the form that its field has."""


def read(kind: type[T], value: object) -> T:
    """A frozen value of this kind. Raises UnreachableError if that is not what the service sent."""
    try:
        found = _read(kind, value, kind.__name__)
    except _UnlikeError as error:
        raise UnreachableError(
            f"the service's answer is not of the form known here ({error}): outrider and outriderd "
            "should be of the same version; see outrider --version and outrider status --json"
        ) from error
    return typing.cast(T, found)


def _read(kind: object, value: object, where: str) -> object:
    if isinstance(kind, type) and is_dataclass(kind):
        return _object(kind, value, where)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        if value is None and type(None) in parts:
            return None
        return _read(next(part for part in parts if part is not type(None)), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(parts[0], each, f"{where}[{at}]") for at, each in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {str(key): _read(parts[1], each, f"{where}.{key}") for key, each in value.items()}
    if origin is Literal and value in parts:
        return value
    is_bool_for_number = kind is int and isinstance(value, bool)
    if isinstance(kind, type) and isinstance(value, kind) and not is_bool_for_number:
        return value
    raise _UnlikeError(f"{where} is {type(value).__name__}")


def _object(kind: type, value: object, where: str) -> object:
    if not isinstance(value, dict):
        raise _UnlikeError(f"{where} is {type(value).__name__}")
    given: dict[str, object] = {}
    for field, hint in _fields(kind):
        if field.name in value:
            given[field.name] = _read(hint, value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _UnlikeError(f"{where}.{field.name} is missing")
    return kind(**given)


@lru_cache(maxsize=64)
def _fields(kind: type) -> tuple[tuple[Field[object], object], ...]:
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind))
