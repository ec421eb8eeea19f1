"""Messages of `cachemgr.protocol` read from the fields that travelled."""

from __future__ import annotations

from cachemgr import protocol
from cachemgr.base.errors import BadRequest
from cachemgr.base.message import NEEDED, NUMBERS, TEXTS, form_of
from cachemgr.pool.records import checked_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cachemgr.base.message import Message

MOST_ITEMS = 256
MOST_NUMBER = 1 << 62


class WrongField(BadRequest):
    """A field is missing, or has another form than this version knows."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def read_request(kind: type[Message], verb: str, given: Mapping[str, object]) -> Message:
    """A request to the letter: what is missing, unknown or of another form is refused."""
    form = form_of(kind) or ()
    unknown = sorted(given.keys() - {each[0] for each in form})
    if unknown:
        raise BadRequest(f"{verb!r} has no field {unknown[0][:60]!r}")
    found: dict[str, Any] = {}
    for name, written, default, _ in form:
        value = given.get(name)
        if value is not None:
            found[name] = _taken(kind, name, written.replace(" | None", ""), value, verb)
        elif default is NEEDED:
            raise WrongField(name, f"{verb!r} needs the field {name!r}")
    return kind(**found)


def _taken(kind: type[Any], name: str, form: str, value: object, verb: str) -> object:
    if form == "str":
        if not isinstance(value, str):
            raise WrongField(name, f"{name!r} must be a text")
        return checked_name(value, name)
    if form == "int":
        least = int(name in kind.at_least_1)
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
    found: list[object] = []
    for name, written, default, _ in form_of(kind) or ():
        value = given.get(name)
        # What most fields are comes first: a node lists thousands of images.
        if type(value) is str and written in TEXTS:
            found.append(value[:most_letters])
        elif type(value) is int and written in NUMBERS and value >= 0:
            found.append(value)
        elif value is None and written.endswith(" | None"):
            found.append(None)
        elif value is None and (default is not NEEDED or written == "str"):
            found.append("" if default is NEEDED else default)
        else:
            found.append(_heard(name, written.replace(" | None", ""), value, most_letters))
    return kind(*found)


def _heard(name: str, form: str, value: object, most: int | None) -> object:
    if form == "int":
        # Metrics travel as floats.
        if isinstance(value, float) and value.is_integer() and value >= 0:
            return int(value)
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
    raise WrongField(name, f"an unusable {name}")


# Forms that have no class of their own among the messages.
PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "dict[str, object]": dict}
