"""YAML as Outrider reads it: plain data with the place of each value, or all faults at once.

What is read is a subset that says the same to everybody: UTF-8, one document, no tags, no
anchors and aliases (a few lines of them expand without end), no key twice, nothing empty. A
plain word is a text, but for whole numbers, `true` and `false`; so `16:00` is not the
number 960, `no` is not false and a version 1.10 stays what it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from outrider.metadata.errors import FaultyFileError, FileProblem, Path, TextPosition, shown

MOST_BYTES = 256 * 1024
MOST_VALUES = 20_000
MOST_DEPTH = 12
MOST_PROBLEMS = 100

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOOLEANS = {"true": True, "false": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_UNREADABLE = re.compile(
    "[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\r(?!\n)"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NEVER = "nothing of a value that was refused"


@dataclass(kw_only=True)
class YamlDocument:
    """A file's data: dictionaries, lists, texts, whole numbers and booleans, and where each stands."""

    file: str
    data: object = None
    keys: dict[Path, TextPosition] = field(default_factory=dict)
    values: dict[Path, TextPosition] = field(default_factory=dict)
    problems: list[FileProblem] = field(default_factory=list)

    def place(self, path: Path, *, of_key: bool = False) -> TextPosition:
        """Where a value stands, or its key; for what is not there, what it would have stood in."""
        if of_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, TextPosition(line=1, column=1))

    def add_problem(self, path: Path, message: str, *, of_key: bool = False) -> None:
        """Note a fault, unless there is one already of the same value or of what it is in."""
        if any(path[: len(each.path)] == each.path for each in self.problems if each.path):
            return
        if len(self.problems) < MOST_PROBLEMS:
            place = self.place(path, of_key=of_key)
            self.problems.append(FileProblem(file=self.file, place=place, path=path, message=message))

    def raise_problems(self) -> None:
        if self.problems:
            raise FaultyFileError(self.problems)


class _StopReading(Exception):
    """What follows in the file would mean nothing, or is too much."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """A file's content, of which no more is read than a document may have. OSError is the caller's."""
    with open(path, "rb") as file:
        return file.read(MOST_BYTES + 1)


def parse_yaml(content: bytes, *, file: str) -> YamlDocument:
    """The document in these bytes. Its faults are noted in it, and the rest of it is still read."""
    document = YamlDocument(file=file)
    text = _decoded(content, document)
    if text is None:
        return document
    try:
        _Reader(document, _events(text)).read()
    except _StopReading:
        pass
    except yaml.MarkedYAMLError as error:
        _note_syntax(document, text, error)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # What the parser says without a place, such as a code point that does not exist.
        _note(document, TextPosition(line=1, column=1), f"is not YAML: {_one_line(str(error))}")
    return document


def scalar(text: str) -> str | int | bool:
    """What a plain word means; a number with more digits than any amount has stays a text."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return _BOOLEANS.get(text.lower(), text) if text in ("true", "false", "True", "False") else text


class _Reader:
    """Events become data. Depth and number of values are limited while they come in."""

    def __init__(self, document: YamlDocument, events: Iterator[yaml.Event]) -> None:
        self._document = document
        self._events = events
        self._values = 0

    def read(self) -> None:
        self._next(yaml.StreamStartEvent)
        if not isinstance(next(self._events), yaml.DocumentStartEvent):
            _note(self._document, TextPosition(line=1, column=1), "is empty: nothing is written in it")
            return
        self._document.data = self._value(next(self._events), ())
        self._next(yaml.DocumentEndEvent)
        following = next(self._events)
        if isinstance(following, yaml.DocumentStartEvent):
            _note(self._document, _place(following), "a second document begins here: one file holds one")

    def _next(self, kind: type[yaml.Event]) -> None:
        event = next(self._events)
        assert isinstance(event, kind), event

    def _value(self, event: yaml.Event, path: Path) -> object:
        place = _place(event)
        self._document.values[path] = place
        self._values += 1
        if self._values > MOST_VALUES:
            _note(
                self._document, place, f"there are more than {MOST_VALUES} values up to here: split the file"
            )
            raise _StopReading
        if len(path) > MOST_DEPTH:
            _note(self._document, place, f"this is nested more than {MOST_DEPTH} levels deep")
            raise _StopReading
        if isinstance(event, yaml.AliasEvent):
            self._refuse(path, f"the alias {shown(f'*{event.anchor}')} is not taken: write the value out")
            return _NEVER
        self._check_marks(event, path)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event, path)

    def _mapping(self, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                _note(
                    self._document, _place(event), "a key is a word: neither a list, a mapping nor an alias"
                )
                raise _StopReading
            key = event.value
            below = (*path, key)
            if key in data:
                first = self._document.keys[below].line
                again = (*path, f"{key} again")
                self._document.keys[again] = _place(event)
                self._value(next(self._events), again)
                _note(
                    self._document,
                    _place(event),
                    f"{shown(key)} is given twice, first in line {first}",
                    below,
                )
                continue
            self._document.keys[below] = _place(event)
            self._check_marks(event, below)
            self._check_text(key, below)
            data[key] = self._value(next(self._events), below)
        return data

    def _sequence(self, path: Path) -> list[object]:
        data: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            data.append(self._value(event, (*path, len(data))))
        return data

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> object:
        if not event.implicit[0]:
            self._check_text(event.value, path)
            return event.value
        if event.value in _NULLS:
            self._refuse(path, "is empty: give it a value, or leave it out")
            return _NEVER
        return scalar(event.value)

    def _check_marks(self, event: yaml.Event, path: Path) -> None:
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self._refuse(path, f"the anchor {shown(f'&{event.anchor}')} is not taken: write values out")
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag:
            self._refuse(path, f"the tag {shown(event.tag)} is not taken: leave it out, quote what is a text")

    def _check_text(self, text: str, path: Path) -> None:
        if _SURROGATE.search(text):
            self._refuse(path, "has half of a character (a surrogate) in it: write the whole one")

    def _refuse(self, path: Path, message: str) -> None:
        self._document.add_problem(path, message)


def _events(text: str) -> Iterator[yaml.Event]:
    """libyaml where PyYAML has it: it is some ten times faster, which bounds what a hostile file costs."""
    return yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _decoded(content: bytes, document: YamlDocument) -> str | None:
    if len(content) > MOST_BYTES:
        _note(
            document,
            TextPosition(line=1, column=1),
            f"is larger than {MOST_BYTES // 1024} KiB: no such file is read",
        )
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: save the file in that encoding"
        _note(document, _place_after(before), message)
        return None
    if found := _UNREADABLE.search(text):
        message = (
            f"the character U+{ord(found[0]):04X} may not stand here; in double quotes write it as an escape"
        )
        _note(document, _place_after(text[: found.start()]), message)
        return None
    return text


def _note_syntax(document: YamlDocument, text: str, error: yaml.MarkedYAMLError) -> None:
    """A fault of the syntax, after which nothing can be read."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    here = lines[line] if line < len(lines) else ""
    hint = ""
    if "\t" in here[: column + 1]:
        hint = "; indent with blanks instead of tabs"
    elif "expected <block end>" in str(error.problem) or "mapping values" in str(error.problem):
        hint = "; look at the indentation, and quote a text with a colon"
    if "maximum nesting depth" in str(error.problem):
        # libyaml looks ahead, and from some version on stops at a depth of its own.
        hint = f"; at most {MOST_DEPTH} levels are read"
    words = ": ".join(_one_line(each) for each in (error.context, error.problem) if each)
    _note(document, TextPosition(line=line + 1, column=column + 1), f"is not YAML: {words}{hint}")


def _note(document: YamlDocument, place: TextPosition, message: str, path: Path = ()) -> None:
    if len(document.problems) < MOST_PROBLEMS:
        document.problems.append(FileProblem(file=document.file, place=place, path=path, message=message))


def _place(event: yaml.Event) -> TextPosition:
    mark = event.start_mark
    assert mark is not None
    return TextPosition(line=mark.line + 1, column=mark.column + 1)


def _place_after(text: str) -> TextPosition:
    return TextPosition(line=text.count("\n") + 1, column=len(text) - (text.rfind("\n") + 1) + 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
