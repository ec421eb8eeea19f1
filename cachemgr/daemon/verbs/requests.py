"""One request as it came over the socket: bounded, parsed, its fields taken by type.

Nothing here knows what a verb does. A field that no verb takes is an error, so that a slip
of the pen is not silently ignored.
"""

from __future__ import annotations

import json

from cachemgr.base.errors import BadRequest
from cachemgr.pool.records import checked_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
MOST_BYTES = 64 << 10
MOST_NESTING = 12
MOST_ITEMS = 256
MOST_NUMBER = 1 << 62


class Request:
    """A verb and its fields. Each field may be taken once; what is left over is refused."""

    def __init__(self, verb: str, fields: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        self.verb = verb
        self.descriptors = tuple(descriptors)
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def finish(self) -> None:
        """Refuse what nobody took."""
        if self._fields:
            raise BadRequest(f"{self.verb!r} has no field {sorted(self._fields)[0][:60]!r}")

    def text(self, name: str) -> str:
        found = self.optional_text(name)
        if found is None:
            raise BadRequest(f"{self.verb!r} needs the field {name!r}")
        return found

    def optional_text(self, name: str) -> str | None:
        value = self._fields.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, str):
            raise BadRequest(f"{name!r} must be a text")
        return checked_name(value, name)

    def number(self, name: str) -> int:
        found = self.optional_number(name)
        if found is None:
            raise BadRequest(f"{self.verb!r} needs the field {name!r}")
        return found

    def optional_number(self, name: str, least: int = 0) -> int | None:
        value = self._fields.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_NUMBER:
            raise BadRequest(f"{name!r} must be a whole number of at least {least}")
        return value

    def truth(self, name: str, *, default: bool = False) -> bool:
        value = self._fields.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadRequest(f"{name!r} must be true or false")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._fields.pop(name, None)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise BadRequest(f"{name!r} must be a list of at most {MOST_ITEMS} texts")
        return [checked_name(each if isinstance(each, str) else "", name) for each in value]

    def numbers(self, name: str) -> tuple[int, ...]:
        value = self._fields.pop(name, None)
        if value is None:
            return ()
        is_list = isinstance(value, list) and len(value) <= MOST_ITEMS
        if not is_list or not all(type(each) is int and 0 <= each < 1 << 32 for each in value):  # type: ignore[attr-defined]
            raise BadRequest(f"{name!r} must be a list of at most {MOST_ITEMS} numbers")
        return tuple(value)  # type: ignore[arg-type]

    def part(self, name: str) -> Request | None:
        """A field that has fields of its own; its `finish` is the caller's to call."""
        value = self._fields.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadRequest(f"{name!r} must be an object")
        return Request(f"{self.verb}.{name}", dict(value))

    def rest(self) -> dict[str, object]:
        """Everything that is left: for what is checked elsewhere."""
        found, self._fields = self._fields, {}
        return found


def parse(line: bytes, descriptors: Sequence[int] = ()) -> Request:
    """The request in a line; `BadRequest` for anything else, in bounded time."""
    if nesting(line) > MOST_NESTING:
        raise BadRequest(f"the request is nested deeper than {MOST_NESTING} levels")
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the request is not one line of JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise BadRequest("the request is not a JSON object")
    if found.pop("v", None) != VERSION:
        raise BadRequest(f'the request has no "v": {VERSION}, which is the version that this daemon speaks')
    verb = found.pop("do", None)
    if not isinstance(verb, str) or len(verb) > 40:
        raise BadRequest('the request does not say what to "do"')
    return Request(verb, found, descriptors)


def nesting(line: bytes) -> int:
    """How deep brackets stand in brackets, those in texts not counted: before any parser sees them."""
    if line.count(b"[") + line.count(b"{") <= MOST_NESTING:
        return 0
    depth = deepest = 0
    is_text = is_escaped = False
    for byte in line:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                is_text = False
        elif byte == 0x22:
            is_text = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def answer(fields: dict[str, object]) -> bytes:
    """One line for the other side; in ASCII, so that a hook can read it without a decoder."""
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
