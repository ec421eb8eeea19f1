"""The configuration's keys as a table for the documentation, made of the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from outrider.metadata.errors import Path as KeyPath
from outrider.metadata.validation import Schema, json_schema
from outrider.service.daemon.configuration.files import variables
from outrider.service.daemon.configuration.model import Config


def table() -> str:
    """Every key that may be written, with its variable, its default and what it is for."""
    named = {key: name for name, key in variables().items()}
    rows = []
    for key, each in _keys(json_schema(Config)):
        variable = f"`{named[key]}`" if key in named else ""
        rows.append(f"| `{'.'.join(map(str, key))}` | {variable} | {_default(each)} | {_words(each)} |")
    return "\n".join(["| key | variable | default | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


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
