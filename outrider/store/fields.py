"""JSON values of known kinds: how each is written, and how it is read with every field checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outrider.store.errors import Damaged, TooNew

T = TypeVar("T")
_NOTHING_THERE = object()

Read = Callable[[object, str, str], T]
"""Makes a value of what stands in a field: the JSON value, the field's name, and what it is a field of."""


@dataclass(frozen=True, slots=True)
class FieldKind(Generic[T]):
    """How a value becomes JSON, and how it is read again: Damaged or TooNew if it is not of this kind."""

    write: Callable[[T], object]
    read: Read[T]
    plain: tuple[type, ...] = ()
    """JSON values of these types are the value itself: reading them needs no call."""


def _scalar(kind: type[T]) -> FieldKind[T]:
    def read(value: object, name: str, what: str) -> T:
        # A truth value is not a number, although Python takes it for one.
        if type(value) is not kind:
            raise _wrong(name, what)
        return value

    return FieldKind(lambda value: value, read, (kind,))


NUMBER = _scalar(int)
TEXT = _scalar(str)
CLAIM = _scalar(bool)


def maybe(kind: FieldKind[T]) -> FieldKind[T | None]:
    """The same, or null."""
    return FieldKind(
        lambda value: None if value is None else kind.write(value),
        lambda value, name, what: None if value is None else kind.read(value, name, what),
        (*kind.plain, type(None)),
    )


def several(kind: FieldKind[T]) -> FieldKind[tuple[T, ...]]:
    """A list of these."""

    def read(value: object, name: str, what: str) -> tuple[T, ...]:
        if type(value) is not list:
            raise _wrong(name, what)
        return tuple([kind.read(each, name, what) for each in value])

    return FieldKind(lambda values: [kind.write(each) for each in values], read)


def rows(
    *kinds: type, build: Callable[[Any], T], write: Callable[[T], Iterable[object]]
) -> FieldKind[tuple[T, ...]]:
    """A list of short lists whose items are of these kinds, in this order. A site may have hundreds of
    thousands of them: they are looked at by columns."""

    def read(value: object, name: str, what: str) -> tuple[T, ...]:
        if type(value) is not list or not set(map(type, value)) <= {list}:
            raise _wrong(name, what)
        try:
            columns = list(zip(*value, strict=True))
        except ValueError:
            raise _wrong(name, what) from None
        if value and [set(map(type, column)) for column in columns] != [{kind} for kind in kinds]:
            raise _wrong(name, what)
        return tuple(map(build, value))

    return FieldKind(lambda values: [list(write(each)) for each in values], read)


def amounts(build: Callable[[Mapping[str, int]], T], items: Callable[[T], object]) -> FieldKind[T]:
    """An object of numbers, whose fields may have any name."""

    def read(value: object, name: str, what: str) -> T:
        inner = f"{name} of {what}"
        fields = _fields(value, inner)
        return build({each: NUMBER.read(fields[each], each, inner) for each in fields})

    return FieldKind(items, read)


def record(build: Callable[..., T], called: str = "", **kinds: FieldKind[Any]) -> FieldKind[T]:
    """An object with exactly these fields, which `build` takes by name. It is `called` so in errors."""

    def read(value: object, name: str, what: str) -> T:
        return build(**read_fields(value, called or f"{name} of {what}", kinds))

    return FieldKind(lambda value: write_fields(value, kinds), read)


def write_fields(value: object, kinds: Mapping[str, FieldKind[Any]]) -> dict[str, object]:
    """The attributes of a value that have these names."""
    return {name: kind.write(getattr(value, name)) for name, kind in kinds.items()}


def read_fields(value: object, what: str, kinds: Mapping[str, FieldKind[Any]]) -> dict[str, Any]:
    """The fields of an object, each of its kind. One more is the work of a later version."""
    fields = _fields(value, what)
    found = {
        name: value
        if type(value := fields.get(name, _NOTHING_THERE)) in kind.plain
        else kind.read(value, name, what)
        for name, kind in kinds.items()
    }
    if len(fields) != len(kinds):
        unknown = ", ".join(sorted(fields.keys() - kinds.keys()))
        raise TooNew(f"{what} in the store has fields unknown to this version: {unknown}; upgrade")
    return found


def _fields(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Damaged(f"{what} in the store is not a JSON object: put a backup back")
    return value


def _wrong(name: str, what: str) -> Damaged:
    return Damaged(f"{what} in the store has no {name} of the right kind: put a backup back")
