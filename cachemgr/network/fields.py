"""Messages of `cachemgr.protocol` as the fields that travel, and back."""

from __future__ import annotations

import dataclasses

from cachemgr import protocol
from cachemgr.base.errors import BadRequest
from cachemgr.pool.records import checked_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    from _typeshed import DataclassInstance

    Message = TypeVar("Message", bound=DataclassInstance)

MOST_ITEMS = 256
MOST_NUMBER = 1 << 62
# Forms that have no class of their own among the messages.
PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "dict[str, object]": dict}


class WrongField(BadRequest):
    """A field is missing, or has another form than this version knows."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def plain(message: object) -> Any:
    """A message as JSON has it, without fields that have their default; an empty list is told."""
    if isinstance(message, (list, tuple)):
        return [plain(each) for each in message]
    if not dataclasses.is_dataclass(message):
        return message
    found = ((each, getattr(message, each.name)) for each in dataclasses.fields(message))
    return {each.name: plain(value) for each, value in found if value != each.default or value == ()}


def read_request(kind: type[Message], verb: str, given: Mapping[str, object]) -> Message:
    """A request to the letter: what is missing, unknown or of another form is refused."""
    unknown = sorted(given.keys() - {each.name for each in dataclasses.fields(kind)})
    if unknown:
        raise BadRequest(f"{verb!r} has no field {unknown[0][:60]!r}")
    found: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        value = given.get(each.name)
        if value is not None:
            found[each.name] = _taken(each, value, verb)
        elif each.default is dataclasses.MISSING:
            raise WrongField(each.name, f"{verb!r} needs the field {each.name!r}")
    return kind(**found)


def _taken(each: dataclasses.Field[Any], value: object, verb: str) -> object:
    name, form = each.name, _form(each)
    if form == "str":
        if not isinstance(value, str):
            raise WrongField(name, f"{name!r} must be a text")
        return checked_name(value, name)
    if form == "int":
        least = each.metadata.get("least", 0)
        if type(value) is not int or not least <= value <= MOST_NUMBER:
            raise WrongField(name, f"{name!r} must be a whole number of at least {least}")
        return value
    if form == "bool":
        if not isinstance(value, bool):
            raise WrongField(name, f"{name!r} must be true or false")
        return value
    if form == "tuple[str, ...]":
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise WrongField(name, f"{name!r} must be a list of at most {MOST_ITEMS} texts")
        return tuple(checked_name(one if isinstance(one, str) else "", name) for one in value)
    if form == "tuple[int, ...]":
        is_list = isinstance(value, list) and len(value) <= MOST_ITEMS
        if not is_list or not all(type(one) is int and 0 <= one < 1 << 32 for one in value):  # type: ignore[attr-defined]
            raise WrongField(name, f"{name!r} must be a list of at most {MOST_ITEMS} numbers")
        return tuple(value)  # type: ignore[arg-type]
    if not isinstance(value, dict):
        raise WrongField(name, f"{name!r} must be an object")
    return value if form in PLAIN else read_request(vars(protocol)[form], f"{verb}.{name}", value)


def read_answer(
    kind: type[Message], given: Mapping[str, object], *, most_letters: int | None = None
) -> Message:
    """An answer, perhaps of another version: `WrongField` if what is needed is missing or strange.

    A text that is not there is empty; one is cut after `most_letters`. Where a field may be None it makes no
    difference whether it is there.
    """
    return kind(
        **{each.name: _heard(each, given.get(each.name), most_letters) for each in dataclasses.fields(kind)}
    )


def _heard(each: dataclasses.Field[Any], value: object, most: int | None) -> object:
    form = _form(each)
    if value is None:
        if each.default is not dataclasses.MISSING:
            return each.default
        if str(each.type).endswith(" | None"):
            return None
        if form == "str":
            return ""
    elif form == "str":
        if isinstance(value, str):
            return value[:most]
    elif form == "int":
        # Metrics travel as floats.
        is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if is_whole and value >= 0:  # type: ignore[operator]
            return int(value)  # type: ignore[call-overload]
    elif form.startswith("tuple["):
        if isinstance(value, list):
            inner = form[len("tuple[") : -len(", ...]")]
            kind = vars(protocol).get(inner)
            if all(type(one) is PLAIN.get(inner, dict) for one in value):
                return (
                    tuple(value)
                    if kind is None
                    else tuple(read_answer(kind, one, most_letters=most) for one in value)
                )
    elif isinstance(value, PLAIN.get(form, dict)):
        return value if form in PLAIN else read_answer(vars(protocol)[form], value, most_letters=most)  # type: ignore[arg-type]
    raise WrongField(each.name, f"an unusable {each.name}")


def _form(each: dataclasses.Field[Any]) -> str:
    """A field's type as it is written, since Python 3.9 cannot evaluate all of these."""
    return str(each.type).split(" | ")[0]
