"""A JSON object that is read with every field named and its kind known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.store.errors import Damaged, TooNew


class StoredFields:
    """A JSON object that is read field by field; what is left over was not expected."""

    def __init__(self, what: str, value: object) -> None:
        if not isinstance(value, dict):
            raise Damaged(f"{what} in the store is not a JSON object: put a backup back")
        self._what = what
        self._left: dict[str, Any] = dict(value)

    def number(self, name: str) -> int:
        value = self._left.pop(name, None)
        if type(value) is not int:
            raise self._wrong(name)
        return value

    def maybe_number(self, name: str) -> int | None:
        return None if self._is_null(name) else self.number(name)

    def text(self, name: str) -> str:
        value = self._left.pop(name, None)
        if type(value) is not str:
            raise self._wrong(name)
        return value

    def claim(self, name: str) -> bool:
        value = self._left.pop(name, None)
        if type(value) is not bool:
            raise self._wrong(name)
        return value

    def names(self) -> list[str]:
        """The fields that have not been read."""
        return list(self._left)

    def items(self, name: str) -> list[object]:
        value = self._left.pop(name, None)
        if type(value) is not list:
            raise self._wrong(name)
        return value

    def numbers(self, name: str) -> list[int]:
        return [number for (number,) in self._checked(name, [(each,) for each in self.items(name)], (int,))]

    def texts(self, name: str) -> list[str]:
        return [text for (text,) in self._checked(name, [(each,) for each in self.items(name)], (str,))]

    def rows(self, name: str, *kinds: type) -> list[tuple[Any, ...]]:
        """A list of short lists, the items of each of these kinds."""
        return self._checked(name, [each if type(each) is list else () for each in self.items(name)], kinds)

    def fields(self, name: str) -> StoredFields:
        return StoredFields(f"{name} of {self._what}", self._left.pop(name, None))

    def maybe_fields(self, name: str) -> StoredFields | None:
        return None if self._is_null(name) else self.fields(name)

    def done(self) -> None:
        if self._left:
            unknown = ", ".join(sorted(self._left))
            raise TooNew(f"{self._what} in the store has fields unknown to this version: {unknown}; upgrade")

    def _checked(
        self, name: str, rows: Sequence[Sequence[object]], kinds: tuple[type, ...]
    ) -> list[tuple[Any, ...]]:
        for row in rows:
            if tuple(map(type, row)) != kinds:
                raise self._wrong(name)
        return [tuple(row) for row in rows]

    def _is_null(self, name: str) -> bool:
        if self._left.get(name, 0) is None:
            del self._left[name]
            return True
        return False

    def _wrong(self, name: str) -> Damaged:
        return Damaged(f"{self._what} in the store has no {name} of the right kind: put a backup back")
