"""What all messages of `cachemgr.protocol` have in common, and how they are written: as plain JSON values."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Only mypy reads this, whatever Python runs.
    from typing import Any, ClassVar, TypeVar, dataclass_transform  # novm

    Message = TypeVar("Message", bound="ProtocolMessage")
else:

    def dataclass_transform(**_):
        return lambda kind: kind


NEEDED = object()
"""The default of a field that has none."""


@dataclass_transform(frozen_default=True)
class ProtocolMessage:
    """A frozen value whose fields are the annotations of its class and of the class that it extends.

    `dataclasses` takes longer to be imported, and to make sixty classes, than a daemon takes to answer;
    every command would wait for that at its start.
    """

    field_types: ClassVar[dict[str, str]] = {}
    """By field, its type as it is written: Python 3.9 cannot evaluate all of these."""
    defaults: ClassVar[dict[str, Any]] = {}
    at_least_1: ClassVar[tuple[str, ...]] = ()
    """Fields in which a request cannot have the number 0."""

    def __init_subclass__(cls) -> None:
        own = {name: text for name, text in cls.__annotations__.items() if not text.startswith("ClassVar")}
        cls.field_types = {**cls.field_types, **own}
        cls.defaults = {name: getattr(cls, name, NEEDED) for name in cls.field_types}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self.defaults, values))
        found = {**self.defaults, **given, **named}
        wrong = [name for name in named if name in given or name not in self.defaults]
        wrong += [name for name, value in found.items() if value is NEEDED]
        if wrong or len(values) > len(given):
            raise TypeError(f"{type(self).__name__}: {wrong or values} do not fit {tuple(self.defaults)}")
        self.__dict__.update(found)

    def changed(self: Message, **named: Any) -> Message:
        """The same with other values in these fields."""
        return type(self)(**{**vars(self), **named})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


def plain(message: object) -> Any:
    """A message as JSON has it, without fields that have their default; an empty list is told."""
    if isinstance(message, (list, tuple)):
        return [plain(each) for each in message]
    form = form_of(type(message))
    if form is None:
        return message
    found = {}
    for name, _, default, is_simple in form:
        value = getattr(message, name)
        # Defaults are None, truths and empty lists.
        if value is not default or value == ():
            found[name] = value if is_simple else plain(value)
    return found


TEXTS = {"str", "str | None"}
NUMBERS = {"int", "int | None"}
SIMPLE = {"bool", "bool | None", "dict[str, object]", "dict[str, object] | None", *TEXTS, *NUMBERS}
_forms: dict[type[Any], tuple[tuple[str, str, Any, bool], ...] | None] = {}


def form_of(kind: type[Any]) -> tuple[tuple[str, str, Any, bool], ...] | None:
    """Each field of a message: its name, its type, its default, and whether it travels as it is. None for
    what is no message."""
    if kind not in _forms:
        found = None
        if issubclass(kind, ProtocolMessage):
            rows = kind.field_types.items()
            found = tuple((name, text, kind.defaults[name], text in SIMPLE) for name, text in rows)
        _forms[kind] = found
    return _forms[kind]
