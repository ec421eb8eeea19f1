"""The configuration's keys, made of the models: a table for the site, and a commented example."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import cast

from outrider.metadata.errors import Path as KeyPath
from outrider.metadata.validation import Schema, json_schema
from outrider.service.daemon.configuration.files import variables
from outrider.service.daemon.configuration.model import Config

LINE = 108
_HEAD = """\
# Every key of /etc/outrider/outriderd.yaml, with its default if it has one. Write only the keys that you
# change, then run: outriderd --check. A variable of the environment overrides a key: OUTRIDER_LINK_RATE
# that of link.rate. Lists, version and images have no variable.
"""


def table() -> str:
    """Every key that may be written, with its variable, its default and what it is for."""
    rows = [
        f"| `{key}` | {f'`{variable}`' if variable else ''} | {default} | {words} |"
        for key, variable, default, words in keys()
    ]
    return "\n".join(["| key | variable | default | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


def keys() -> Iterator[tuple[str, str, str, str]]:
    """Every key with its variable, its default and what it is for; an empty text for what it has not."""
    named = {key: name for name, key in variables().items()}
    for key, each in _keys(json_schema(Config)):
        yield ".".join(map(str, key)), named.get(key, ""), _default(each), _words(each)


def example() -> str:
    """A file with every key as a comment: what it is for, and its default."""
    lines, written = [_HEAD.rstrip()], set[KeyPath]()
    for key, each in _keys(json_schema(Config)):
        for above in (key[:depth] for depth in range(1, len(key))):
            if above not in written:
                written.add(above)
                lines += ["", f"#{above[0]}:"] if len(above) == 1 else [f"#{_indent(above)}{above[-1]}:"]
        lines += ["", *_comment(_words(each))] if len(key) == 1 else _comment(_words(each))
        lines.append(f"#{_indent(key)}{key[-1]}:{_value(each)}")
    return "\n".join(lines) + "\n"


def _indent(key: KeyPath) -> str:
    return "  " * (len(key) - 1)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        LINE,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _value(part: Schema) -> str:
    """The default as YAML has it. A mode is a text: its zero would be lost."""
    found = part.get("default", part.get("const"))
    if found is None:
        return ""
    plain = str(found).lower() if isinstance(found, bool) else str(found)
    return f' "{plain}"' if not plain or plain.startswith("0") else f" {plain}"


def _keys(schema: Schema) -> Iterator[tuple[KeyPath, Schema]]:
    yield from _below(schema, schema, ())


def _below(part: Schema, schema: Schema, path: KeyPath) -> Iterator[tuple[KeyPath, Schema]]:
    for key, each in cast(Mapping[str, Schema], part.get("properties", {})).items():
        whole = _resolved(each, schema)
        alike = next(iter(cast(Mapping[str, Schema], whole.get("patternProperties", {})).values()), None)
        if alike is not None:
            yield from _below(_resolved(alike, schema), schema, (*path, key, "NAME"))
        elif "properties" in whole:
            yield from _below(whole, schema, (*path, key))
        else:
            yield (*path, key), whole


def _resolved(part: Schema, schema: Schema) -> Schema:
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return part
    return {**cast(Mapping[str, Schema], schema["$defs"])[reference.rpartition("/")[2]], **part}


def _default(part: Schema) -> str:
    found = part.get("default")
    if found is None:
        return ""
    return f"`{str(found).lower() if isinstance(found, bool) else found}`"


def _words(part: Schema) -> str:
    words = str(part.get("description", ""))
    choices = part.get("enum")
    return f"{words} ({', '.join(f'`{each}`' for each in choices)})" if isinstance(choices, list) else words
